//! The initial file system: a [`Tree`] of files, as one newc cpio archive that both kernels unpack.

mod archive;
mod pack;
mod tree;

pub use archive::{read, write};
pub use pack::{add_devices, pack, program_path};
pub use tree::{Misplaced, Node, Tree};
