//! Files: console, initramfs, devices, pseudo files, pipes and event counters.
//!
//! The tree is fixed: what the initramfs holds, plus a table of devices and pseudo files. Nothing
//! can be created, renamed or removed.

mod attributes;
mod budget;
mod console;
mod directory;
mod eventfd;
mod file;
mod machine;
mod node;
mod open;
mod pipe;
mod pseudo;
mod table;
mod transfer;
mod tree;

pub use attributes::{Attributes, Kind};
pub use eventfd::{Reading, new_event};
pub use file::{Mappable, OpenFile, Whence};
pub use open::{OpenRequest, executable, open};
pub use pipe::new_pipe;
pub use table::{CloseOnExec, FdTable, MAX_FILES};
pub use tree::{attributes, join, normalise, read_link};
