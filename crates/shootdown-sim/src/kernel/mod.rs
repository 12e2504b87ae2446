//! A virtual kernel, as small as it can be and still do everything that a kernel does to an
//! engine: map, unmap, free tables, protect, fork and copy on write, switch, idle, exit, kernel mappings with
//! global pages, cross-CPU calls of every kind, CPUs that come online late, go offline and come back, CPUs that are
//! lazy, defer flushes or poll while they are idle, changes of policy, windows of one CPU.
//!
//! Spaces are tiny (three regions of four pages, one table each, a fourth region that is the kernel's, and a fifth for windows), frames
//! are few and reused last-in first-out, so that everything collides soon.
//!
//! * `layout`: where pages and tables are. [`Physical`]: page-table entries in simulated memory. [`Tlb`]: what one CPU's hardware has cached, and
//!   what it may do by itself.
//! * [`World`]: the engine, the spaces, the frames. `space`, `map`, `fork`, `block`, `kernel_pages`, `calls`, `kicks`,
//!   `access`, `lazy`, `away`: what it can do.
//! * [`Setup`]: what it is built of. `stages`: CPUs that are not online. `calling`: what programs do with calls.
//! * `host_roots`: roots that are no space's: a second one of the kernel's, the trampoline on which CPUs start.
//! * `window`: roots that one CPU alone loads. `windowing`: what programs do with them. `top`: how they follow the shared root.
//! * `reach`: tracked spaces, and roots of one CPU's own there. `moves`: of pages and tables, within a space.
//! * `quiet`: CPUs in user mode that are left alone.
//! * `forgotten`: tickets that nobody waits for. `guarded`: guards, whose collections may be full. `second`: another engine on the same CPUs.
//! * `secondary`: who keeps translations besides CPUs: `device`s, and a `shadow` table. `reclaim`: one flush for many spaces.
//! * `guest`: virtual machines on nested page tables.
//! * [`Scenario`]: fixed stories. `flagged`: windows as they were published, which is unsound.
//! * `program`: what each CPU does, drawn from a seed. `threads`: tasks that any CPU may run.

mod access;
mod adversary;
mod away;
mod block;
mod calling;
mod calls;
mod control;
mod data;
mod device;
mod facts;
mod flagged;
mod forgotten;
mod fork;
mod frames;
mod giving_up;
mod guarded;
mod guest;
mod host_roots;
mod kernel_pages;
mod kicks;
mod layout;
mod lazy;
mod lines;
mod lock;
mod map;
mod moves;
mod physical;
mod program;
mod quiet;
mod reach;
mod reclaim;
mod scenario;
mod second;
mod secondary;
mod setup;
mod shadow;
mod sightings;
mod space;
mod stages;
mod theme;
mod threads;
mod tlb;
mod top;
mod walks;
mod window;
mod windowing;
mod world;

pub use adversary::{Adversary, Focused};
pub use guest::GuestShare;
pub use layout::{
    FRAMES, KERNEL_REGION, PAGES, PAGES_PER_TABLE, REGIONS, USER_PAGES, WINDOW_REGION,
};
pub use lock::{Held, Lock};
pub use physical::{Physical, Pte, SharedHardware};
pub use program::Plan;
pub use scenario::Scenario;
pub use setup::Setup;
pub use sightings::{Sight, Sightings};
pub use space::Space;
pub use tlb::{KernelPages, Leaf, PageFlush, Tlb};
pub use world::World;
