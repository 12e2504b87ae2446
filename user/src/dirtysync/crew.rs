//! The threads that write and sync beside the measuring one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::target::Target;
use crate::clock;
use crate::machine;
use crate::madvise::slice::Sample;

/// Operations before the first recorded one: they bring the code and the policy just selected back into the caches.
const SETTLING_OPERATIONS: usize = 4;

/// What all threads have.
#[derive(Debug, Clone, Copy)]
pub struct Crew<'a> {
    /// What they write to.
    pub target: &'a Target,
    /// Pages in each write.
    pub pages: usize,
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

impl Crew<'_> {
    /// All threads operate for `ticks` ticks or until `samples` is full; `around` is called before and after the measured
    /// time, while the others work.
    pub fn run(
        self,
        ticks: u64,
        seed: u64,
        samples: &mut [Sample],
        mut around: impl FnMut(),
    ) -> io::Result<Slice> {
        let shared = Shared::default();
        thread::scope(|scope| {
            for (index, &cpu) in self.cpus.iter().enumerate() {
                let shared = &shared;
                scope.spawn(move || self.assist(shared, cpu, seed + 1 + index as u64));
            }
            let slice = self.lead(&shared, ticks, seed, samples, &mut around);
            shared.stop.store(true, Ordering::Relaxed);
            slice
        })
        .and_then(|slice| {
            if shared.failed.load(Ordering::Relaxed) {
                return Err(io::Error::other("another thread's sync failed"));
            }
            Ok(slice)
        })
    }

    fn lead(
        self,
        shared: &Shared,
        ticks: u64,
        seed: u64,
        samples: &mut [Sample],
        around: &mut impl FnMut(),
    ) -> io::Result<Slice> {
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..SETTLING_OPERATIONS {
            self.target.operate(self.pages, &mut random)?;
        }
        // ORDERING: pairs with the increment in `assist`.
        while shared.ready.load(Ordering::Acquire) < self.cpus.len() as u64 {
            thread::yield_now();
        }
        around();
        let others = shared.operations.load(Ordering::Relaxed);
        let end = clock::ticks().wrapping_add(ticks);
        let mut taken = 0;
        for sample in samples.iter_mut() {
            *sample = self.target.operate(self.pages, &mut random)?;
            taken += 1;
            if clock::ticks() >= end {
                break;
            }
        }
        let others = shared.operations.load(Ordering::Relaxed) - others;
        around();
        Ok(Slice {
            samples: taken,
            operations: others + taken as u64,
        })
    }

    fn assist(self, shared: &Shared, cpu: usize, seed: u64) {
        let mut is_well = machine::pin_to(cpu).is_ok();
        let mut random = fastrand::Rng::with_seed(seed);
        // ORDERING: pairs with the load in `lead`.
        shared.ready.fetch_add(1, Ordering::Release);
        while is_well && !shared.stop.load(Ordering::Relaxed) {
            is_well = self.target.operate(self.pages, &mut random).is_ok();
            shared.operations.fetch_add(1, Ordering::Relaxed);
        }
        if !is_well {
            shared.failed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_with_its_buffer_or_its_time() {
        let target = Target::new(16, None).unwrap();
        let cpus = machine::allowed_cpus().unwrap();
        let crew = Crew {
            target: &target,
            pages: 2,
            cpus: &cpus[1..cpus.len().min(2)],
        };
        let mut samples = [Sample::default(); 5];
        let mut calls = 0;
        let slice = crew.run(u64::MAX / 2, 1, &mut samples, || calls += 1);
        let slice = slice.unwrap();
        assert_eq!((slice.samples, calls), (5, 2));
        assert!(slice.operations >= 5);
        assert_eq!(crew.run(0, 1, &mut samples, || ()).unwrap().samples, 1);
        assert_eq!(target.lost_words().unwrap(), 0);
    }

    #[test]
    fn a_thread_that_cannot_be_pinned_is_an_error() {
        let target = Target::new(4, None).unwrap();
        let crew = Crew {
            target: &target,
            pages: 1,
            cpus: &[usize::MAX],
        };
        assert!(crew.run(0, 1, &mut [Sample::default()], || ()).is_err());
    }
}
