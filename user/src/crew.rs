//! Threads, each on its CPU, that all do the same work; the first one is measured.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::clock;
use crate::machine;
use crate::madvise::slice::Sample;

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

/// What one slice found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Samples written, from the front of the buffer.
    pub samples: usize,
    /// Operations of all threads meanwhile.
    pub operations: u64,
    /// How long that was.
    pub ticks: u64,
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
    /// All threads operate for `ticks` ticks or until `samples` is full; `around` is called before and after the measured
    /// time, while the others work.
    pub fn run(
        &self,
        ticks: u64,
        seed: u64,
        samples: &mut [Sample],
        mut around: impl FnMut(),
    ) -> io::Result<Slice> {
        let shared = Shared::default();
        thread::scope(|scope| {
            for (index, &cpu) in self.cpus.iter().enumerate() {
                let shared = &shared;
                scope.spawn(move || self.assist(shared, cpu, (index + 1, seed)));
            }
            let slice = self.lead(&shared, ticks, seed, samples, &mut around);
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

    fn lead(
        &self,
        shared: &Shared,
        ticks: u64,
        seed: u64,
        samples: &mut [Sample],
        around: &mut impl FnMut(),
    ) -> io::Result<Slice> {
        let mut seat = self.work.seat(0, seed)?;
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
        let end = begun.wrapping_add(ticks);
        let mut taken = 0;
        for sample in samples.iter_mut() {
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

    #[test]
    fn a_slice_ends_with_its_buffer_or_its_time() {
        let cpus = machine::allowed_cpus().unwrap();
        let crew = Crew {
            work: &Counting,
            cpus: &cpus[1..cpus.len().min(2)],
        };
        let mut samples = [Sample::default(); 5];
        let mut calls = 0;
        let slice = crew.run(u64::MAX / 2, 1, &mut samples, || calls += 1);
        let slice = slice.unwrap();
        assert_eq!((slice.samples, calls), (5, 2));
        assert!(slice.operations >= 5);
        let settled = SETTLING_OPERATIONS as u32;
        assert_eq!(
            samples.map(|sample| sample.whole - settled),
            [1, 2, 3, 4, 5]
        );
        assert_eq!(crew.run(0, 1, &mut samples, || ()).unwrap().samples, 1);
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_is_an_error() {
        let crew = Crew {
            work: &Counting,
            cpus: &[usize::MAX],
        };
        assert!(crew.run(0, 1, &mut [Sample::default()], || ()).is_err());
    }
}
