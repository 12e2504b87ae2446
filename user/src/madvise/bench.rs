//! What differs from other [courses](crate::course): a region and companions for each shape, and a check with watchers.

use std::io;

use super::companions::Companions;
use super::{check, slice};
use crate::args::UsageError;
use crate::course::options::MAX_PAGES;
use crate::course::{Axis, Bench, Checked, Course, Program, Shape, Slice, Table, Turn};
use crate::policy;
use crate::region::Region;

/// What `--help` prints.
const HELP: &str = "\
madvise: the time of madvise(MADV_DONTNEED) + touch while other threads spin

usage: madvise [OPTION]...
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages LIST      pages per iteration                          [1,8,32]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, choices of the self-check [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a stale or lost page or a failed call, 2 bad arguments
";

/// The program `madvise`.
#[derive(Debug)]
pub struct Madvise;

impl Program for Madvise {
    const TABLE: &'static Table = &Table {
        program: "madvise",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[1, 8, 32], 1..=MAX_PAGES),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: true,
    };
    type Options = ();
    type Bench<'a> = Discards<'a>;

    fn new((): (), _: &Course) -> Result<Self, UsageError> {
        Ok(Self)
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Discards<'a>> {
        let cpus = &course.cpus[..shape.tasks];
        Ok(Discards {
            region: Region::new(shape.pages)?,
            companions: Some(Companions::start(&cpus[1..])?),
            cpus,
        })
    }
}

/// One shape.
#[derive(Debug)]
pub struct Discards<'a> {
    region: Region,
    /// Until the check, which brings watchers of its own.
    companions: Option<Companions>,
    cpus: &'a [usize],
}

impl Bench for Discards<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        around();
        let slice = slice::run(&self.region, self.region.pages(), turn.ticks, turn.samples)?;
        around();
        Ok(slice)
    }

    fn check(&mut self, turn: Turn<'_>) -> io::Result<Checked> {
        self.companions = None;
        let (&initiator, watchers) = self.cpus.split_first().expect("the initiator is there");
        let discard = |region: &Region| region.discard(region.pages());
        let outcome = check::run(
            &self.region,
            initiator,
            watchers,
            turn.length,
            turn.seed,
            discard,
        )?;
        if let Some(finding) = outcome.first {
            eprintln!("madvise: {}: {finding}", turn.row);
        }
        Ok(outcome.checked)
    }
}
