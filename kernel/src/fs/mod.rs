//! Files: console, initramfs, devices, pseudo files, pipes, event counters, virtual machines, and files in memory.
//!
//! The tree of names is in memory, and begins with what the initramfs holds, devices and pseudo files. Programs change it as they like, but for
//! the pseudo files. The bytes of files are in memory, too, and can be mapped (`mm::file`).
//!
//! It may not know system calls, torture or benches.

mod attributes;
mod console;
mod device;
mod directory;
mod epoll;
mod eventfd;
mod file;
mod inode;
mod irqoff;
mod machine;
mod node;
mod open;
mod path;
mod pipe;
mod pseudo;
pub mod record_locks;
mod regular;
mod table;
mod timerfd;
mod transfer;
mod tree;
mod vm_file;

pub use attributes::Attributes;
pub use epoll::{EpollEvent, new_epoll};
pub use eventfd::{Reading, new_event};
pub use file::{OpenFile, Whence};
pub use inode::Inode;
pub use open::{OpenRequest, executable, new_memory_file, open, set_size};
pub use path::{LastLink, Path};
pub use pipe::new_pipe;
pub use pseudo::{CALLS, CPU_COMMAND, Calls};
pub use regular::Mappable;
pub use table::{CloseOnExec, FdTable, MAX_FILES};
pub use timerfd::new_timer;
pub use tree::{
    NewName, add_name, attributes, find_directory, inode, make, make_directory, make_link, path_of,
    read_link, remove, remove_directory, rename, root,
};
pub use vm_file::new_vm_file;
