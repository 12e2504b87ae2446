//! What makes a measuring program: [`Program`] for the whole run, [`Bench`] for one shape.

use std::io;
use std::time::Duration;

use serde_json::Value;

use super::options::{OwnOptions, Table};
use super::row::{Entry, Sample};
use super::run::Course;
use crate::args::UsageError;
use crate::clock::Clock;

/// A measuring program.
pub trait Program: Sized {
    /// Its table and what `--help` prints.
    const TABLE: &'static Table;
    /// The options that no other program has.
    type Options: OwnOptions;
    /// What is measured of one shape.
    type Bench<'a>: Bench
    where
        Self: 'a;

    /// Sets up what serves all shapes.
    ///
    /// # Errors
    /// The options do not fit together or this machine.
    fn new(options: Self::Options, course: &Course) -> Result<Self, UsageError>;

    /// The kernel's policy in a row.
    fn policy(row: &str) -> &str {
        row
    }

    /// What it measures of each number of tasks and pages, where that is more than one thing; each has rows of its own.
    fn operations(&self) -> &[&'static str] {
        &[""]
    }

    /// Adds what only this program has to say of what runs where.
    fn info(&self, _info: &mut Value) {}

    /// Sets up a shape; whatever is forked here shares no row's samples.
    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Self::Bench<'a>>;
}

/// The axes of the table, but for the policy.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Threads or processes.
    pub tasks: usize,
    /// Pages that each uses in an operation.
    pub pages: usize,
    /// Which of the program's [operations](Program::operations).
    pub operation: &'static str,
}

/// What is measured of one shape.
pub trait Bench {
    /// One policy's turn, which is selected already. `around` is to be called before and after what the kernel's counters
    /// shall count.
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice>;

    /// The check of one policy. Only where the table says so.
    fn check(&mut self, _turn: Turn<'_>) -> io::Result<Checked> {
        Ok(Checked::default())
    }

    /// Ends what was started; how much went wrong that no turn has told of.
    fn finish(&mut self) -> io::Result<u64> {
        Ok(0)
    }

    /// A sample or a statistic of them as it is printed, in nanoseconds.
    fn time(&self, ticks: u64, clock: &Clock) -> Value {
        clock.to_ns(ticks).into()
    }

    /// Adds its own fields to a row.
    fn add_fields(&mut self, entry: &Entry<'_>, row: &mut Value) {
        entry.add_calls(row);
    }
}

/// One turn of a row.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The row's name.
    pub row: &'a str,
    /// How long it takes.
    pub length: Duration,
    /// The same in ticks.
    pub ticks: u64,
    /// Seed of its choices.
    pub seed: u64,
    /// Whether anything but errors counts: it does not while a policy warms up.
    pub is_recorded: bool,
    /// Room for samples; they were written before, or the first pass over them would measure its page faults.
    pub samples: &'a mut [Sample],
}

/// What one slice found, or all of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slice {
    /// Samples written, from the front of the buffer.
    pub samples: usize,
    /// Operations of all threads meanwhile, with those that were not recorded.
    pub operations: u64,
    /// How long that was; 0 where threads are not counted together.
    pub ticks: u64,
    /// Reads that saw what they must not.
    pub wrong: u64,
}

/// What a check found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rounds or operations.
    pub rounds: u64,
    /// Reads judged.
    pub reads: u64,
    /// Reads that saw what they must not.
    pub wrong: u64,
}
