//! [`Summary`]: what a run did and found, as a table and as lines for a program to read.

use core::fmt;

use shootdown::{Capacity, Cpus, watch::Stats};

use crate::host::Host;
use crate::operation::Operation;
use crate::torture::Torture;
use crate::violation::{Promise, Violation};

/// What a run did, or has done so far.
#[derive(Clone, Debug)]
pub struct Summary {
    seed: u64,
    steps: u64,
    elapsed_ns: u64,
    done: [u64; Operation::COUNT],
    broken: [u64; Promise::ALL.len()],
    first: Option<Violation>,
    stats: Stats,
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// The books as they are now, of a run that has taken `elapsed_ns` nanoseconds. Any context. For the verdict, call
    /// [`finish`](Self::finish) before.
    pub fn summary<H: Host<N>>(&self, host: &H, elapsed_ns: u64) -> Summary {
        let records = || self.records.as_flattened().iter();
        Summary {
            seed: self.seed(),
            steps: records().map(|record| record.steps.get()).sum(),
            elapsed_ns,
            done: core::array::from_fn(|operation| {
                records().map(|record| record.done[operation].get()).sum()
            }),
            broken: self.ledger.counts(),
            first: self.ledger.first(),
            stats: host.engine().watch().total_stats(),
        }
    }
}

impl Summary {
    /// How many checks failed.
    pub fn violations(&self) -> u64 {
        self.broken.iter().sum()
    }

    /// All steps of all workers.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// How often an operation was done.
    pub fn done(&self, operation: Operation) -> u64 {
        self.done[operation as usize]
    }

    /// How often a promise was broken.
    pub fn broken(&self, promise: Promise) -> u64 {
        self.broken[promise as usize]
    }

    /// The first broken promise.
    pub fn first(&self) -> Option<Violation> {
        self.first
    }

    /// The engine's counters, of what came before the run, too.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The same as lines of words, each with the prefix `torture:`; the last is
    /// `torture: done violations=.. steps=.. seed=.. ns=..`. A host prints it on its console, and `lab torture` reads it.
    pub fn protocol(&self) -> impl fmt::Display + '_ {
        Protocol(self)
    }

    fn per_second(&self, count: u64) -> u64 {
        let nanoseconds = u128::from(self.elapsed_ns.max(1));
        (u128::from(count) * 1_000_000_000 / nanoseconds) as u64
    }

    /// The engine's counters that are not zero.
    fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.stats.iter().filter(|(_, count)| *count > 0)
    }
}

/// The table for people.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22} {:>14} {:>12}", "operation", "done", "per second")?;
        for operation in Operation::ALL {
            let count = self.done(*operation);
            let rate = self.per_second(count);
            writeln!(f, "{:<22} {count:>14} {rate:>12}", operation.name())?;
        }
        let rate = self.per_second(self.steps);
        writeln!(f, "{:<22} {:>14} {rate:>12}", "all steps", self.steps)?;
        writeln!(f, "\n{:<22} {:>14}", "promise", "broken")?;
        for promise in Promise::ALL {
            let count = self.broken(*promise);
            writeln!(f, "{:<22} {count:>14}", promise.name())?;
        }
        writeln!(f, "\n{:<22} {:>14}", "engine", "count")?;
        for (name, count) in self.counters() {
            writeln!(f, "{name:<22} {count:>14}")?;
        }
        let (violations, seed) = (self.violations(), self.seed);
        write!(
            f,
            "\n{} steps, {violations} violations, seed {seed}",
            self.steps
        )?;
        match self.first {
            Some(first) => write!(f, "; the first: {first}"),
            None => Ok(()),
        }
    }
}

struct Protocol<'a>(&'a Summary);

impl fmt::Display for Protocol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = self.0;
        for operation in Operation::ALL {
            let count = summary.done(*operation);
            writeln!(f, "torture: operation={} done={count}", operation.name())?;
        }
        for promise in Promise::ALL {
            let count = summary.broken(*promise);
            writeln!(f, "torture: promise={} broken={count}", promise.name())?;
        }
        for (name, count) in summary.counters() {
            writeln!(f, "torture: engine={name} count={count}")?;
        }
        if let Some(first) = summary.first {
            writeln!(f, "torture: first {first}")?;
        }
        write!(
            f,
            "torture: done violations={} steps={} seed={} ns={}",
            summary.violations(),
            summary.steps,
            summary.seed,
            summary.elapsed_ns
        )
    }
}
