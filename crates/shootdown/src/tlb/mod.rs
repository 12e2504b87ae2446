//! TLB coherence: making other CPUs forget translations.
//!
//! * [`scope`](FlushScope): whose translations to forget. [`range`](FlushRange), [`ranges`](FlushRanges): which of them.
//! * [`space`](AddressSpace): a page-table root, its generation and the CPUs that may cache it.
//! * `switch`: loading and leaving spaces (I2). `load`: loading roots. `host_load`: when the host loads them. [`asid`](Asid): what stays cached across it. `lazy`: not leaving at all.
//! * `listener`, [`secondary`](Held): what else keeps translations, and is told. [`reclaim`](Reclaim): one flush for many spaces.
//! * [`walk`](Walk): reading tables without their lock.
//! * `defer`: left alone while in the kernel. `present`: in the set, but elsewhere.
//! * `split`: a second root for user mode. [`window`](WindowRoot): a second root for one CPU;
//!   `space_root`: one of the two. [`pinned`](PinnedWindows): changing windows.
//! * `flush`, `spare`: the initiator's half. `respond`: the responder's half.
//! * [`remote`](RemoteTargets): CPUs that need no interrupt. [`global_tag`](GlobalTags): all
//!   CPUs at once.
//! * [`batch`](FlushBatch): many changes, one shootdown, frames returned only afterwards. [`flush_guard`](FlushGuard): the same as the guard of a lock.
//! * [`guest`](GuestSpace): nested page tables and the CPUs that run on them; [`vcpu`](Vcpu): what runs there.
//! * `ticket`: a flush that was submitted and not yet waited for. `request`: what travels of it. `loaded`: what a CPU has loaded and dropped. `names`: numbers of spaces, changes and tags. `tag_run`: changes that every holder of a global tag has dropped.

mod asid;
mod batch;
mod defer;
mod flush;
mod flush_guard;
mod global_tag;
mod guest;
mod host_load;
mod lazy;
mod listener;
mod load;
mod loaded;
mod names;
mod pinned;
mod present;
mod range;
mod ranges;
mod reach;
mod reclaim;
mod remote;
mod request;
mod respond;
mod scope;
mod secondary;
mod space;
mod space_root;
mod spare;
mod split;
mod switch;
mod tag_run;
mod ticket;
mod vcpu;
mod walk;
mod window;
mod window_root;

pub use asid::{Asid, AsidSlot, TagEntries};
pub use batch::{BatchFull, FlushBatch, Reclaimed};
pub use flush_guard::FlushGuard;
pub use global_tag::{GlobalTags, TagSet};
pub use guest::GuestSpace;
pub use names::{KernelRoot, Root, SpaceId, TlbGen};
pub use pinned::{PinnedWindows, WrongCpu};
pub use range::{FLUSH_CEILING_PAGES, FlushRange, FreedTables, PageSize};
pub use ranges::{FlushRanges, RANGES};
pub use reach::{ReachRoot, Region};
pub use reclaim::Reclaim;
pub use remote::RemoteTargets;
pub use request::FlushRequest;
pub use scope::FlushScope;
pub use secondary::{Held, SecondaryFailed, SecondaryFlush};
pub use space::AddressSpace;
pub use ticket::{FlushTicket, PendingFlush};
pub use vcpu::{GuestEntry, GuestExit, Vcpu};
pub use walk::Walk;
pub use window_root::WindowRoot;

pub(crate) use asid::{Slots, Why};
pub(crate) use lazy::{Attention, LazyMark};
pub(crate) use listener::Listener;
pub(crate) use loaded::{Changes, CpuTlb, Seen};
pub(crate) use space_root::SpaceRoot;
pub(crate) use tag_run::TagRun;
pub(crate) use walk::WalkState;
