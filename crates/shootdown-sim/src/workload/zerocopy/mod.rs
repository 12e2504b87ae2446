//! Table T2: threads hand pages to a server that works on each from a thread of its own on the same CPU.
//!
//! One operation: the client calls, the kernel enters a page of its into the window of this CPU's server, switches to the
//! server, which copies the page, takes the page out again and makes the TLBs forget it, and switches back. What differs is
//! who has to forget it. [`Mapping`] says how the page is mapped, and so who that is:
//!
//! * [`Mapping`]: three systems on one engine; [`Zerocopy`]: one row; [`Served`]: what it measured;
//! * `world`: address spaces, windows, what is counted; `program`: what a CPU does;
//! * `shared`: what the published system's clients share besides page tables, which can be left out.
//!
//! Every access to a window checks that it found the page of its own operation.

mod program;
mod row;
mod served;
mod shared;
mod world;

pub use row::{Mapping, Zerocopy};
pub use served::{PUBLISHED_ZEROCOPY, PublishedZerocopy, Served};
