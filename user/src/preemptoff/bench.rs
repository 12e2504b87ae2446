//! What differs from other [courses](crate::course): a load for each shape, intervals at the alarm's clock, and the kernel's
//! record of them.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::Value;

use super::load::{Load, Plan};
use super::options::{MAX_WORKERS, Options};
use super::spans::Spans;
use super::tracer::Tracer;
use super::{alarm, keeper};
use crate::args::UsageError;
use crate::clock::Clock;
use crate::course::options::MAX_PAGES;
use crate::course::{Axis, Bench, Course, Entry, Program, Shape, Slice, Table, Turn};
use crate::{policy, realtime, report};

/// What `--help` prints.
pub const HELP: &str = "\
preemptoff: how late a SCHED_FIFO thread wakes up while others unmap memory on all
CPUs and some keep interrupts off, and how long the kernel had preemption off

usage: preemptoff [OPTION]...
  --threads LIST    low-priority threads, one a CPU              [2]
  --pages LIST      pages that each maps and unmaps at a time    [8]
  --period-us N     time between wake-ups                        [1000]
  --keepers N       CPUs that keep interrupts off now and then   [threads / 4, at least 1]
  --gap-us N        mean time between those times                [1000]
  --body-us N       their median (lognormal)                     [15]
  --body-sigma X    standard deviation of their logarithm        [0.5]
  --tail-us N       least time of the tail (Pareto)              [200]
  --tail-alpha X    its exponent                                 [1.2]
  --tail-share X    what part of them is from the tail           [0.02]
  --cut-us N        the longest time, at most 50000              [50000]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one interval                       [60]
  --rounds N        intervals of each policy                     [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, times with interrupts off [1]
  --help

A kernel without /proc/shootdown/irqoff keeps interrupts on, one without
/proc/shootdown/latency tells no spans; the rows say so.

exit status: 0 all well, 1 a stale page or a failed call, 2 bad arguments
";

/// The program `preemptoff`.
#[derive(Debug)]
pub struct Preemptoff {
    options: Options,
    tracer: Tracer,
    can_keep: bool,
}

impl Program for Preemptoff {
    const TABLE: &'static Table = &Table {
        program: "preemptoff",
        help: HELP,
        tasks: Axis {
            option: "--threads",
            default: &[2],
            range: 1..=MAX_WORKERS,
        },
        pages: Axis::pages(&[8], 1..=MAX_PAGES),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: false,
    };
    type Options = Options;
    type Bench<'a> = Watch<'a>;

    fn new(options: Options, course: &Course) -> Result<Self, UsageError> {
        options.fit(&course.tasks)?;
        let tracer = Tracer::start().map_err(|error| UsageError::new(error.to_string()))?;
        Ok(Self {
            options,
            tracer,
            can_keep: keeper::is_possible(),
        })
    }

    fn info(&self, info: &mut Value) {
        let (options, tail) = (&self.options, &self.options.tail);
        let micros = |duration: Duration| Value::from(duration.as_micros() as u64);
        info["period_us"] = micros(options.period);
        info["gap_us"] = micros(options.gap);
        info["body_us"] = micros(tail.body);
        info["body_sigma"] = tail.sigma.into();
        info["tail_us"] = micros(tail.least);
        info["tail_alpha"] = tail.alpha.into();
        info["tail_share"] = tail.share.into();
        info["cut_us"] = micros(tail.cut);
        info["can_keep_interrupts_off"] = self.can_keep.into();
        info["has_tracer"] = self.tracer.is_there().into();
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Watch<'a>> {
        let options = &self.options;
        let keepers = match self.can_keep {
            true => options.keepers(shape.tasks),
            false => 0,
        };
        let load = Load::start(Plan {
            cpus: &course.cpus[..shape.tasks],
            keepers,
            pages: shape.pages,
            tail: options.tail,
            gap: options.gap,
            seed: course.effort.seed,
        })?;
        Ok(Watch {
            program: self,
            course,
            load,
            keepers,
            is_fifo: take_priority(),
            rows: BTreeMap::new(),
        })
    }
}

fn take_priority() -> bool {
    let result = alarm::take_priority();
    if let Err(error) = &result {
        report::say(&format!(
            "preemptoff: measured by an ordinary thread, SCHED_FIFO was refused: {error}"
        ));
    }
    result.is_ok()
}

/// One shape.
#[derive(Debug)]
pub struct Watch<'a> {
    program: &'a Preemptoff,
    course: &'a Course,
    load: Load,
    /// CPUs that keep interrupts off now and then.
    keepers: usize,
    /// Whether the measuring thread has a higher priority than the load.
    is_fifo: bool,
    rows: BTreeMap<String, Spans>,
}

impl Watch<'_> {
    fn spans(&mut self, row: &str) -> &mut Spans {
        self.rows.entry(row.to_owned()).or_default()
    }
}

impl Bench for Watch<'_> {
    /// What the load began is finished before the record is read and the next policy selected.
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let tracer = &self.program.tracer;
        around();
        let done = self.load.tally();
        tracer.reset()?;
        self.load.work();
        let heard = alarm::ring(turn.length, self.program.options.period, turn.samples)?;
        self.load.rest()?;
        let record = tracer.read(self.load.cpus())?;
        around();
        let load = self.load.tally().since(done);
        if turn.is_recorded {
            let spans = self.spans(turn.row);
            spans.missed += heard.missed;
            spans.load.add(load);
            record.into_iter().for_each(|longest| spans.add(longest));
        }
        Ok(Slice {
            samples: heard.taken,
            operations: load.operations,
            ticks: 0,
            wrong: load.wrong,
        })
    }

    fn finish(&mut self) -> io::Result<u64> {
        self.load.end()?;
        if self.is_fifo {
            realtime::become_ordinary()?;
        }
        Ok(0)
    }

    /// Samples are in nanoseconds.
    fn time(&self, ns: u64, _: &Clock) -> Value {
        ns.into()
    }

    fn add_fields(&mut self, entry: &Entry<'_>, row: &mut Value) {
        row["fifo"] = self.is_fifo.into();
        row["keepers"] = self.keepers.into();
        row["wakeups"] = entry.row.total.samples.into();
        row["max_ns"] = entry.figures.sorted.last().copied().into();
        let limit = self.course.effort.row_samples;
        self.spans(&entry.row.policy).add_fields(limit, row);
    }
}
