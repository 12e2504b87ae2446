//! One row of the table: what was found for one policy, and how it is printed.

use serde_json::{Value, json};

use super::bench::{Bench, Checked, Shape, Slice};
use super::run::Course;
use crate::clock;
use crate::counters::{self, Counters};
use crate::policy::REFERENCE_POLICY;
use crate::report;
use crate::summary::{self, Summary};

/// Samples of one row, before thinning; they bound the memory a run needs.
const MAX_SAMPLES: usize = 1 << 19;

/// One operation's times, in ticks of its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// All of it.
    pub whole: u32,
    /// Of these, the system call alone, in which the flush is; 0 where it is not told apart.
    pub call: u32,
}

impl Sample {
    /// An operation of which no part is told apart.
    pub fn of(ticks: u64) -> Self {
        Self {
            whole: clock::narrow(ticks),
            call: 0,
        }
    }
}

/// What is gathered for one policy and shape.
#[derive(Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// Times of each operation; the first `total.samples` are filled.
    pub samples: Vec<Sample>,
    /// What all slices found, and what went wrong while the policy warmed up.
    pub total: Slice,
    /// What the check found.
    pub check: Checked,
    /// What the kernel's counters grew by during slices.
    pub counters: Counters,
}

impl Row {
    /// An empty row for `policy`.
    ///
    /// Make it after the last fork: the measured loop would pay for the copies of pages shared with the others.
    pub fn new(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            // Written, not just reserved: the measured loop must not fault on it.
            samples: vec![Sample { whole: 1, call: 1 }; MAX_SAMPLES],
            total: Slice::default(),
            check: Checked::default(),
            counters: Counters::new(),
        }
    }

    /// Adds what a slice found.
    pub fn add(&mut self, slice: Slice) {
        self.total.samples += slice.samples;
        self.total.operations += slice.operations;
        self.total.ticks += slice.ticks;
        self.total.wrong += slice.wrong;
    }

    /// Reads that saw what they must not.
    pub fn wrong(&self) -> u64 {
        self.total.wrong + self.check.wrong
    }

    /// The samples in order; `None` without any.
    fn summarise(&self) -> Option<Figures> {
        let taken = || self.samples[..self.total.samples].iter();
        let mut sorted: Vec<u32> = taken().map(|sample| sample.whole).collect();
        let whole = Summary::of(&mut sorted)?;
        let mut calls: Vec<u32> = taken().map(|sample| sample.call).collect();
        let call = Summary::of(&mut calls)?;
        Some(Figures {
            whole,
            call,
            sorted,
        })
    }
}

/// A row's samples, summarised.
#[derive(Debug)]
pub struct Figures {
    /// Whole operations.
    pub whole: Summary,
    /// The system call in each.
    pub call: Summary,
    /// Whole operations in ascending order.
    pub sorted: Vec<u32>,
}

/// A row of which all is found, to be printed.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The row.
    pub row: &'a Row,
    /// Its samples.
    pub figures: &'a Figures,
    reference: Option<&'a Figures>,
    course: &'a Course,
}

