//! [`Course`]: policies in short slices, in turns, measured by a [`Crew`]; then the check; then the rows.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::UsageError;
use crate::clock::Clock;
use crate::counters::{self, CounterSource, Counters};
use crate::crew::{Crew, Work};
use crate::effort::Effort;
use crate::machine;
use crate::madvise::row::{self, Row, Shape};
use crate::policy::PolicySwitch;
use crate::report::Meter;

/// Samples that the check takes at most, of which nothing is kept.
const CHECK_SAMPLES: usize = 1 << 16;

/// What is measured.
pub trait Bench {
    /// One operation of a thread, again and again.
    type Work<'a>: Work
    where
        Self: 'a;

    /// The kernel's policy in a row.
    fn policy<'a>(&self, row: &'a str) -> &'a str {
        row
    }

    /// What the threads of a row do; thoroughly when it is checked.
    fn work(&self, row: &str, shape: Shape, is_check: bool) -> Self::Work<'_>;

    /// Operations that went wrong since the last time.
    fn wrong(&self) -> u64 {
        0
    }

    /// After so many operations of the check: what else went wrong, and how many words were looked at.
    fn judge(&self, shape: Shape, operations: u64) -> io::Result<(u64, u64)>;
}

/// Everything that a run has besides its work.
#[derive(Debug)]
pub struct Course {
    /// How long, how often, in which order.
    pub effort: Effort,
    /// The CPUs of the threads.
    pub cpus: Vec<usize>,
    /// Ticks.
    pub clock: Clock,
    /// What is found.
    pub rows: Vec<Row>,
    switch: PolicySwitch,
    counters: CounterSource,
    meter: Meter,
}

impl Course {
    /// Rows with these names, for so many shapes.
    pub fn new(effort: Effort, cpus: Vec<usize>, rows: Vec<String>, shapes: usize) -> Self {
        Self {
            meter: Meter::new(shapes * (effort.rounds + 1)),
            effort,
            cpus,
            clock: Clock::calibrate(),
            rows: rows.into_iter().map(Row::new).collect(),
            switch: PolicySwitch::of_this_kernel(),
            counters: CounterSource::of_this_kernel(),
        }
    }

    /// Runs every shape; returns how much went wrong.
    pub fn run(
        &mut self,
        bench: &impl Bench,
        threads: &[usize],
        pages: &[usize],
    ) -> io::Result<u64> {
        let mut wrong = 0;
        for &threads in threads {
            for &pages in pages {
                wrong += self.shape(bench, Shape { threads, pages })?;
            }
        }
        self.meter.step("done");
        Ok(wrong)
    }

    /// What runs where, for the lab.
    pub fn info(&self, program: &str, threads: &[usize], pages: &[usize]) -> Value {
        let policies: Vec<&str> = self.rows.iter().map(|row| row.policy.as_str()).collect();
        let effort = &self.effort;
        let rows = (threads.len() * pages.len() * policies.len()) as u32;
        let own = [
            ("threads", json!(threads)),
            ("pages", json!(pages)),
            ("policies", json!(policies)),
            ("check_ms", json!(effort.check_ms())),
            ("ticks_per_second", json!(self.clock.frequency())),
        ];
        effort.info(program, self.cpus.len(), effort.row() * rows, own)
    }

    /// Pins the calling thread, which is the first of each crew.
    pub fn pin(&self) -> io::Result<()> {
        machine::pin_to(self.cpus[0])
    }

    fn shape(&mut self, bench: &impl Bench, shape: Shape) -> io::Result<u64> {
        let label = format!("{} threads, {} pages", shape.threads, shape.pages);
        self.rows.iter_mut().for_each(Row::reset);
        self.meter.step(&label);
        for index in 0..self.rows.len() {
            self.turn(bench, shape, index, self.effort.warmup, 0)?;
            self.rows[index].reset();
        }
        for round in 0..self.effort.rounds {
            for index in self.effort.order(round, self.rows.len()) {
                self.turn(bench, shape, index, self.effort.slice, round)?;
            }
            self.meter.step(&label);
        }
        self.check(bench, shape)?;
        row::print(&self.rows, shape, &self.clock, self.effort.row_samples);
        Ok(self.rows.iter().map(|row| row.found.stale).sum())
    }

    /// One turn of one policy, recorded in its row.
    fn turn(
        &mut self,
        bench: &impl Bench,
        shape: Shape,
        index: usize,
        length: Duration,
        round: usize,
    ) -> io::Result<()> {
        let row = &mut self.rows[index];
        select(&self.switch, bench.policy(&row.policy))?;
        let work = bench.work(&row.policy, shape, false);
        let crew = Crew {
            work: &work,
            cpus: &self.cpus[1..shape.threads],
        };
        // Each slice has its share, so that a fast row is not made of its first rounds only.
        let share = row.samples.len() / self.effort.rounds;
        let samples = &mut row.samples[row.found.taken..row.found.taken + share];
        let seed = self.effort.seed + ((round * self.cpus.len()) as u64);
        let mut readings: Vec<Counters> = Vec::new();
        let ticks = self.clock.to_ticks(length);
        let slice = crew.run(ticks, seed, samples, || readings.push(self.counters.read()))?;
        if let [before, after] = &readings[..] {
            counters::accumulate(&mut row.found.counters, before, after);
        }
        row.found.taken += slice.samples;
        row.found.iterations += slice.operations;
        row.found.ticks += slice.ticks;
        row.found.stale += bench.wrong();
        Ok(())
    }

    /// All threads work thoroughly under each policy, and then all is compared.
    fn check(&mut self, bench: &impl Bench, shape: Shape) -> io::Result<()> {
        let mut unused = vec![Default::default(); CHECK_SAMPLES];
        for row in &mut self.rows {
            select(&self.switch, bench.policy(&row.policy))?;
            let work = bench.work(&row.policy, shape, true);
            let crew = Crew {
                work: &work,
                cpus: &self.cpus[1..shape.threads],
            };
            let ticks = self.clock.to_ticks(self.effort.check);
            let slice = crew.run(ticks, self.effort.seed, &mut unused, || ())?;
            let (wrong, reads) = bench.judge(shape, slice.operations)?;
            row.found.stale += wrong + bench.wrong();
            row.found.check_rounds = slice.operations;
            row.found.check_reads = reads;
        }
        Ok(())
    }
}

fn select(switch: &PolicySwitch, policy: &str) -> io::Result<()> {
    switch
        .select(policy)
        .map_err(|error: UsageError| io::Error::other(error))
}
