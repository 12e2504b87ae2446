//! Pages that one CPU uses while another takes them away, and gives their frames a new content.
//!
//! The first page is read, the second written, the others are there. A read that finds what the frame got after it was freed has used a stale translation; so has a
//! store that changes a freed frame.

use core::ptr::{read_volatile, write_volatile};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use axalloc::GlobalPage;
use memory_addr::{PAGE_SIZE_4K, VirtAddr};
use shootdown::{FlushScope, FreedTables};

use crate::memory::{self, Flusher, Pages};
use crate::platform::SHOOTDOWN;
use crate::{clock, threads};

/// One more than ArceOS flushes one by one. On AArch64 it does that by broadcast, and drops what the running CPU alone has cached for more pages.
const PAGES: usize = 33;
/// The new content of a freed frame; no user of the pages writes it.
const FREED: u64 = 0xf4ee_d000_0000_0000;
/// How long a frame has its new content before it is used again.
const PAUSE_NS: u64 = 100_000;

/// Where the pages are, while there are some.
static START: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicBool = AtomicBool::new(false);
static READS: AtomicU64 = AtomicU64::new(0);
static STALE_READS: AtomicU64 = AtomicU64::new(0);

/// What a run has found.
#[derive(Debug, Default)]
pub struct Found {
    pub changes: u64,
    pub reads: u64,
    pub stale_reads: u64,
    pub late_writes: u64,
}

impl Found {
    /// Whether a stale translation was used.
    pub fn is_bad(&self) -> bool {
        self.stale_reads + self.late_writes > 0
    }
}

/// Whether a page at `address` comes back.
pub fn owns(address: VirtAddr) -> bool {
    let start = START.load(Ordering::Relaxed);
    start != 0 && (start..start + PAGES * PAGE_SIZE_4K).contains(&address.as_usize())
}

/// CPU 1 uses the pages, CPU 0 changes them as `flusher` does, for so long.
pub fn run(flusher: Flusher, seconds: u64) -> Found {
    let mut sets = [memory::frames(PAGES), memory::frames(PAGES)];
    let pages = Pages::new(PAGES, memory::address_of(&sets[0]));
    START.store(pages.start.as_usize(), Ordering::Relaxed);
    READS.store(0, Ordering::Relaxed);
    STALE_READS.store(0, Ordering::Relaxed);
    RUNNING.store(true, Ordering::Relaxed);
    let start = pages.start.as_usize();
    let user = threads::spawn_on(1, move || use_pages(start));
    let mut found = Found::default();
    let begin = clock::now_ns();
    while clock::now_ns() - begin < seconds * 1_000_000_000 {
        sets.swap(0, 1);
        found.late_writes += change(&pages, &sets, flusher, found.changes);
        found.changes += 1;
    }
    RUNNING.store(false, Ordering::Relaxed);
    user.join().expect("threads do not fail");
    pages.unmap(Flusher::Engine);
    START.store(0, Ordering::Relaxed);
    SHOOTDOWN.flush(FlushScope::Kernel, pages.range(), FreedTables::No);
    found.reads = READS.load(Ordering::Relaxed);
    found.stale_reads = STALE_READS.load(Ordering::Relaxed);
    found
}

/// Reads the first page and writes the second, until the time is over.
fn use_pages(start: usize) {
    let (read, written) = (start as *const u64, (start + PAGE_SIZE_4K) as *mut u64);
    let (mut reads, mut stale) = (0, 0);
    while RUNNING.load(Ordering::Relaxed) {
        // SAFETY: mapped, or it comes back: the handler of page faults tries again.
        stale += u64::from(unsafe { read_volatile(read) } == FREED);
        reads += 1;
        // SAFETY: the same, and there is only this thread's word.
        unsafe { write_volatile(written, reads) };
    }
    READS.store(reads, Ordering::Relaxed);
    STALE_READS.store(stale, Ordering::Relaxed);
}

/// One change; the pages are in `sets[1]`, and then in `sets[0]`. Returns how many stores came too late.
fn change(pages: &Pages, sets: &[GlobalPage; 2], flusher: Flusher, number: u64) -> u64 {
    let [new, old] = sets;
    set_words(new, 0);
    let new = memory::address_of(new);
    match number % 3 {
        0 => {
            pages.unmap(flusher);
            let late = count_late(old, 0);
            pages.map(new);
            late
        }
        1 => {
            pages.remap(new, flusher);
            count_late(old, 0)
        }
        _ => {
            pages.protect(false, flusher);
            let late = count_late(old, 1);
            pages.protect(true, flusher);
            pages.remap(new, flusher);
            late + count_late(old, 0)
        }
    }
}

/// Gives the frames from number `first` on a new content, and looks a little later whether they still have it.
fn count_late(frames: &GlobalPage, first: usize) -> u64 {
    (first..PAGES).for_each(|frame| set_word(frames, frame, FREED));
    clock::spin_ns(PAUSE_NS);
    u64::from(word(frames, 1) != FREED)
}

fn set_words(frames: &GlobalPage, value: u64) {
    (0..PAGES).for_each(|frame| set_word(frames, frame, value));
}

fn pointer(frames: &GlobalPage, frame: usize) -> *mut u64 {
    (frames.start_vaddr().as_usize() + frame * PAGE_SIZE_4K) as *mut u64
}

fn set_word(frames: &GlobalPage, frame: usize, value: u64) {
    // SAFETY: a word of frames that this module has; others reach it through the pages, by volatile accesses.
    unsafe { write_volatile(pointer(frames, frame), value) };
}

fn word(frames: &GlobalPage, frame: usize) -> u64 {
    // SAFETY: as above.
    unsafe { read_volatile(pointer(frames, frame)) }
}
