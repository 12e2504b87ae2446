//! Memory that the measuring process shares with the load: who shall run, who does, and what was found.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use crate::region::{PAGE_WORDS, Region};

/// Whom a nap keeps waiting at most: whoever opens or closes the gate.
const NAP: Duration = Duration::from_millis(1);
/// Words between those of two threads: a pair of cache lines.
const STRIDE: usize = 16;
const LINES_PER_PAGE: usize = PAGE_WORDS / STRIDE;
/// The most threads of a load: each has a line of its own after the gate's, on four pages.
pub const MAX_THREADS: usize = 4 * LINES_PER_PAGE - 1;

/// A thread's words.
const OPERATIONS: usize = 1;
const READS: usize = 2;
const WRONG: usize = 3;
const ERROR: usize = 4;
const PARKED: usize = 5;
const KEPT: usize = 6;

/// The gate's states.
const SHUT: u64 = 0;
const OPEN: u64 = 1;
const OVER: u64 = 2;

/// What the load shall do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Rest.
    Shut,
    /// Work.
    Open,
    /// End.
    Over,
}

/// The shared memory.
#[derive(Debug)]
pub struct Board {
    region: Region,
    threads: usize,
}

/// What a load has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rounds of mapping and unmapping, over all workers.
    pub operations: u64,
    /// Reads of another worker's pages that were judged.
    pub reads: u64,
    /// Reads that saw what they must not.
    pub wrong: u64,
    /// Times that interrupts were kept off.
    pub kept: u64,
}

impl Board {
    /// For a load of `threads` threads; the gate is shut.
    pub fn new(threads: usize) -> io::Result<Self> {
        let fits = threads <= MAX_THREADS;
        assert!(fits, "a board has room for {MAX_THREADS} threads");
        Ok(Self {
            region: Region::shared((1 + threads).div_ceil(LINES_PER_PAGE))?,
            threads,
        })
    }

    /// What the load shall do now.
    pub fn gate(&self) -> Gate {
        // ORDERING: what was done before the gate moved is seen by whoever sees it moved; pairs with `set`.
        match self.word(0, 0).load(Acquire) {
            OPEN => Gate::Open,
            OVER => Gate::Over,
            _ => Gate::Shut,
        }
    }

    /// Opens or shuts the gate.
    pub fn set(&self, gate: Gate) {
        let bits = match gate {
            Gate::Shut => SHUT,
            Gate::Open => OPEN,
            Gate::Over => OVER,
        };
        // ORDERING: publishes what was done before; pairs with `gate`.
        self.word(0, 0).store(bits, Release);
    }

    /// Lets `thread` rest while the gate is shut; whether it is to go on then.
    pub fn pass(&self, thread: usize) -> bool {
        loop {
            match self.gate() {
                Gate::Open => return true,
                Gate::Over => return false,
                // Again afterwards: it may have been open for less than a nap.
                Gate::Shut => self.rest(thread),
            }
        }
    }

    fn rest(&self, thread: usize) {
        // ORDERING: publishes what this thread did; pairs with `is_quiet`.
        self.line(thread, PARKED).store(1, Release);
        while self.gate() == Gate::Shut {
            std::thread::sleep(NAP);
        }
        self.line(thread, PARKED).store(0, Relaxed);
    }

    /// Whether all threads rest.
    pub fn is_quiet(&self) -> bool {
        // ORDERING: pairs with `pass`.
        (0..self.threads).all(|thread| self.line(thread, PARKED).load(Acquire) == 1)
    }

    /// Notes that `thread` has finished a round.
    pub fn add(&self, thread: usize, tally: Tally) {
        let Tally {
            operations,
            reads,
            wrong,
            kept,
        } = tally;
        self.line(thread, OPERATIONS).fetch_add(operations, Relaxed);
        self.line(thread, READS).fetch_add(reads, Relaxed);
        self.line(thread, WRONG).fetch_add(wrong, Relaxed);
        self.line(thread, KEPT).fetch_add(kept, Relaxed);
    }

