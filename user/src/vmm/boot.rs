//! What a PVH loader leaves in memory: start info, memory map, command line, initial file system (Xen, "x86/HVM direct boot ABI").

use super::elf::{self, Loaded};
use super::memory::Memory;
use super::tables;
use crate::args::UsageError;
use crate::region::PAGE_BYTES;

const START_INFO: u64 = 0x1000;
const MEMORY_MAP: u64 = 0x1100;
const MODULES: u64 = 0x1200;
const COMMAND_LINE: u64 = 0x2000;
const COMMAND_LINE_BYTES: usize = 4096;

const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;
const RAM: u32 = 1;
const RESERVED: u32 = 2;
const LOW_END: u64 = 0x9_fc00;
const HIGH: u64 = 1 << 20;

/// What is to be booted.
#[derive(Debug)]
pub struct Image<'a> {
    /// The kernel's file.
    pub kernel: &'a [u8],
    /// The initial file system.
    pub initrd: &'a [u8],
    /// The command line.
    pub line: &'a str,
    /// How many CPUs it finds.
    pub cpus: u8,
}

/// Where the boot CPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// EIP.
    pub entry: u32,
    /// EBX.
    pub start_info: u32,
}

/// Fills the memory.
///
/// # Errors
/// Something does not fit, or the kernel is none.
pub fn fill(memory: &mut Memory, image: &Image<'_>) -> Result<Start, UsageError> {
    let Loaded { entry, end } = elf::load(image.kernel, memory).map_err(|cause| {
        UsageError::new(format!(
            "cannot boot the kernel: {cause}; --kernel takes an ELF file with a PVH entry, --memory-mib more memory"
        ))
    })?;
    let bytes = image.initrd.len() as u64;
    let initrd = memory.bytes().saturating_sub(bytes) & !(PAGE_BYTES as u64 - 1);
    if initrd < end || !memory.write(initrd, image.initrd) {
        return Err(UsageError::new(format!(
            "{} MiB have no room for kernel and initial file system; --memory-mib takes more",
            memory.bytes() >> 20
        )));
    }
    if image.line.len() >= COMMAND_LINE_BYTES || image.line.contains('\0') {
        return Err(UsageError::new(format!(
            "the guest's command line is not below {COMMAND_LINE_BYTES} bytes; shorten it"
        )));
    }
    let line = [image.line.as_bytes(), &[0]].concat();
    let parts = [
        (COMMAND_LINE, line),
        (MODULES, module(initrd, bytes)),
        (MEMORY_MAP, memory_map(memory.bytes())),
        (START_INFO, start_info()),
        (tables::PLACE, tables::all(image.cpus)),
    ];
    // The kernel is behind the first MiB, or `end` would be.
    let fit = parts.iter().all(|(at, bytes)| memory.write(*at, bytes));
    assert!(fit, "there are more than {HIGH} bytes");
    Ok(Start {
        entry,
        start_info: START_INFO as u32,
    })
}

fn start_info() -> Vec<u8> {
    let words = [MAGIC, VERSION, 0, 1].into_iter();
    let longs = [MODULES, COMMAND_LINE, tables::PLACE, MEMORY_MAP];
    let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    bytes.extend(longs.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend([3, 0].into_iter().flat_map(u32::to_le_bytes));
    bytes
}

fn module(start: u64, bytes: u64) -> Vec<u8> {
    let longs = [start, bytes, 0, 0];
    longs.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn memory_map(bytes: u64) -> Vec<u8> {
    let entry = |start: u64, bytes: u64, kind: u32| {
        let longs = [start, bytes, u64::from(kind)];
        longs.into_iter().flat_map(u64::to_le_bytes)
    };
    entry(0, LOW_END, RAM)
        .chain(entry(tables::PLACE, HIGH - tables::PLACE, RESERVED))
        .chain(entry(HIGH, bytes - HIGH, RAM))
        .collect()
}
