//! Memory of virtual machines: nested page tables that show parts of an address space.
//!
//! A guest-physical page is what its VMM sees at a user address. The nested tables own nothing; what they lead to is what the page
//! table of the space leads to, with no more rights than that, always: they are a secondary TLB of the space, and listen to its flushes (`follow`).
//!
//! * An entry is made at a nested page fault (`fault`) from the space's own: read the space's generation and the entry under the lock of the space, take the lock of the
//!   machine, install it if the generation is the same (Linux: `mmu_invalidate_retry`).
//! * Each flush of the space, whoever submits it, counts a generation, and then takes what the page table has no more out of the nested tables. In the wait, behind
//!   that for the CPUs, guests that lost something are flushed. Frames are free then (I5).
//! * A right gained is found at the next nested page fault, and needs no flush (`first_write` can have one made, to compare).
//!
//! The log of dirty pages takes the right to write away itself, and knows of the first write by the nested page fault (`log`).
//!
//! Lock order: requests of the machine, that of the space, the number of the machine, the machine's state. The last two are spin locks with interrupts off, because flushes
//! take them, and under them nothing is allocated, freed or waited for: how long they are held grows with the pages that the guest has touched, where a flush is of the whole
//! space. User memory is accessed under the first; under the last only where an access that faults fails.
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
pub use follow::{begin_notice, finish_notice};
pub use log::LogRange;
pub use machine::GuestMemory;
pub use slot::SlotRequest;
pub use state::MOST_SLOTS;
