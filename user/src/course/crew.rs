//! Threads, each on its CPU, that all do the same work; the first one is measured.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::bench::{Slice, Turn};
use super::row::Sample;
use crate::clock;
use crate::machine;

/// Operations before the first recorded one: they bring the code and the policy just selected back into the caches.
const SETTLING_OPERATIONS: usize = 4;

/// What all threads do.
pub trait Work: Sync {
    /// What each has of its own.
    type Seat;

    /// The seat of thread `index`.
    fn seat(&self, index: usize, seed: u64) -> io::Result<Self::Seat>;

    /// One operation, and its times.
    fn operate(&self, seat: &mut Self::Seat) -> io::Result<Sample>;
}

/// All threads.
#[derive(Debug)]
pub struct Crew<'a, W> {
    /// What they do.
    pub work: &'a W,
    /// The CPUs of the threads beside the measuring one.
    pub cpus: &'a [usize],
}

/// Alone on its cache lines: all threads look at it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    stop: AtomicBool,
    failed: AtomicBool,
    ready: AtomicU64,
    operations: AtomicU64,
}

impl<W: Work> Crew<'_, W> {
    /// All threads operate until the turn's time is over or its samples are full; `around` is called before and after the
    /// measured time, while the others work.
    pub fn run(&self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let shared = Shared::default();
        thread::scope(|scope| {
            for (index, &cpu) in self.cpus.iter().enumerate() {
                let shared = &shared;
                let seed = turn.seed;
                scope.spawn(move || self.assist(shared, cpu, (index + 1, seed)));
            }
            let slice = self.lead(&shared, turn, around);
            shared.stop.store(true, Ordering::Relaxed);
            slice
        })
        .and_then(|slice| {
            if shared.failed.load(Ordering::Relaxed) {
                return Err(io::Error::other("another thread's call failed"));
            }
            Ok(slice)
        })
    }

    fn lead(&self, shared: &Shared, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let mut seat = self.work.seat(0, turn.seed)?;
        for _ in 0..SETTLING_OPERATIONS {
            self.work.operate(&mut seat)?;
        }
        // ORDERING: pairs with the increment in `assist`.
        while shared.ready.load(Ordering::Acquire) < self.cpus.len() as u64 {
            thread::yield_now();
        }
        around();
        let others = shared.operations.load(Ordering::Relaxed);
        let begun = clock::ticks();
        let end = begun.wrapping_add(turn.ticks);
        let mut taken = 0;
        for sample in turn.samples.iter_mut() {
            *sample = self.work.operate(&mut seat)?;
            taken += 1;
            if clock::ticks() >= end {
                break;
            }
        }
        let others = shared.operations.load(Ordering::Relaxed) - others;
        let ticks = clock::ticks().wrapping_sub(begun);
        around();
        Ok(Slice {
            samples: taken,
            operations: others + taken as u64,
            ticks,
            wrong: 0,
        })
    }

    fn assist(&self, shared: &Shared, cpu: usize, (index, seed): (usize, u64)) {
        let seat = machine::pin_to(cpu).and_then(|()| self.work.seat(index, seed + index as u64));
        // ORDERING: pairs with the load in `lead`.
        shared.ready.fetch_add(1, Ordering::Release);
        let is_well = seat.and_then(|mut seat| {
            while !shared.stop.load(Ordering::Relaxed) {
                self.work.operate(&mut seat)?;
                shared.operations.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        if is_well.is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation takes as long as its number.
    struct Counting;

    impl Work for Counting {
        type Seat = u32;

        fn seat(&self, _: usize, _: u64) -> io::Result<u32> {
            Ok(0)
        }

        fn operate(&self, seat: &mut u32) -> io::Result<Sample> {
            *seat += 1;
            Ok(Sample {
                whole: *seat,
                call: 0,
            })
        }
    }

    fn turn(ticks: u64, samples: &mut [Sample]) -> Turn<'_> {
        Turn {
            row: "",
            length: std::time::Duration::ZERO,
            ticks,
            seed: 1,
            is_recorded: true,
            samples,
        }
    }

    #[test]
    fn a_slice_ends_with_its_buffer_or_its_time() {
        let cpus = machine::allowed_cpus().unwrap();
        let crew = Crew {
            work: &Counting,
            cpus: &cpus[1..cpus.len().min(2)],
        };
        let mut samples = [Sample::default(); 5];
        let mut calls = 0;
        let slice = crew.run(turn(u64::MAX / 2, &mut samples), &mut || calls += 1);
        let slice = slice.unwrap();
        assert_eq!((slice.samples, calls), (5, 2));
        assert!(slice.operations >= 5);
        let settled = SETTLING_OPERATIONS as u32;
        let own = samples.map(|sample| sample.whole - settled);
        assert_eq!(own, [1, 2, 3, 4, 5]);
        let at_once = crew.run(turn(0, &mut samples), &mut || ());
        assert_eq!(at_once.unwrap().samples, 1);
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_is_an_error() {
        let crew = Crew {
            work: &Counting,
            cpus: &[usize::MAX],
        };
        let mut samples = [Sample::default()];
        assert!(crew.run(turn(0, &mut samples), &mut || ()).is_err());
    }
}
