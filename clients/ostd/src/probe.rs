//! Two pages that one CPU uses while another takes them away, and gives their frames a new content.
//!
//! The first page is read, the second written. A read that finds what the frame got after it was freed has used a stale translation; so has a
//! store that changes a freed frame.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ostd::mm::{Frame, PAGE_SIZE, PageFlags};
use shootdown::{FreedTables, Platform};
use spin::Once;

use crate::platform::SHOOTDOWN;
use crate::spaces::{self, BASE, Entry, Flusher, Space};
use crate::{cpus, machine};

const PAGES: usize = 2;
/// The new content of a freed frame; no user of the pages writes it.
const FREED: u64 = 0xf4ee_d000_0000_0000;
/// How long a frame has its new content before it is used again.
const PAUSE_NS: u64 = 100_000;

static SPACE: Once<&'static Space> = Once::new();
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

type Frames = [Frame<()>; PAGES];

/// CPU 1 uses the pages, CPU 0 changes them as `flusher` does, for so long.
pub fn run(flusher: Flusher, seconds: u64) -> Found {
    let mut sets: [Frames; 2] = core::array::from_fn(|_| core::array::from_fn(|_| spaces::frame()));
    let space = *SPACE.call_once(Space::new);
    sets[0].iter().for_each(|frame| spaces::write(frame, 0));
    space.map(BASE, &sets[0]);
    let entries: [Entry; PAGES] = core::array::from_fn(|page| space.entry(BASE + page * PAGE_SIZE));
    READS.store(0, Ordering::Relaxed);
    STALE_READS.store(0, Ordering::Relaxed);
    RUNNING.store(true, Ordering::Relaxed);
    cpus::begin(1, use_pages);
    spaces::enter(Some(space));
    let mut found = Found::default();
    let begin = now_ns();
    while now_ns() - begin < seconds * 1_000_000_000 {
        sets.swap(0, 1);
        found.late_writes += match flusher {
            Flusher::Stock => change_by_ostd(space, &sets, found.changes),
            Flusher::Engine => change_by_hand(space, &entries, &sets, found.changes),
        };
        found.changes += 1;
    }
    RUNNING.store(false, Ordering::Relaxed);
    cpus::end(1);
    // OSTD gets back what it takes to be there: it drops a use of each frame that it finds.
    if flusher == Flusher::Engine {
        let first = if found.changes.is_multiple_of(2) {
            0
        } else {
            1
        };
        (0..PAGES).for_each(|page| entries[page].set(Some(&sets[first][page])));
    }
    space.unmap(BASE, PAGES);
    spaces::enter(None);
    found.reads = READS.load(Ordering::Relaxed);
    found.stale_reads = STALE_READS.load(Ordering::Relaxed);
    found
}

fn now_ns() -> u64 {
    SHOOTDOWN.platform().now_ns()
}

/// Reads the first page and writes the second, until the time is over; both come back.
fn use_pages() {
    spaces::enter(SPACE.get().copied());
    let (mut reads, mut stale) = (0, 0);
    while RUNNING.load(Ordering::Relaxed) {
        if let Some(word) = machine::load(BASE) {
            stale += u64::from(word == FREED);
            reads += 1;
        }
        machine::store(BASE + PAGE_SIZE, reads);
    }
    READS.store(reads, Ordering::Relaxed);
    STALE_READS.store(stale, Ordering::Relaxed);
    spaces::enter(None);
}

/// One change by OSTD's cursor; the pages are in `sets[1]`, and then in `sets[0]`. Returns how many stores came too late.
fn change_by_ostd(space: &Space, sets: &[Frames; 2], number: u64) -> u64 {
    let [new, old] = sets;
    new.iter().for_each(|frame| spaces::write(frame, 0));
    let mut late = 0;
    if number % 2 == 1 {
        space.protect(BASE, PAGES, PageFlags::R);
        late += count_late(&old[1..]);
        space.protect(BASE, PAGES, PageFlags::RW);
    }
    space.unmap(BASE, PAGES);
    late += count_late(old);
    space.map(BASE, new);
    late
}

/// The same by hand, with the engine's flush.
fn change_by_hand(space: &Space, entries: &[Entry; PAGES], sets: &[Frames; 2], number: u64) -> u64 {
    let [new, old] = sets;
    new.iter().for_each(|frame| spaces::write(frame, 0));
    let flush = || {
        SHOOTDOWN.flush(
            space.engine(),
            spaces::flush_range(BASE, PAGES),
            FreedTables::No,
        )
    };
    let mut late = 0;
    if number % 2 == 1 {
        entries.iter().for_each(|entry| entry.protect(false));
        flush();
        late += count_late(&old[1..]);
        entries.iter().for_each(|entry| entry.protect(true));
        flush();
    }
    entries.iter().for_each(|entry| entry.set(None));
    flush();
    late += count_late(old);
    entries
        .iter()
        .zip(new)
        .for_each(|(entry, frame)| entry.set(Some(frame)));
    late
}

/// Gives frames that nobody may use any more a new content, and looks a little later whether the written one still has it.
fn count_late(frames: &[Frame<()>]) -> u64 {
    frames.iter().for_each(|frame| spaces::write(frame, FREED));
    let begin = now_ns();
    while now_ns() - begin < PAUSE_NS {
        core::hint::spin_loop();
    }
    let written = frames.last().expect("there are pages");
    u64::from(spaces::read(written) != FREED)
}
