//! [`Operation`]: what each thread repeats.

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;
use crate::course::Sample;
use crate::course::crew::Work;
use crate::machine;
use crate::region::{PAGE_BYTES, Region};

/// What a thread repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Discards pages and writes to each: its own, and in so many of a hundred operations those that all threads read, once an operation each.
    Discard(u64),
    /// Maps pages, writes to each, unmaps them.
    Map,
    /// As an allocation of 1 MiB by glibc: maps that and a page, writes to some, unmaps all.
    Malloc,
    /// Starts a thread that writes to pages of its stack, and joins it.
    Stack,
    /// Maps pages, writes to each, hands them to the next thread, and unmaps those that it was handed.
    Freed,
}

/// Before anything counts, so often, but not for longer: a CPU has given up what it took by the way.
const WARM_UP: usize = 200;
const MOST_WARM_UP: Duration = Duration::from_millis(20);
const MALLOC_BYTES: usize = (1 << 20) + PAGE_BYTES;
const STACK_BYTES: usize = 256 << 10;
/// The most pages a thread writes to on its stack.
const STACK_PAGES: usize = 32;

impl Operation {
    /// Their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("discard", Self::Discard(0)),
        ("map", Self::Map),
        ("malloc", Self::Malloc),
        ("stack", Self::Stack),
        ("freed", Self::Freed),
        ("shared-1", Self::Discard(1)),
        ("shared-10", Self::Discard(10)),
        ("shared-100", Self::Discard(100)),
    ];
}

/// What all threads of a turn share.
#[derive(Debug)]
pub struct Job {
    operation: Operation,
    pages: usize,
    shared: Region,
    /// Where each finds what it is handed: an address, or 0.
    handed: Vec<Line<AtomicUsize>>,
    /// Pages that were not zero after their discard.
    wrong: AtomicU64,
}

/// A value alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

/// What each thread has.
#[derive(Debug)]
pub struct Seat {
    index: usize,
    own: Region,
    turn: u64,
}

impl Job {
    /// So many threads do `operation` with so many pages.
    pub fn new(operation: Operation, threads: usize, pages: usize) -> io::Result<Self> {
        Ok(Self {
            operation,
            pages,
            shared: Region::new(pages)?,
            handed: (0..threads).map(|_| Line::default()).collect(),
            wrong: AtomicU64::new(0),
        })
    }

    /// What went wrong.
    pub fn wrong(&self) -> u64 {
        self.wrong.load(Relaxed)
    }

    fn discard(&self, seat: &mut Seat, shared_of_100: u64) -> io::Result<()> {
        for page in 0..self.pages {
            self.shared.word(page, 0).load(Relaxed);
        }
        seat.turn += 1;
        // Spread evenly, and each thread at another time.
        let place = (seat.turn + 17 * seat.index as u64) * 37 % 100;
        if place < shared_of_100 {
            self.shared.discard(self.pages)?;
            (0..self.pages).for_each(|page| self.shared.word(page, 0).store(1, Relaxed));
            return Ok(());
        }
        seat.own.discard(self.pages)?;
        for page in 0..self.pages {
            seat.own.word(page, 0).store(1, Relaxed);
            let witness = seat.own.word(page, 1);
            if witness.load(Relaxed) != 0 {
                self.wrong.fetch_add(1, Relaxed);
            }
            witness.store(1, Relaxed);
        }
        Ok(())
    }

    /// Maps memory and writes to its first pages; where it is.
    fn map(&self, bytes: usize) -> io::Result<usize> {
        let base = machine::map(0, bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        for page in 0..self.pages {
            let word = std::ptr::with_exposed_provenance::<AtomicU64>(base + page * PAGE_BYTES);
            // SAFETY: mapped above, readable and writable, and unmapped by whoever it is handed to, later.
            unsafe { &*word }.store(1, Relaxed);
        }
        Ok(base)
    }

    fn work(&self, seat: &mut Seat) -> io::Result<()> {
        let bytes = self.pages * PAGE_BYTES;
        match self.operation {
            Operation::Discard(shared_of_100) => self.discard(seat, shared_of_100),
            Operation::Map => unmap(self.map(bytes)?, bytes),
            Operation::Malloc => unmap(self.map(MALLOC_BYTES.max(bytes))?, MALLOC_BYTES.max(bytes)),
            Operation::Stack => {
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                let pages = self.pages.min(STACK_PAGES);
                let run = builder.spawn(move || write_stack(pages))?;
                run.join()
                    .map_err(|_| io::Error::other("a thread has panicked"))
            }
            Operation::Freed => {
                let next = &self.handed[(seat.index + 1) % self.handed.len()].0;
                let base = self.map(bytes)?;
                // ORDERING: what was written is there for whoever takes it.
                let left = next.swap(base, AcqRel);
                // Whoever is slower finds the last one only; nothing is lost.
                let own = match left {
                    0 => self.handed[seat.index].0.swap(0, Acquire),
                    left => left,
                };
                if own == 0 { Ok(()) } else { unmap(own, bytes) }
            }
        }
    }
}

/// Writes to so many pages of the running thread's stack.
#[inline(never)]
fn write_stack(pages: usize) {
    let mut frame = [MaybeUninit::<u8>::uninit(); PAGE_BYTES];
    std::hint::black_box(&mut frame)[0].write(1);
    if pages > 1 {
        write_stack(pages - 1);
    }
    // Or the call above were a jump.
    std::hint::black_box(&frame);
}

fn unmap(base: usize, bytes: usize) -> io::Result<()> {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: what `map` has made; who has the address has it alone.
    machine::done(unsafe { libc::munmap(base, bytes) })
}

impl Work for Job {
    type Seat = Seat;

    fn seat(&self, index: usize, _: u64) -> io::Result<Seat> {
        let mut seat = Seat {
            index,
            own: Region::new(self.pages)?,
            turn: 0,
        };
        let begun = Instant::now();
        for _ in 0..WARM_UP {
            self.work(&mut seat)?;
            if begun.elapsed() > MOST_WARM_UP {
                break;
            }
        }
        Ok(seat)
    }

    fn operate(&self, seat: &mut Seat) -> io::Result<Sample> {
        let begun = clock::ticks();
        self.work(seat)?;
        Ok(Sample::of(clock::ticks().wrapping_sub(begun)))
    }
}
