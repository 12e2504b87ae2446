//! Setting memory up: which physical memory is the heap, which is the frame table, and which is free.

use super::clear;
use super::frames::{self, Frame};
use super::heap;
use super::layout::{PAGE_SIZE, PhysAddr};
use crate::boot::BootInfo;
use crate::boot::fail::boot_fail;
use core::slice;
use core::sync::atomic::AtomicU32;

/// The heap takes an eighth of memory, but no more than this.
const HEAP_LIMIT: u64 = 32 << 20;
const HEAP_SHARE: u64 = 8;

/// Memory below is left to firmware and to the trampoline of the other CPUs.
const LOW_MEMORY_END: u64 = 1 << 20;

/// Usable memory, in whole pages.
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
}

/// Sets up heap and frame allocator. Called once, on the boot CPU, before the other CPUs start.
/// Ends the boot when there is too little memory.
pub fn init(info: &BootInfo) {
    select_break(info);
    let total: u64 = usable(info).map(|region| region.end - region.start).sum();
    let top = usable(info).map(|region| region.end).max().unwrap_or(0);
    let heap_bytes = (total / HEAP_SHARE).min(HEAP_LIMIT) & !(PAGE_SIZE as u64 - 1);
    let link_bytes = page_up(top / PAGE_SIZE as u64 * size_of::<AtomicU32>() as u64);
    let taken = heap_bytes + link_bytes;
    let home = usable(info).find(|region| region.end - region.start > taken);
    let Some(home) = home else {
        boot_fail!(
            "no {} KiB of memory in one piece for heap and frame table; give the machine more (-m 512M)",
            taken >> 10
        );
    };
    let heap = PhysAddr::new(home.start).to_direct();
    // SAFETY: usable memory that nobody else was given: it is cut off below.
    unsafe { heap::init(heap, heap_bytes as usize) };
    let links = frame_table(PhysAddr::new(home.start + heap_bytes), link_bytes as usize);
    let free = usable(info).map(|region| {
        let start = if region.start == home.start {
            region.start + taken
        } else {
            region.start
        };
        (frame_number(start), frame_number(region.end))
    });
    frames::init(free, links);
    if let Some(frame) = frames::alloc() {
        frames::free(calibrated(frame));
    }
    log::info!(
        "memory: {} MiB usable, heap {} MiB, {} frames free",
        total >> 20,
        heap_bytes >> 20,
        frames::free_count()
    );
}

/// Obeys `break=NAME` of the command line.
fn select_break(info: &BootInfo) {
    let Some(name) = info.option("break") else {
        return;
    };
    #[cfg(not(feature = "breaks"))]
    boot_fail!("break={name} needs a kernel built with `--features breaks`");
    #[cfg(feature = "breaks")]
    if super::invalidate::breaks::select(name) {
        log::warn!("deliberate break: {name}");
    } else {
        let known = super::invalidate::breaks::ALL.map(|(name, _)| name);
        boot_fail!("break={name} is not known: use one of {known:?}");
    }
}

/// Lets [`clear`] try its ways on a frame.
fn calibrated(frame: Frame) -> Frame {
    let page = frame.address().to_direct().cast::<clear::Page>();
    // SAFETY: the frame is owned here, in the direct map, and any words are valid.
    clear::calibrate(unsafe { &mut *page });
    frame
}

/// Usable regions above low memory, cut to whole pages.
fn usable(info: &BootInfo) -> impl Iterator<Item = Region> {
    info.memory
        .iter()
        .filter(|region| region.usable)
        .filter_map(|region| {
            let start = page_up(region.start.as_u64().max(LOW_MEMORY_END));
            let end = region.end.as_u64() & !(PAGE_SIZE as u64 - 1);
            (start < end).then_some(Region { start, end })
        })
}

/// Zeroed link words in the given memory.
fn frame_table(at: PhysAddr, bytes: usize) -> &'static [AtomicU32] {
    let table = at.to_direct().cast::<AtomicU32>();
    // SAFETY: usable memory in the direct map, which `init` takes away from everybody else.
    unsafe { table.write_bytes(0, bytes / size_of::<AtomicU32>()) };
    // SAFETY: just initialized, and never freed.
    unsafe { slice::from_raw_parts(table, bytes / size_of::<AtomicU32>()) }
}

fn page_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_SIZE as u64)
}

fn frame_number(address: u64) -> u32 {
    let number = address / PAGE_SIZE as u64;
    // 2^31 frames are 8 TiB; whatever lies above is not used, because the frame table needs the highest bit.
    u32::try_from(number).unwrap_or(u32::MAX).min(u32::MAX >> 1)
}
