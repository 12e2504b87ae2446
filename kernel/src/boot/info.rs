//! What the boot loader left for the rest of the kernel.

use arrayvec::{ArrayString, ArrayVec};
use spin::Once;

use super::limits::{CMDLINE_BYTES, MAX_REGIONS};
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
        option(self.cmdline, name)
    }

    /// All CPUs that the kernel uses, online or not, as the bits of a word.
    pub fn cpu_bits(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.cpus)
    }
}

static INFO: Once<BootInfo> = Once::new();
static REGIONS: Once<ArrayVec<MemoryRegion, MAX_REGIONS>> = Once::new();
static CMDLINE: Once<ArrayString<CMDLINE_BYTES>> = Once::new();

/// The boot information. Any context, from `mm::init` on.
///
/// # Panics
///
/// Before that.
pub fn info() -> &'static BootInfo {
    INFO.get()
        .expect("the boot information is read first thing")
}

/// The boot information, if it was read already: for a panic at any time.
pub fn try_info() -> Option<&'static BootInfo> {
    INFO.get()
}

/// Keeps a copy of the command line, out of memory that will be reused.
pub fn keep_cmdline(line: &str) -> &'static str {
    CMDLINE.call_once(|| ArrayString::from(line).expect("the loader's reader checked the length"))
}

/// Publishes the boot information. Once.
pub fn publish(
    cmdline: &'static str,
    initramfs: &'static [u8],
    regions: ArrayVec<MemoryRegion, MAX_REGIONS>,
    cpus: usize,
) -> &'static BootInfo {
    INFO.call_once(|| BootInfo {
        cmdline,
        initramfs,
        memory: REGIONS.call_once(|| regions),
        cpus,
    })
}

/// The value of `name=value` in `cmdline` before ` -- `, the last one if repeated.
pub fn option(cmdline: &'static str, name: &str) -> Option<&'static str> {
    let own = cmdline.split(" -- ").next().unwrap_or("");
    own.split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        .next_back()
}
