//! `/dev/zerocopy`: servers in user mode that work on their clients' pages, without a copy and without a turn in a run queue.
//!
//! A service has at most one server a CPU: a thread pinned there. A client calls the server of the CPU it runs on with a
//! buffer; the kernel holds the buffer's pages, maps them where the server can reach them, and switches directly to the
//! server; when that waits for the next request, the pages are unmapped and the CPU goes directly back to the client.
//!
//! | file | what |
//! |---|---|
//! | `abi` | the requests and their arguments, shared with the programs |
//! | `service`, `server` | an open device with a place for each CPU; the thread that serves there |
//! | `exchange` | the one request between a server and its clients, who take turns |
//! | `register`, `call`, `wait`, `leave` | the three requests, and all the ways of ceasing to be a server |
//! | `place` | where buffers are mapped: a window or ordinary memory |
//! | `nesting` | servers that call servers, and the circles they must not close |
//!
//! # What is defined
//!
//! * The server of the CPU where a call takes its turn answers it, wherever the client wakes up meanwhile. Clients of one
//!   server take turns in the order of their coming, more urgent ones first. ENXIO: there is no server.
//! * The server has the pages that the buffer had when the call began, as with Linux's `get_user_pages`. Whatever replaces a
//!   page of the client meanwhile (`munmap`, `mremap`, a copy on write after a fork) does not replace the server's. Pages
//!   that a file counts cannot be lent for writing (EFAULT): a sync could not take the right away.
//! * A buffer stays mapped up to the server's next [`abi::WAIT`], also when its client is killed: the pages are held until
//!   then. Beyond its pages, and for writes to one that is only lent for reading, the server gets SIGSEGV.
//! * A server is one until its thread ends or calls `execve`, its CPU goes offline, or the service ends with its last
//!   descriptor. Whoever calls then gets EPIPE, and ENXIO from then on. A thread in [`abi::WAIT`] gets ESHUTDOWN when another
//!   cause than itself ends it; one that serves finds the buffer unmapped (SIGSEGV), and EPERM when it waits again.
//! * While it is a server a thread keeps its CPU: `sched_setaffinity` says EBUSY. A thread serves one service, else EBUSY.
//! * A server may call others. A call that would wait for itself, over any number of servers, says EDEADLK.
//! * A forked process has the service but neither servers nor windows.
//!
//! Every page is unmapped by the server's own thread, or, of a CPU that goes offline, by that CPU.
//!
//! It may not know files or system calls: `fs` makes a service of an open device.

pub mod abi;
mod call;
mod exchange;
mod leave;
mod nesting;
mod place;
mod register;
mod request;
mod server;
mod service;
mod wait;

pub use leave::{cpu_leaves, cpu_left, leave, look};
pub use register::set_affinity;
pub use request::request;
pub use server::Link;
pub use service::{Service, ServiceHandle};
