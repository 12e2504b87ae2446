//! Memory of virtual machines: nested page tables that show parts of an address space.
//!
//! A guest-physical page is what its VMM sees at a user address. The nested tables own nothing; what they lead to is what the page
//! table of the space leads to, with no more rights than that, always:
//!
//! * An entry is made at a nested page fault, from the space's own entry, under the lock of the space. So what an unmap has passed is not
//!   installed behind its back (Linux needs a sequence number for that, `mmu_notifier_invalidate`).
//! * A task that takes something away in the space submits that under the same lock, and there the nested tables follow (`follow`): one flush of
//!   each guest that lost something, beside that of the space. Frames are free when both are over (I5).
//! * A right gained is found at the next nested page fault, and needs no flush (`first_write` can have one made, to compare).
//!
//! The log of dirty pages takes the right to write away itself, and knows of the first write by the nested page fault (`log`).
//!
//! Lock order: requests of the machine, that of the space, the space's list of machines, the machine's state. User memory is accessed under none but the
//! first.
//!
//! It may not know how guests are run.

mod fault;
mod first_write;
mod follow;
mod log;
mod machine;
mod slot;
mod state;
mod table;

pub use fault::NestedFault;
pub use first_write::FirstWrites;
pub(super) use follow::Machines;
pub use log::LogRange;
pub use machine::GuestMemory;
pub use slot::SlotRequest;
pub use state::MOST_SLOTS;
