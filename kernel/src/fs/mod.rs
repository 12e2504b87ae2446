//! Files: console, initramfs, devices, pseudo files, pipes, event counters, virtual machines, and files in memory.
//!
//! The tree is fixed: what the initramfs holds, plus a table of devices and pseudo files. Only in `/tmp` can files
//! be made and removed; they live in memory and can be mapped (`mm::file`).
//!
//! It may not know system calls, torture or benches.

mod attributes;
mod console;
mod device;
mod directory;
mod epoll;
mod eventfd;
mod file;
mod irqoff;
mod machine;
mod node;
mod open;
mod pipe;
mod pseudo;
mod regular;
mod table;
mod timerfd;
mod tmp;
mod transfer;
mod tree;
mod vm_file;

pub use attributes::{Attributes, Kind};
pub use epoll::{EpollEvent, new_epoll};
pub use eventfd::{Reading, new_event};
pub use file::{OpenFile, Whence};
pub use open::{OpenRequest, executable, open, remove, set_size};
pub use pipe::new_pipe;
pub use pseudo::{CALLS, CPU_COMMAND, Calls};
pub use regular::Mappable;
pub use table::{CloseOnExec, FdTable, MAX_FILES};
pub use timerfd::new_timer;
pub use tmp::new_memory_file;
pub use tree::{attributes, join, normalise, read_link};
pub use vm_file::new_vm_file;
