//! Page tables that are freed while other threads fault on what they map.
//!
//! Thread 0 maps what one table of leaves maps, writes to a page and unmaps all of it; the kernel frees the table. The others, one a CPU, have the kernel read
//! pages there: each read that finds none is a fault, and each fault reads the tables without their lock. A sample is one `munmap`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::args::UsageError;
use crate::clock::{self, narrow};
use crate::course::{Axis, Bench, Course, Program, Sample, Shape, Slice, Table, Turn};
use crate::{machine, memory_file, policy};

/// What `--help` prints.
const HELP: &str = "\
collapse: the time of munmap of a whole page table while other threads fault there

usage: collapse [OPTION]...
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages LIST      pages that are written before: 1             [1]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies                            [1]
  --help

exit status: 0 all well, 1 a page that was not new or a failed call, 2 bad arguments
";

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// What one table of leaves maps.
pub const REGION: usize = 512 * PAGE;
/// Where nothing else is.
pub const PLACE: usize = 0x1000_0000_0000;
/// Others read in so many pages.
const READ: usize = 8;

/// The program `collapse`.
#[derive(Debug)]
pub struct Collapse;

impl Program for Collapse {
    const TABLE: &'static Table = &Table {
        program: "collapse",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[1], 1..=1),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: false,
    };
    type Options = ();
    type Bench<'a> = Tables<'a>;

    fn new((): (), _: &Course) -> Result<Self, UsageError> {
        Ok(Self)
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Tables<'a>> {
        Ok(Tables {
            others: &course.cpus[1..shape.tasks],
            file: memory_file::create(c"collapse", PAGE as u64)?,
        })
    }
}

/// One shape.
#[derive(Debug)]
pub struct Tables<'a> {
    others: &'a [usize],
    file: File,
}

impl Bench for Tables<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let (begins, ends) = (Barrier::new(self.others.len() + 1), AtomicBool::new(false));
        thread::scope(|scope| {
            for (seed, &cpu) in self.others.iter().enumerate() {
                let (file, begins, ends) = (&self.file, &begins, &ends);
                let read = move || {
                    // One that cannot be pinned still reads.
                    let _ignored = machine::pin_to(cpu);
                    begins.wait();
                    let _counts = read(file, seed as u64, ends);
                };
                // Where one is missing the barrier would wait for ever.
                thread::Builder::new()
                    .spawn_scoped(scope, read)
                    .expect("a thread");
            }
            begins.wait();
            around();
            let slice = unmap(turn.ticks, turn.samples);
            around();
            ends.store(true, Relaxed);
            slice
        })
    }
}

/// Maps, writes and unmaps for `ticks` ticks, or until `samples` is full.
fn unmap(ticks: u64, samples: &mut [Sample]) -> io::Result<Slice> {
    let mut slice = Slice::default();
    let mut last = clock::ticks();
    let end = last.wrapping_add(ticks);
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    for sample in samples.iter_mut() {
        let at = machine::map(PLACE, REGION, rights, libc::MAP_FIXED_NOREPLACE)?;
        // SAFETY: just mapped, and the kernel only reads there for the others.
        let old = unsafe { (at as *mut u64).replace(1) };
        slice.wrong += u64::from(old != 0);
        let begun = clock::ticks();
        // SAFETY: nobody uses it but the kernel for the others, which are told.
        machine::done(unsafe { libc::munmap(at as *mut _, REGION) })?;
        let now = clock::ticks();
        *sample = Sample {
            whole: narrow(now.wrapping_sub(last)),
            call: narrow(now.wrapping_sub(begun)),
        };
        (last, slice.samples) = (now, slice.samples + 1);
        if now >= end {
            break;
        }
    }
    slice.operations = slice.samples as u64;
    Ok(slice)
}

/// Has the kernel read pages of the region, some of which are there, until `ends`. How many were, and how many were not.
pub fn read(file: &File, seed: u64, ends: &AtomicBool) -> (u64, u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut there, mut gone) = (0, 0);
    while !ends.load(Relaxed) {
        let page = PLACE + random.usize(..READ) * PAGE;
        // SAFETY: the kernel reads a byte there, or says that it cannot.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), page as *const _, 1, 0) };
        match written {
            1 => there += 1,
            _ => gone += 1,
        }
    }
    (there, gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_ends_with_its_buffer_and_finds_new_pages() {
        let mut tables = Tables {
            others: &[0],
            file: memory_file::create(c"collapse", 4096).unwrap(),
        };
        let mut samples = [Sample::default(); 10];
        let turn = Turn {
            row: "linux",
            length: std::time::Duration::MAX,
            ticks: u64::MAX / 2,
            seed: 1,
            is_recorded: true,
            samples: &mut samples,
        };
        let mut looks = 0;
        let slice = tables.turn(turn, &mut || looks += 1).unwrap();
        assert_eq!(
            (slice.samples, slice.operations, slice.wrong, looks),
            (10, 10, 0, 2)
        );
        assert!(
            samples
                .iter()
                .all(|sample| 0 < sample.call && sample.call <= sample.whole)
        );
    }
}
