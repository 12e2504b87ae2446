//! The whole run: for each number of threads and pages, a load, rounds of intervals, the rows.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use super::load::{Load, Plan};
use super::options::{HELP, Options};
use super::row::{Row, Setting, Shape};
use super::tracer::Tracer;
use super::{alarm, keeper};
use crate::args::UsageError;
use crate::counters::{self, CounterSource};
use crate::policy::{PolicySwitch, REFERENCE_POLICY};
use crate::report::Meter;
use crate::summary::Summary;
use crate::{args, machine, program, realtime, report};

const PROGRAM: &str = "preemptoff";

/// The program `preemptoff`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, Run::conclude)
}

/// Everything set up before the first load.
struct Run {
    options: Options,
    cpus: Vec<usize>,
    policies: Vec<String>,
    switch: PolicySwitch,
    counters: CounterSource,
    can_keep: bool,
    meter: Meter,
}

impl Run {
    fn new(options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        options.fit(cpus.len())?;
        let switch = PolicySwitch::of_this_kernel();
        let policies = switch.resolve(&options.effort.policies)?;
        let shapes = options.threads.len() * options.pages.len();
        let meter = Meter::new(shapes * (options.effort.rounds + 1));
        Ok(Self {
            options,
            cpus,
            policies,
            switch,
            counters: CounterSource::of_this_kernel(),
            can_keep: keeper::is_possible(),
            meter,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many reads saw what they must not.
    fn all(&mut self) -> io::Result<u64> {
        machine::pin_to(self.cpus[0])?;
        let tracer = Tracer::start()?;
        self.print_info(&tracer);
        let mut stale = 0;
        for threads in self.options.threads.clone() {
            for pages in self.options.pages.clone() {
                stale += self.shape(&tracer, Shape { threads, pages })?;
            }
        }
        self.meter.step("done");
        Ok(stale)
    }

    fn shape(&mut self, tracer: &Tracer, shape: Shape) -> io::Result<u64> {
        let label = format!("{} threads, {} pages", shape.threads, shape.pages);
        self.meter.step(&label);
        let mut load = Load::start(self.plan(shape))?;
        let mut rows: Vec<Row> = self.policies.iter().map(|name| Row::new(name)).collect();
        let is_fifo = self.take_priority();
        self.warm_up(tracer, &mut load, &mut rows)?;
        for round in 0..self.options.effort.rounds {
            for index in self.options.effort.order(round, rows.len()) {
                let length = self.options.effort.slice;
                self.interval(tracer, &mut load, &mut rows[index], length)?;
            }
            self.meter.step(&label);
        }
        load.end()?;
        if is_fifo {
            realtime::become_ordinary()?;
        }
        let setting = Setting {
            shape,
            keepers: self.keepers(shape.threads),
            is_fifo,
        };
        self.print_rows(setting, &mut rows);
        Ok(rows.iter().map(|row| row.load.wrong).sum())
    }

    fn plan(&self, shape: Shape) -> Plan<'_> {
        Plan {
            cpus: &self.cpus[..shape.threads],
            keepers: self.keepers(shape.threads),
            pages: shape.pages,
            tail: self.options.tail,
            gap: self.options.gap,
            seed: self.options.effort.seed,
        }
    }

    fn keepers(&self, threads: usize) -> usize {
        match self.can_keep {
            true => self.options.keepers(threads),
            false => 0,
        }
    }

    fn take_priority(&self) -> bool {
        let result = alarm::take_priority();
        if let Err(error) = &result {
            report::say(&format!(
                "{PROGRAM}: measured by an ordinary thread, SCHED_FIFO was refused: {error}"
            ));
        }
        result.is_ok()
    }

    fn warm_up(&mut self, tracer: &Tracer, load: &mut Load, rows: &mut [Row]) -> io::Result<()> {
        let length = self.options.effort.warmup;
        if length.is_zero() {
            return Ok(());
        }
        for row in rows {
            let mut unused = Row::new(&row.policy);
            self.interval(tracer, load, &mut unused, length)?;
            row.load.wrong += unused.load.wrong;
        }
        Ok(())
    }

    /// One policy's turn. What the load began is finished before the record is read and the next policy selected.
    fn interval(
        &mut self,
        tracer: &Tracer,
        load: &mut Load,
        row: &mut Row,
        length: Duration,
    ) -> io::Result<()> {
        self.switch.select(&row.policy).map_err(io::Error::other)?;
        let share = row.samples.len() / self.options.effort.rounds.max(1);
        let (before, done) = (self.counters.read(), load.tally());
        tracer.reset()?;
        load.work();
        let end = (row.taken + share).min(row.samples.len());
        let heard = alarm::ring(
            length,
            self.options.period,
            &mut row.samples[row.taken..end],
        )?;
        load.rest()?;
        for longest in tracer.read(load.cpus())? {
            row.add(longest);
        }
        counters::accumulate(&mut row.counters, &before, &self.counters.read());
        row.taken += heard.taken;
        row.missed += heard.missed;
        row.add_load(load.tally().since(done));
        Ok(())
    }

    fn print_rows(&self, setting: Setting, rows: &mut [Row]) {
        let summaries: Vec<Option<Summary>> = rows.iter_mut().map(Row::summarise).collect();
        let reference = rows.iter().position(|row| row.policy == REFERENCE_POLICY);
        let reference = reference.and_then(|index| summaries[index].as_ref());
        for (row, summary) in rows.iter_mut().zip(&summaries) {
            if let Some(late) = summary {
                let limit = self.options.effort.row_samples;
                report::row(&row.to_json(setting, late, reference, limit));
            }
        }
    }

    fn print_info(&self, tracer: &Tracer) {
        let (options, tail) = (&self.options, &self.options.tail);
        let expected = options.duration(self.policies.len());
        let micros = |duration: Duration| json!(duration.as_micros() as u64);
        let own = [
            ("threads", json!(options.threads)),
            ("pages", json!(options.pages)),
            ("policies", json!(self.policies)),
            ("period_us", micros(options.period)),
            ("gap_us", micros(options.gap)),
            ("body_us", micros(tail.body)),
            ("body_sigma", json!(tail.sigma)),
            ("tail_us", micros(tail.least)),
            ("tail_alpha", json!(tail.alpha)),
            ("tail_share", json!(tail.share)),
            ("cut_us", micros(tail.cut)),
            ("can_keep_interrupts_off", json!(self.can_keep)),
            ("has_tracer", json!(tracer.is_there())),
        ];
        report::info(&options.effort.info(PROGRAM, self.cpus.len(), expected, own));
    }
}
