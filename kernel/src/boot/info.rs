//! What the boot loader left for the rest of the kernel.

use crate::addr::PhysAddr;

/// One piece of the memory map, page aligned. Regions are sorted and do not overlap.
#[derive(Clone, Copy, Debug)]
pub struct MemoryRegion {
    /// First byte.
    pub start: PhysAddr,
    /// One past the last byte.
    pub end: PhysAddr,
    /// Free RAM: the kernel image, the initramfs, boot data and the first MiB are left out.
    pub usable: bool,
}

/// Facts from boot time; never change.
#[derive(Debug)]
pub struct BootInfo {
    /// The kernel command line.
    pub cmdline: &'static str,
    /// The initramfs, a newc cpio archive. Never empty.
    pub initramfs: &'static [u8],
    /// The physical memory map.
    pub memory: &'static [MemoryRegion],
    /// Number of CPUs that the kernel uses: 1..=MAX_CPUS, numbered from 0 without gaps.
    pub cpus: usize,
}

impl BootInfo {
    /// The value of `name=value` on the command line before ` -- `, the last one if repeated.
    pub fn option(&self, name: &str) -> Option<&'static str> {
        let own = self.cmdline.split(" -- ").next().unwrap_or("");
        own.split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .last()
    }
}

/// The boot information. Any context, from `mm::init` on.
pub fn info() -> &'static BootInfo {
    todo!()
}
