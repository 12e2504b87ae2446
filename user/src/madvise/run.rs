//! The whole run: for each number of threads and pages, rounds of slices, the check, the rows.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use serde_json::json;

use super::companions::Companions;
use super::options::{HELP, Options};
use super::row::{self, Row, Shape};
use super::{check, slice};
use crate::args::UsageError;
use crate::clock::Clock;
use crate::counters::{self, CounterSource};
use crate::policy::PolicySwitch;
use crate::region::Region;
use crate::report::Meter;
use crate::{args, machine, program, report};

const PROGRAM: &str = "madvise";

/// The program `madvise`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, Run::conclude)
}

/// Everything set up before the first slice.
struct Run {
    options: Options,
    cpus: Vec<usize>,
    switch: PolicySwitch,
    clock: Clock,
    counters: CounterSource,
    rows: Vec<Row>,
    meter: Meter,
}

impl Run {
    fn new(options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        options.fit(cpus.len())?;
        let switch = PolicySwitch::of_this_kernel();
        let policies = switch.resolve(&options.effort.policies)?;
        let rows = policies.into_iter().map(Row::new).collect();
        let clock = Clock::calibrate();
        let counters = CounterSource::of_this_kernel();
        let shapes = options.threads.len() * options.pages.len();
        let meter = Meter::new(shapes * (options.effort.rounds + 1));
        Ok(Self {
            options,
            cpus,
            switch,
            clock,
            counters,
            rows,
            meter,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many reads saw what they must not.
    fn all(&mut self) -> io::Result<u64> {
        machine::pin_to(self.cpus[0])?;
        self.print_info();
        let mut stale = 0;
        for threads in self.options.threads.clone() {
            for pages in self.options.pages.clone() {
                stale += self.shape(Shape { threads, pages })?;
            }
        }
        self.meter.step("done");
        Ok(stale)
    }

    fn shape(&mut self, shape: Shape) -> io::Result<u64> {
        let region = Region::new(shape.pages)?;
        let companions = Companions::start(&self.cpus[1..shape.threads])?;
        let label = format!("{} threads, {} pages", shape.threads, shape.pages);
        self.rows.iter_mut().for_each(Row::reset);
        self.meter.step(&label);
        self.warm_up(&region)?;
        for round in 0..self.options.effort.rounds {
            for index in self.options.effort.order(round, self.rows.len()) {
                self.slice(&region, index)?;
            }
            self.meter.step(&label);
        }
        // The check brings watchers of its own.
        drop(companions);
        self.check(&region, shape)?;
        row::print(
            &self.rows,
            shape,
            &self.clock,
            self.options.effort.row_samples,
        );
        Ok(self.rows.iter().map(|row| row.found.stale).sum())
    }

    fn warm_up(&mut self, region: &Region) -> io::Result<()> {
        let warmup = self.options.effort.warmup;
        if warmup.is_zero() {
            return Ok(());
        }
        let ticks = self.clock.to_ticks(warmup);
        for row in &mut self.rows {
            self.switch.select(&row.policy).map_err(io::Error::other)?;
            let slice = slice::run(region, region.pages(), ticks, &mut row.samples)?;
            row.found.stale += slice.dirty_pages;
        }
        Ok(())
    }

    fn slice(&mut self, region: &Region, index: usize) -> io::Result<()> {
        let ticks = self.clock.to_ticks(self.options.effort.slice);
        let row = &mut self.rows[index];
        self.switch.select(&row.policy).map_err(io::Error::other)?;
        // Each slice has its share, so that a fast row is not made of its first rounds only.
        let share = row.samples.len() / self.options.effort.rounds;
        let samples = &mut row.samples[row.found.taken..row.found.taken + share];
        let before = self.counters.read();
        let slice = slice::run(region, region.pages(), ticks, samples)?;
        let after = self.counters.read();
        counters::accumulate(&mut row.found.counters, &before, &after);
        row.found.taken += slice.samples;
        row.found.iterations += slice.iterations as u64;
        row.found.stale += slice.dirty_pages;
        Ok(())
    }

    fn check(&mut self, region: &Region, shape: Shape) -> io::Result<()> {
        let watchers = &self.cpus[1..shape.threads];
        let (length, seed) = (self.options.effort.check, self.options.effort.seed);
        for row in &mut self.rows {
            self.switch.select(&row.policy).map_err(io::Error::other)?;
            let discard = |region: &Region| region.discard(region.pages());
            let outcome = check::run(region, self.cpus[0], watchers, length, seed, discard)?;
            if let Some(finding) = outcome.first {
                eprintln!("{PROGRAM}: {}: {finding}", row.policy);
            }
            row.found.stale += outcome.violations;
            (row.found.check_rounds, row.found.check_reads) = (outcome.rounds, outcome.reads);
        }
        Ok(())
    }

    fn print_info(&self) {
        let policies: Vec<&str> = self.rows.iter().map(|row| row.policy.as_str()).collect();
        let options = &self.options;
        let expected = options.duration(policies.len());
        let own = [
            ("threads", json!(options.threads)),
            ("pages", json!(options.pages)),
            ("policies", json!(policies)),
            ("check_ms", json!(options.effort.check_ms())),
            ("ticks_per_second", json!(self.clock.frequency())),
        ];
        report::info(&options.effort.info(PROGRAM, self.cpus.len(), expected, own));
    }
}
