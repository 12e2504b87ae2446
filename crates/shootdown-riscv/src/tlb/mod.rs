//! Dropping translations that this hart has cached, and loading roots.
//!
//! Everything here acts on the calling hart only, and on nothing that waits. What SFENCE.VMA drops is in "Privileged", "Supervisor Memory-Management Fence
//! Instruction". It also orders what this hart has seen of stores to page tables, its own ones and other harts', before its walks: no other barrier is needed. It has four forms, of which three are used:
//!
//! | | address | ASID | drops | orders walks behind stores to |
//! |---|---|---|---|---|
//! | [`Fence::All`] | `x0` | `x0` | everything | all tables |
//! | [`Fence::Tag`] | `x0` | a register | the tag's, but what is global | the tag's tables, but what is global |
//! | [`Fence::Page`] | a register | `x0` | the page's **leaf**, global too, under every tag | the page's leaf entry |
//! | - | a register | a register | the page's leaf, if it is the tag's and not global | the same |
//!
//! Hence the rules that [`Tlb`] keeps:
//!
//! * **Freed tables** take a fence without an address. One with an address drops leaves: what leads to them stays cached, and a walk through it ends in the freed table.
//!   The same holds where a table becomes linked ([`Tlb::retry`]).
//! * **Pages of the kernel**, which are global, take a fence without an ASID. So [`Tlb::flush_pages`] names none, because it does not know whose pages they are.
//! * **Loads.** A write of `satp` drops nothing and orders nothing. [`Tlb::load_tagged_root`] says what comes before it, and what behind.
//! * **CIP-1200**: on [processors with this erratum](crate::features::Processor::has_cip_1200) every fence is [`Fence::All`].
//!
//! # Invalid entries
//!
//! Entries whose V is clear may be cached, too. What becomes present, or gains rights, may fault all the same until a fence, or for a bounded time with
//! [`SVVPTC`](crate::Features::SVVPTC). Such a fault is answered by [`Tlb::retry`], of kernel pages as well. Stacks, per-CPU data and what the handler itself
//! touches cannot be retried: flush these on every hart before they are used.

mod asid;
mod entry;
mod load;
mod mode;
mod ops;
mod port;

pub use asid::{Asid, AsidBits, TagEntries};
pub use entry::{Access, allows, table_entry};
pub use load::detect_asid_bits;
pub use mode::Mode;
pub use ops::{CEILING, Depth, Tlb};
pub use port::{Fence, Port};