impl Entry<'_> {
    /// Adds the times of the calls, the throughput and the extent of the check.
    pub fn add_calls(&self, json: &mut Value) {
        let (clock, total, call) = (&self.course.clock, &self.row.total, &self.figures.call);
        let reference = self.reference.map(|figures| figures.call.median);
        let per_s = total.operations as f64 * clock.frequency() as f64 / total.ticks as f64;
        json["call_median_ns"] = clock.to_ns(call.median).into();
        json["call_p99_ns"] = clock.to_ns(call.p99).into();
        json["call_ratio"] = summary::ratio(call.median, reference).into();
        json["per_s"] = (total.ticks > 0).then_some(per_s.round()).into();
        json["check_rounds"] = self.row.check.rounds.into();
        json["check_reads"] = self.row.check.reads.into();
    }

    fn to_json(&self, shape: Shape, bench: &impl Bench) -> Value {
        let (row, whole) = (self.row, &self.figures.whole);
        let time = |ticks| bench.time(ticks, &self.course.clock);
        let reference = self.reference.map(|figures| figures.whole.median);
        let operations = row.total.operations;
        let thinned = summary::thin(&self.figures.sorted, self.course.effort.row_samples);
        let samples: Vec<Value> = thinned.iter().map(|&ticks| time(ticks.into())).collect();
        let mut json = json!({
            "policy": row.policy,
            (self.course.table.tasks.name()): shape.tasks,
            "pages": shape.pages,
            "median_ns": time(whole.median),
            "p99_ns": time(whole.p99),
            "min_ns": time(whole.min),
            "ratio": summary::ratio(whole.median, reference),
            "iterations": operations,
            "ipis_per_op": counters::share(counters::ipis_sent(&row.counters), operations),
            "stale": row.wrong(),
            "counters": counters::per_operation(&row.counters, operations),
            "samples": samples,
        });
        if !shape.operation.is_empty() {
            json["operation"] = shape.operation.into();
        }
        json
    }
}

/// Prints what the rows of `shape` found, beside the reference policy's.
pub fn print(rows: &[Row], shape: Shape, bench: &mut impl Bench, course: &Course) {
    for row in to_json(rows, shape, bench, course) {
        report::row(&row);
    }
}

fn to_json(rows: &[Row], shape: Shape, bench: &mut impl Bench, course: &Course) -> Vec<Value> {
    let figures: Vec<Option<Figures>> = rows.iter().map(Row::summarise).collect();
    let reference = rows.iter().position(|row| row.policy == REFERENCE_POLICY);
    let reference = reference.and_then(|index| figures[index].as_ref());
    let mut to_json = |(row, figures)| {
        let entry = Entry {
            row,
            figures,
            reference,
            course,
        };
        let mut json = entry.to_json(shape, bench);
        bench.add_fields(&entry, &mut json);
        json
    };
    let all = rows.iter().zip(&figures);
    all.filter_map(|(row, figures)| Some(to_json((row, figures.as_ref()?))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::bench::Program;
    use super::super::options::Options;
    use super::super::run::set_up;
    use super::*;
    use crate::madvise::Madvise;

    fn row(policy: &str, times: [u64; 3]) -> Row {
        let mut row = Row::new(policy);
        row.samples[..3].copy_from_slice(&times.map(Sample::of));
        row.add(Slice {
            samples: 3,
            operations: 4,
            ticks: 0,
            wrong: 1,
        });
        row
    }

    #[test]
    fn rows_have_their_order_statistics_and_their_ratio_to_the_reference() {
        let options = Options::parse(Madvise::TABLE, ["--samples", "2"]).unwrap();
        let (course, program) = set_up::<Madvise>(options.unwrap()).unwrap();
        let shape = Shape {
            tasks: 1,
            pages: 7,
            operation: "",
        };
        let mut bench = program.start(shape, &course).unwrap();
        let rows = [
            row("best", [30_000, 10_000, 20_000]),
            Row::new("nothing taken"),
            row("before", [40_000, 40_000, 50_000]),
        ];
        let json = to_json(&rows, shape, &mut bench, &course);
        let [best, before] = &json[..] else {
            panic!("{json:?}")
        };
        let ns = |ticks| course.clock.to_ns(ticks);
        for (name, wanted) in [
            ("threads", json!(1)),
            ("pages", json!(7)),
            ("min_ns", json!(ns(10_000))),
            ("median_ns", json!(ns(20_000))),
            ("p99_ns", json!(ns(30_000))),
            ("ratio", json!(0.5)),
            ("iterations", json!(4)),
            ("stale", json!(1)),
            ("samples", json!([ns(10_000), ns(30_000)])),
            ("per_s", json!(null)),
            ("check_reads", json!(0)),
        ] {
            assert_eq!(best[name], wanted, "{name}");
        }
        assert_eq!(before["ratio"], 1.0);
    }
}
