//! What a PVH loader passes: Xen's `hvm_start_info` ("x86/HVM direct boot ABI"), as QEMU, Xen,
//! Firecracker and Cloud Hypervisor make it. All of it is data from outside, so every pointer is checked.

use core::ops::Range;

use super::fail::boot_fail;
use super::limits::CMDLINE_BYTES;
use super::memory::{self, Ram};
use super::physical;
use crate::console::Adapter;

const MAGIC: u32 = 0x336e_c578;
/// Version 1 added the memory map.
const VERSION_WITH_MEMORY_MAP: u32 = 1;

/// `struct hvm_start_info`.
#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    cmdline: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// `struct hvm_modlist_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    start: u64,
    size: u64,
    cmdline: u64,
    reserved: u64,
}

/// The parts of it that the kernel uses, checked.
pub struct Loader {
    /// Command line, still in the loader's memory.
    pub cmdline: &'static str,
    /// The first module.
    pub initramfs: &'static [u8],
    /// Physical address of the ACPI root pointer; 0 if the loader has none.
    pub rsdp: u64,
    /// RAM.
    pub ram: Ram,
    /// The display adapter, if the loader left one that the console knows.
    pub screen: Option<Adapter>,
}

impl Loader {
    /// Where the pixels of the screen are; empty without any.
    pub fn pixels(&self) -> Range<u64> {
        match self.screen {
            Some(Adapter::Pixels(pixels)) => pixels.range(),
            _ => 0..0,
        }
    }

    /// Whether the boot page tables show the screen, so that it is not dark until there are others.
    pub fn has_early_screen(&self) -> bool {
        self.pixels().end <= physical::LIMIT
    }
}

/// Reads the loader's data at physical address `at`. Boot page tables are loaded.
pub fn read(at: u64) -> Loader {
    let Some(info) = physical::read::<StartInfo>(at) else {
        boot_fail!("the start info at {at:#x} cannot be reached; boot by PVH below 4 GiB");
    };
    if info.magic != MAGIC {
        boot_fail!(
            "no PVH start info; boot this image with qemu -kernel and a command line (-append) \
             below {CMDLINE_BYTES} bytes"
        );
    }
    if info.version < VERSION_WITH_MEMORY_MAP || info.memory_map_entries == 0 {
        boot_fail!("the loader gives no memory map; use QEMU 4.0 or newer");
    }
    Loader {
        cmdline: cmdline(info.cmdline),
        initramfs: initramfs(&info),
        rsdp: info.rsdp,
        ram: ram(&info),
        screen: None,
    }
}

/// The command line, a string at physical address `at`, or none at 0.
pub(super) fn cmdline(at: u64) -> &'static str {
    if at == 0 {
        return "";
    }
    let bytes = (0..CMDLINE_BYTES).find_map(|len| match physical::read::<u8>(at + len as u64) {
        Some(0) => Some(physical::bytes(at, len)),
        Some(_) => None,
        None => Some(None),
    });
    let Some(Some(bytes)) = bytes else {
        boot_fail!("the command line is longer than {CMDLINE_BYTES} bytes; shorten -append");
    };
    match core::str::from_utf8(bytes) {
        Ok(line) => line,
        Err(error) => boot_fail!(
            "the command line is not UTF-8 from byte {}; correct -append",
            error.valid_up_to()
        ),
    }
}

fn initramfs(info: &StartInfo) -> &'static [u8] {
    const REMEDY: &str = "pass one with -initrd (./lab run makes one)";
    if info.module_count == 0 {
        boot_fail!("no initramfs; {REMEDY}");
    }
    let Some(module) = physical::read::<Module>(info.modules) else {
        boot_fail!("the module list cannot be reached; {REMEDY}");
    };
    if module.size == 0 {
        boot_fail!("the initramfs is empty; {REMEDY}");
    }
    match physical::bytes(module.start, module.size as usize) {
        Some(bytes) => bytes,
        None => boot_fail!(
            "the initramfs at {:#x} reaches beyond 4 GiB; give the machine less memory or a smaller image",
            module.start
        ),
    }
}

fn ram(info: &StartInfo) -> Ram {
    let entries = 0..u64::from(info.memory_map_entries);
    let places = entries.map(|index| info.memory_map.saturating_add(index * memory::ENTRY_BYTES));
    match memory::ram(places) {
        Some(ram) => ram,
        None => boot_fail!("the memory map cannot be reached; boot by PVH below 4 GiB"),
    }
}
