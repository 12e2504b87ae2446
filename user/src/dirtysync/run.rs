//! The whole run: for each number of threads and pages, rounds of slices, the check, the rows.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::crew::Crew;
use super::options::{HELP, Options};
use super::ramdisk;
use super::target::Target;
use crate::args::UsageError;
use crate::clock::Clock;
use crate::counters::{self, CounterSource, Counters};
use crate::madvise::row::{self, Row, Shape};
use crate::policy::PolicySwitch;
use crate::region::PAGE_WORDS;
use crate::report::Meter;
use crate::{args, machine, program, report};

const PROGRAM: &str = "dirtysync";

/// The program `dirtysync`.
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
    target: Target,
    meter: Meter,
}

impl Run {
    fn new(mut options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        options.fit(cpus.len())?;
        let switch = PolicySwitch::of_this_kernel();
        let policies = switch.resolve(&options.effort.policies)?;
        if options.directory.is_none() {
            let disk = ramdisk::mount()
                .map_err(|error| UsageError::new(format!("cannot make a disk: {error}")))?;
            options.directory = disk.map(Path::to_owned);
        }
        let target = Target::new(options.file_pages, options.directory.as_deref())
            .map_err(|error| UsageError::new(format!("cannot make the file: {error}")))?;
        let shapes = options.threads.len() * options.pages.len();
        Ok(Self {
            cpus,
            switch,
            clock: Clock::calibrate(),
            counters: CounterSource::of_this_kernel(),
            rows: policies.into_iter().map(Row::new).collect(),
            target,
            meter: Meter::new(shapes * (options.effort.rounds + 1)),
            options,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many words were not stored as they were written.
    fn all(&mut self) -> io::Result<u64> {
        machine::pin_to(self.cpus[0])?;
        self.print_info();
        let mut lost = 0;
        for threads in self.options.threads.clone() {
            for pages in self.options.pages.clone() {
                lost += self.shape(Shape { threads, pages })?;
            }
        }
        self.meter.step("done");
        Ok(lost)
    }

    fn shape(&mut self, shape: Shape) -> io::Result<u64> {
        let label = format!("{} threads, {} pages", shape.threads, shape.pages);
        self.rows.iter_mut().for_each(Row::reset);
        self.meter.step(&label);
        for index in 0..self.rows.len() {
            self.turn(shape, index, self.options.effort.warmup, 0)?;
            self.rows[index].reset();
        }
        for round in 0..self.options.effort.rounds {
            for index in self.options.effort.order(round, self.rows.len()) {
                self.turn(shape, index, self.options.effort.slice, round)?;
            }
            self.meter.step(&label);
        }
        self.check(shape)?;
        row::print(
            &self.rows,
            shape,
            &self.clock,
            self.options.effort.row_samples,
        );
        Ok(self.rows.iter().map(|row| row.found.stale).sum())
    }

    /// One turn of one policy, recorded in its row.
    fn turn(
        &mut self,
        shape: Shape,
        index: usize,
        length: Duration,
        round: usize,
    ) -> io::Result<()> {
        let effort = &self.options.effort;
        let row = &mut self.rows[index];
        self.switch.select(&row.policy).map_err(io::Error::other)?;
        let crew = Crew {
            target: &self.target,
            pages: shape.pages,
            cpus: &self.cpus[1..shape.threads],
        };
        // Each slice has its share, so that a fast row is not made of its first rounds only.
        let share = row.samples.len() / effort.rounds;
        let samples = &mut row.samples[row.found.taken..row.found.taken + share];
        let seed = effort.seed + ((round * self.cpus.len()) as u64);
        let mut readings: Vec<Counters> = Vec::new();
        let ticks = self.clock.to_ticks(length);
        let slice = crew.run(ticks, seed, samples, || readings.push(self.counters.read()))?;
        if let [before, after] = &readings[..] {
            counters::accumulate(&mut row.found.counters, before, after);
        }
        row.found.taken += slice.samples;
        row.found.iterations += slice.operations;
        Ok(())
    }

    /// All threads write and sync under each policy, and then every word is compared.
    fn check(&mut self, shape: Shape) -> io::Result<()> {
        let (length, seed) = (self.options.effort.check, self.options.effort.seed);
        let crew = Crew {
            target: &self.target,
            pages: shape.pages,
            cpus: &self.cpus[1..shape.threads],
        };
        let mut unused = vec![Default::default(); 1 << 16];
        for row in &mut self.rows {
            self.switch.select(&row.policy).map_err(io::Error::other)?;
            let slice = crew.run(self.clock.to_ticks(length), seed, &mut unused, || ())?;
            row.found.stale += self.target.lost_words()?;
            row.found.check_rounds = slice.operations;
            row.found.check_reads = if self.target.is_checkable {
                (self.target.pages() * PAGE_WORDS) as u64
            } else {
                0
            };
        }
        Ok(())
    }

    fn print_info(&self) {
        let policies: Vec<&str> = self.rows.iter().map(|row| row.policy.as_str()).collect();
        let options = &self.options;
        let effort = &options.effort;
        let millis = |duration: Duration| duration.as_millis() as u64;
        report::info(&json!({
            "program": PROGRAM,
            "kernel": machine::kernel_name(),
            "cpus": self.cpus.len(),
            "threads": options.threads,
            "pages": options.pages,
            "file_pages": options.file_pages,
            "directory": options.directory,
            "keeps_stored_copy": self.target.is_checkable,
            "policies": policies,
            "slice_ms": millis(effort.slice),
            "rounds": effort.rounds,
            "warmup_ms": millis(effort.warmup),
            "check_ms": millis(effort.check),
            "seed": effort.seed,
            "ticks_per_second": self.clock.frequency(),
            "expected_ms": millis(options.duration(policies.len())),
        }));
    }
}
