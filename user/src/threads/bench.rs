//! What differs from other [courses](crate::course): operations, and rows whose spaces are not tracked.

use std::io;

use super::child;
use super::operation::Operation;
use crate::args::{self, UsageError};
use crate::course::options::MAX_PAGES;
use crate::course::{Axis, Bench, Course, OwnOptions, Program, Shape, Slice, Table, Turn};
use crate::policy::REFERENCE_POLICY;

/// What `--help` prints.
const HELP: &str = "\
threads: the time of operations on memory of their own, by all threads at once

usage: threads [OPTION]...
  --operations LIST of discard, map, malloc, stack, freed, shared-1,
                    shared-10, shared-100                        [all]
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages LIST      pages that an operation writes to            [1]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,untracked,best]
                    with before and untracked no space is tracked;
                    untracked is best otherwise
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies                            [1]
  --help

exit status: 0 all well, 1 a page that was not zero after its discard or a failed call, 2 bad arguments
";

/// The row of `best` without tracked spaces.
const UNTRACKED: &str = "untracked";
/// Where the reference kernel takes whether spaces become tracked.
const REACH_FILE: &str = "/proc/shootdown/reach";

fn named(wanted: &str) -> Option<(&'static str, Operation)> {
    (Operation::ALL.into_iter()).find(|(name, _)| *name == wanted)
}

/// What only this program is told: the operations.
#[derive(Debug)]
pub struct Options(Vec<&'static str>);

impl Default for Options {
    fn default() -> Self {
        Self(Operation::ALL.map(|(name, _)| name).to_vec())
    }
}

impl OwnOptions for Options {
    const NAMES: &'static [&'static str] = &["--operations"];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let known = |wanted: String| match named(&wanted) {
            Some((name, _)) => Ok(name),
            None => Err(UsageError::new(format!(
                "no operation is called {wanted:?}: see --help"
            ))),
        };
        let names = args::names(name, text)?.into_iter().map(known);
        self.0 = names.collect::<Result<_, _>>()?;
        Ok(())
    }
}

/// The program `threads`.
#[derive(Debug)]
pub struct Threads(Options);

impl Program for Threads {
    const TABLE: &'static Table = &Table {
        program: "threads",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[1], 1..=MAX_PAGES),
        policies: [REFERENCE_POLICY, UNTRACKED, "best"],
        is_spread: true,
        is_checked: false,
    };
    type Options = Options;
    type Bench<'a> = Turns<'a>;

    fn new(options: Options, _: &Course) -> Result<Self, UsageError> {
        Ok(Self(options))
    }

    fn policy(row: &str) -> &str {
        if row == UNTRACKED { "best" } else { row }
    }

    fn operations(&self) -> &[&'static str] {
        &self.0.0
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Turns<'a>> {
        let (_, operation) = named(shape.operation).expect("one of `operations`");
        Ok(Turns {
            work: (operation, shape.pages),
            cpus: &course.cpus[..shape.tasks],
        })
    }
}

/// One shape.
#[derive(Debug)]
pub struct Turns<'a> {
    work: (Operation, usize),
    cpus: &'a [usize],
}

impl Bench for Turns<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let is_tracked = ![REFERENCE_POLICY, UNTRACKED].contains(&turn.row);
        match std::fs::write(REACH_FILE, if is_tracked { "on" } else { "off" }) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => child::run(self.work, self.cpus, turn, around),
        }
    }
}
