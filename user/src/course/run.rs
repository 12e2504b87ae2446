//! [`Course`] and the run along it: for each shape a bench, rounds of turns, the check, the rows.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, Program, Shape, Turn};
use super::effort::Effort;
use super::options::{Options, Table};
use super::row::{self, Row, Sample};
use crate::args::UsageError;
use crate::clock::Clock;
use crate::counters::{self, CounterSource, Counters};
use crate::policy::PolicySwitch;
use crate::report::Meter;
use crate::{args, machine, program, report};

/// Samples that a check takes at most, of which nothing is kept.
const CHECK_SAMPLES: usize = 1 << 16;

/// The program `P`.
pub fn main<P: Program>() -> ExitCode {
    let name = P::TABLE.program;
    let parsed = Options::parse(P::TABLE, std::env::args_os().skip(1));
    program::run(
        name,
        P::TABLE.help,
        parsed,
        set_up::<P>,
        |(course, program)| program::verdict(name, Run::new(&course, &program).all()),
    )
}

pub(super) fn set_up<P: Program>(options: Options<P::Options>) -> Result<(Course, P), UsageError> {
    let cpus = args::cpus()?;
    options.fit(P::TABLE, cpus.len())?;
    let switch = PolicySwitch::of_this_kernel();
    let course = Course {
        table: P::TABLE,
        rows: switch.resolve_rows(&options.effort.policies, P::policy)?,
        tasks: options.tasks,
        pages: options.pages,
        effort: options.effort,
        cpus,
        clock: Clock::calibrate(),
        switch,
    };
    let program = P::new(options.own, &course)?;
    Ok((course, program))
}

/// Everything that a run has besides its work.
#[derive(Debug)]
pub struct Course {
    /// The program's table.
    pub table: &'static Table,
    /// Numbers of threads or processes.
    pub tasks: Vec<usize>,
    /// Numbers of pages.
    pub pages: Vec<usize>,
    /// How long, how often, in which order.
    pub effort: Effort,
    /// The CPUs that the program may use.
    pub cpus: Vec<usize>,
    /// Ticks.
    pub clock: Clock,
    rows: Vec<String>,
    switch: PolicySwitch,
}

impl Course {
    /// So many things are measured of each number of tasks and pages.
    fn shapes(&self, operations: usize) -> usize {
        self.tasks.len() * self.pages.len() * operations
    }

    /// What runs where, for the lab.
    fn info(&self, operations: usize) -> Value {
        let (effort, table) = (&self.effort, self.table);
        let millis = |duration: Duration| duration.as_millis() as u64;
        let check = if table.is_checked {
            effort.check
        } else {
            Duration::ZERO
        };
        let expected = (effort.row() + check) * (self.shapes(operations) * self.rows.len()) as u32;
        let mut info = json!({
            "program": table.program,
            "kernel": machine::kernel_name(),
            "cpus": self.cpus.len(),
            (table.tasks.name()): self.tasks,
            "pages": self.pages,
            "policies": self.rows,
            "slice_ms": millis(effort.slice),
            "rounds": effort.rounds,
            "warmup_ms": millis(effort.warmup),
            "seed": effort.seed,
            "expected_ms": millis(expected),
        });
        if table.is_checked {
            info["check_ms"] = millis(check).into();
            info["ticks_per_second"] = self.clock.frequency().into();
        }
        info
    }
}

struct Run<'a, P> {
    course: &'a Course,
    program: &'a P,
    counters: CounterSource,
    meter: Meter,
}

impl<'a, P: Program> Run<'a, P> {
    fn new(course: &'a Course, program: &'a P) -> Self {
        Self {
            course,
            program,
            counters: CounterSource::of_this_kernel(),
            meter: Meter::new(
                course.shapes(program.operations().len()) * (course.effort.rounds + 1),
            ),
        }
    }

    /// Runs every shape; returns how many reads saw what they must not.
    fn all(&mut self) -> io::Result<u64> {
        // The calling thread is the first of each shape.
        machine::pin_to(self.course.cpus[0])?;
        let mut info = self.course.info(self.program.operations().len());
        self.program.info(&mut info);
        report::info(&info);
        let mut wrong = 0;
        for &tasks in &self.course.tasks {
            for &pages in &self.course.pages {
                for &operation in self.program.operations() {
                    wrong += self.shape(Shape {
                        tasks,
                        pages,
                        operation,
                    })?;
                }
            }
        }
        self.meter.step("done");
        Ok(wrong)
    }

    fn shape(&mut self, shape: Shape) -> io::Result<u64> {
        let (course, effort) = (self.course, &self.course.effort);
        let (tasks, name) = (shape.tasks, course.table.tasks.name());
        let label = format!("{tasks} {name}, {} pages {}", shape.pages, shape.operation);
        let label = label.trim_end();
        self.meter.step(label);
        let mut bench = self.program.start(shape, course)?;
        let mut rows: Vec<Row> = course.rows.iter().map(|name| Row::new(name)).collect();
        for row in &mut rows {
            self.warm_up(&mut bench, row)?;
        }
        for round in 0..effort.rounds {
            for index in effort.order(round, rows.len()) {
                self.slice(&mut bench, &mut rows[index], round)?;
            }
            self.meter.step(label);
        }
        if course.table.is_checked {
            self.check(&mut bench, &mut rows)?;
        }
        rows[0].check.wrong += bench.finish()?;
        row::print(&rows, shape, &mut bench, course);
        Ok(rows.iter().map(Row::wrong).sum())
    }

    fn warm_up(&self, bench: &mut impl Bench, row: &mut Row) -> io::Result<()> {
        let length = self.course.effort.warmup;
        if !length.is_zero() {
            let turn = self.begin(&row.policy, length, &mut row.samples)?;
            row.total.wrong = bench.turn(turn, &mut || ())?.wrong;
        }
        Ok(())
    }

    /// One turn of one policy, recorded in its row.
    fn slice(&mut self, bench: &mut impl Bench, row: &mut Row, round: usize) -> io::Result<()> {
        let (course, effort) = (self.course, &self.course.effort);
        // Each slice has its share, so that a fast row is not made of its first rounds only.
        let share = row.samples.len() / effort.rounds;
        let samples = &mut row.samples[row.total.samples..][..share];
        let turn = Turn {
            seed: effort.seed + (round * course.cpus.len()) as u64,
            is_recorded: true,
            ..self.begin(&row.policy, effort.slice, samples)?
        };
        let mut readings: Vec<Counters> = Vec::new();
        let slice = bench.turn(turn, &mut || readings.push(self.counters.read()))?;
        if let [before, after] = &readings[..] {
            counters::accumulate(&mut row.counters, before, after);
        }
        row.add(slice);
        Ok(())
    }

    fn check(&self, bench: &mut impl Bench, rows: &mut [Row]) -> io::Result<()> {
        let mut unused = vec![Sample::default(); CHECK_SAMPLES];
        for row in rows {
            let turn = self.begin(&row.policy, self.course.effort.check, &mut unused)?;
            row.check = bench.check(turn)?;
        }
        Ok(())
    }

    /// Selects the policy of a row, whose turn it is.
    fn begin<'t>(
        &self,
        row: &'t str,
        length: Duration,
        samples: &'t mut [Sample],
    ) -> io::Result<Turn<'t>> {
        let course = self.course;
        let selected = course.switch.select(P::policy(row));
        selected.map_err(io::Error::other)?;
        Ok(Turn {
            row,
            length,
            ticks: course.clock.to_ticks(length),
            seed: course.effort.seed,
            is_recorded: false,
            samples,
        })
    }
}
