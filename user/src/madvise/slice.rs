//! The measured loop: discard n pages, touch each, take the time.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::{self, narrow};
use crate::course::{Sample, Slice};
use crate::region::Region;

/// Iterations before the first recorded one of a slice: they bring the code, the policy just
/// selected and the frames in use back into the caches.
const SETTLING_ITERATIONS: usize = 16;

/// Iterates over the first `pages` pages of `region` for `ticks` ticks or until `samples` is full.
///
/// There are two time stamps an iteration: after the system call, and after the touches. Nothing here allocates;
/// `samples` must have been written before, or the first pass over it measures its page faults.
#[inline(never)]
pub fn run(region: &Region, pages: usize, ticks: u64, samples: &mut [Sample]) -> io::Result<Slice> {
    let mut dirty_pages = 0;
    for _ in 0..SETTLING_ITERATIONS {
        region.discard(pages)?;
        dirty_pages += touch(region, pages);
    }
    let mut taken = 0;
    let mut last = clock::ticks();
    let end = last.wrapping_add(ticks);
    for sample in samples.iter_mut() {
        region.discard(pages)?;
        let returned = clock::ticks();
        dirty_pages += touch(region, pages);
        let now = clock::ticks();
        *sample = Sample {
            whole: narrow(now.wrapping_sub(last)),
            call: narrow(returned.wrapping_sub(last)),
        };
        last = now;
        taken += 1;
        if now >= end {
            break;
        }
    }
    Ok(Slice {
        samples: taken,
        operations: (taken + SETTLING_ITERATIONS) as u64,
        ticks: 0,
        wrong: dirty_pages,
    })
}

/// Writes each page; returns how many were not zero after their discard.
///
/// Reading a page before writing it would add a second fault on kernels that map a shared zero
/// page for reads. So the first access is the write that faults; the word beside it shows whether
/// the page is fresh, and is made non-zero for the next iteration to find.
#[inline(always)]
fn touch(region: &Region, pages: usize) -> u64 {
    let mut dirty = 0;
    for page in 0..pages {
        region.word(page, 0).store(1, Relaxed);
        let witness = region.word(page, 1);
        dirty += u64::from(witness.load(Relaxed) != 0);
        witness.store(1, Relaxed);
    }
    dirty
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_with_its_buffer_and_finds_clean_pages() {
        let region = Region::new(4).unwrap();
        let mut samples = [Sample::default(); 10];
        let slice = run(&region, 4, u64::MAX / 2, &mut samples).unwrap();
        assert_eq!((slice.samples, slice.operations, slice.wrong), (10, 26, 0));
        assert!(samples.iter().all(|sample| sample.call > 0));
    }

    #[test]
    fn a_slice_ends_with_its_time() {
        let region = Region::new(1).unwrap();
        let mut samples = [Sample::default(); 10];
        assert_eq!(run(&region, 1, 0, &mut samples).unwrap().samples, 1);
    }

    #[test]
    fn the_call_is_a_part_of_its_iteration() {
        let region = Region::new(8).unwrap();
        let mut samples = [Sample::default(); 10];
        run(&region, 8, u64::MAX / 2, &mut samples).unwrap();
        assert!(samples.iter().all(|sample| sample.call < sample.whole));
    }
}