    /// Notes that a call of `thread` failed: the run will not count.
    pub fn fail(&self, thread: usize, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        self.line(thread, ERROR).store(code as u64, Relaxed);
    }

    /// What all threads have done.
    pub fn tally(&self) -> Tally {
        let sum = |word: usize| -> u64 {
            let words = (0..self.threads).map(|thread| self.line(thread, word).load(Relaxed));
            words.sum()
        };
        Tally {
            operations: sum(OPERATIONS),
            reads: sum(READS),
            wrong: sum(WRONG),
            kept: sum(KEPT),
        }
    }

    /// The first call that failed.
    pub fn error(&self) -> Option<io::Error> {
        let codes = (0..self.threads).map(|thread| self.line(thread, ERROR).load(Relaxed));
        let code = codes.into_iter().find(|&code| code != 0)?;
        Some(io::Error::from_raw_os_error(code as i32))
    }

    fn line(&self, thread: usize, word: usize) -> &AtomicU64 {
        self.word(1 + thread, word)
    }

    fn word(&self, line: usize, word: usize) -> &AtomicU64 {
        let (page, line) = (line / LINES_PER_PAGE, line % LINES_PER_PAGE);
        self.region.word(page, line * STRIDE + word)
    }
}

impl Tally {
    /// Adds what else was done.
    pub fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.reads += other.reads;
        self.wrong += other.wrong;
        self.kept += other.kept;
    }

    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            operations: self.operations - earlier.operations,
            reads: self.reads - earlier.reads,
            wrong: self.wrong - earlier.wrong,
            kept: self.kept - earlier.kept,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_work_only_while_the_gate_is_open() {
        let board = Board::new(2).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let board = &board;
                let one = Tally {
                    operations: 1,
                    ..Tally::default()
                };
                scope.spawn(move || {
                    while board.pass(thread) {
                        board.add(thread, one);
                    }
                });
            }
            let until_quiet = || {
                while !board.is_quiet() {
                    std::thread::yield_now();
                }
            };
            until_quiet();
            assert_eq!(board.tally().operations, 0);
            board.set(Gate::Open);
            while board.tally().operations < 10 {
                std::thread::yield_now();
            }
            board.set(Gate::Shut);
            until_quiet();
            let before = board.tally();
            std::thread::sleep(2 * NAP);
            assert_eq!(board.tally().since(before), Tally::default());
            board.set(Gate::Over);
        });
    }

    #[test]
    fn a_gate_that_is_open_for_a_moment_ends_nobody() {
        const ROUNDS: u64 = 20;
        let board = Board::new(1).unwrap();
        let one = Tally {
            operations: 1,
            ..Tally::default()
        };
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                while board.pass(0) {
                    board.add(0, one);
                    // Only those rests count that end while the gate moves.
                    std::thread::sleep(NAP / 10);
                }
            });
            // Open as long as shut: a look finds either.
            let mut gates = [Gate::Open, Gate::Shut].into_iter().cycle();
            while board.tally().operations < ROUNDS && !worker.is_finished() {
                board.set(gates.next().expect("a cycle has no end"));
            }
            let is_over = worker.is_finished();
            board.set(Gate::Over);
            assert!(!is_over, "it left before the end");
        });
    }

    #[test]
    fn failures_are_kept() {
        let board = Board::new(3).unwrap();
        assert!(board.error().is_none());
        board.fail(2, &io::Error::from_raw_os_error(libc::ENOMEM));
        assert_eq!(board.error().unwrap().raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn each_of_the_most_threads_has_a_line_of_its_own() {
        let board = Board::new(MAX_THREADS).unwrap();
        for thread in 0..MAX_THREADS {
            let operations = thread as u64;
            board.add(
                thread,
                Tally {
                    operations,
                    ..Tally::default()
                },
            );
        }
        let each = |thread| board.line(thread, OPERATIONS).load(Relaxed);
        assert!((0..MAX_THREADS).all(|thread| each(thread) == thread as u64));
        assert_eq!(board.gate(), Gate::Shut);
    }
}
