//! The memory map: RAM less what is in use already.

use arrayvec::ArrayVec;

use super::fail::boot_fail;
use super::info::MemoryRegion;
use super::limits::MAX_REGIONS;
use super::physical;
use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::arch::paging::DIRECT_MAP_LIMIT;

/// Type of usable RAM in the memory map (as in E820).
const TYPE_RAM: u32 = 1;
/// Real mode data, firmware areas and the trampoline live below.
pub const LOW_MEMORY_END: u64 = 1 << 20;
/// What the boot page tables show.
const EARLY_LIMIT: u64 = 4 << 30;

const PAGE: u64 = PAGE_BYTES as u64;

/// Sorted pieces of RAM.
pub struct MemoryMap {
    regions: ArrayVec<MemoryRegion, MAX_REGIONS>,
}

/// RAM, unsorted, as the loader gave it: start and end.
pub type Ram = ArrayVec<(u64, u64), MAX_REGIONS>;

/// An entry of the loader's map, the same for PVH and Multiboot2.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = size_of::<Entry>() as u64;

/// The RAM of a map whose entries are at these physical addresses; None if one cannot be reached.
pub fn ram(entries: impl Iterator<Item = u64>) -> Option<Ram> {
    let mut ram = Ram::new();
    for at in entries {
        let entry = physical::read::<Entry>(at)?;
        let range = (entry.start, entry.start.saturating_add(entry.size));
        if entry.kind == TYPE_RAM && ram.try_push(range).is_err() {
            too_many();
        }
    }
    Some(ram)
}

/// Ends the boot: the map has more pieces than fit.
fn too_many() -> ! {
    boot_fail!("the memory map has more than {MAX_REGIONS} pieces; use simpler memory settings")
}

impl MemoryMap {
    /// The map of this RAM, without the first MiB.
    pub fn new(ram: &[(u64, u64)]) -> Self {
        let mut map = Self {
            regions: ArrayVec::new(),
        };
        for &(start, end) in ram {
            map.push(
                start.next_multiple_of(PAGE),
                (end & !(PAGE - 1)).min(DIRECT_MAP_LIMIT),
                true,
            );
        }
        map.regions.sort_unstable_by_key(|region| region.start);
        map.reserve(0, LOW_MEMORY_END);
        map
    }

    fn push(&mut self, start: u64, end: u64, usable: bool) {
        if start >= end {
            return;
        }
        let region = MemoryRegion {
            start: PhysAddr::new(start),
            end: PhysAddr::new(end),
            usable,
        };
        if self.regions.try_push(region).is_err() {
            too_many();
        }
    }

    /// Marks `start..end`, widened to whole pages, as in use.
    pub fn reserve(&mut self, start: u64, end: u64) {
        let from = start & !(PAGE - 1);
        let to = end.next_multiple_of(PAGE);
        let before = core::mem::take(&mut self.regions);
        for region in before {
            let (first, last) = (region.start.as_u64(), region.end.as_u64());
            let cut = (from.clamp(first, last), to.clamp(first, last));
            if !region.usable || cut.0 == cut.1 {
                self.push(first, last, region.usable);
                continue;
            }
            self.push(first, cut.0, true);
            self.push(cut.0, cut.1, false);
            self.push(cut.1, last, true);
        }
    }

    /// Takes `pages` contiguous frames that the boot page tables show.
    pub fn take_early(&mut self, pages: u64) -> PhysAddr {
        let bytes = pages * PAGE;
        let found = self.regions.iter().find(|region| {
            region.usable && region.start.as_u64() + bytes <= region.end.as_u64().min(EARLY_LIMIT)
        });
        let Some(start) = found.map(|region| region.start.as_u64()) else {
            boot_fail!(
                "no {} KiB of free memory for page tables and stacks; give the machine more (-m 512M)",
                bytes / 1024
            );
        };
        self.reserve(start, start + bytes);
        PhysAddr::new(start)
    }

    /// One past the last byte of RAM.
    pub fn end(&self) -> u64 {
        self.regions.last().map_or(0, |region| region.end.as_u64())
    }

    /// Free memory.
    pub fn usable_bytes(&self) -> u64 {
        let usable = self.regions.iter().filter(|region| region.usable);
        usable
            .map(|region| region.end.as_u64() - region.start.as_u64())
            .sum()
    }

    /// The pieces, for the rest of the kernel.
    pub fn into_regions(self) -> ArrayVec<MemoryRegion, MAX_REGIONS> {
        self.regions
    }
}
