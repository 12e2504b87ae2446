//! Virtual machines: what to boot, on which emulator, under a deadline, and how it ended.

mod accel;
mod bochs;
mod boot;
mod child;
pub mod disc;
mod end;
mod fetch;
mod image_boot;
mod linux;
mod modules;
mod monitor;
mod nested;
mod qemu;
mod ramdisk;
mod screen;
pub mod symbols;

pub use accel::{Accel, AccelChoice, host_cores};
pub use bochs::{Bochs, BochsModel, INSTALL as BOCHS_INSTALL};
pub use boot::{Boot, Emulator, Finished, Kernel, MEMORY_MIB};
pub use child::{Child, answer};
pub use end::{End, signal_number};
pub use fetch::{HOW_TO_FETCH, fetch as fetch_linux};
pub use image_boot::ImageBoot;
pub use linux::{find as find_linux, version as linux_version};
pub use modules::Modules;
pub use nested::{Nested, VMM};
pub use qemu::{
    INSTALL as QEMU_INSTALL, QEMU_COMMAND, find as find_qemu, find_or_install,
    version as qemu_version,
};
pub use ramdisk::Ramdisk;
