//! Workload T2: clients lend pages to a server, which copies them.
//!
//! The server is a process with a thread on each CPU, the client another with a thread on each. A client writes a number that
//! was never there before into its pages, lends them to the server of its CPU, and compares the answer, which is made of the server's
//! copy. Buffers alternate, so a translation that was kept from an earlier call leads to an older number.
//!
//! What differs from row to row is the kernel's policy and how pages are mapped: in a window that only the server's CPU can reach
//! (`best`), or where all threads of the server can (`before`, and every name that ends in `+ordinary`). There is a server
//! process for each. Rows alternate in short slices, as in [`madvise`](crate::madvise). Only the reference kernel has such servers.
//!
//! * [`abi`] and [`device`]: the kernel's side, and calls of it, which tests use, too;
//! * [`jobs`]: a server process for tests;
//! * [`contender`]: what the name of a row means;
//! * [`server`]: the processes that copy; [`client`]: one call;
//! * [`mod@bench`]: options, and what differs from other [courses](crate::course).

#[path = "../../../kernel/src/zerocopy/abi.rs"]
pub mod abi;
pub mod bench;
pub mod client;
pub mod contender;
pub mod device;
pub mod jobs;
pub mod server;

pub use bench::Zerocopy;
