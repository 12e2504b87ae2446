//! Guests: virtual machines on nested page tables, which the host changes while their virtual CPUs run.
//!
//! * `layout`: how much there is of everything. `tlb`: what one CPU's hardware has cached of guests. `adversary`: what that does of its own accord.
//! * `vm`: a virtual machine and its virtual CPUs; how it begins and ends. `map`: how its nested tables change. `dirty`: the log of what is written.
//! * `enter`: how a virtual CPU runs. `inside`: what it does in guest mode. `program`: what tasks of the host do with all that.

mod adversary;
mod dirty;
mod enter;
mod inside;
mod layout;
mod map;
mod program;
mod tlb;
mod vm;

pub(super) use adversary::GuestAct;
pub use layout::GuestShare;
pub(super) use tlb::GuestTlb;
pub(super) use vm::{Guests, Vm};
