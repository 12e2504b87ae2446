//! Loading programs: the initramfs they come from, the ELF files they are, and the memory image and
//! stack that the Linux x86-64 ABI promises them.
//!
//! It may not know processes: whoever runs a program gives the space.

pub mod cpio;
pub mod elf;
pub mod error;
pub mod initramfs;
mod load;
mod script;
pub mod stack;

pub use load::{Arguments, UserEntry, load};
pub use script::Script;
