//! One row of the table: what was found for one policy, and how it is printed.

use serde_json::{Value, json};

use super::board::Tally;
use super::tracer::Longest;
use crate::counters::{self, Counters};
use crate::summary::{self, Summary};

/// Wake-ups of one row; they bound the memory a run needs.
const MAX_SAMPLES: usize = 1 << 18;

/// The axes of the table, but for the policy.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Low-priority threads, one a CPU.
    pub threads: usize,
    /// Pages that each maps at a time.
    pub pages: usize,
}

/// What is the same for all rows of a shape.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The shape.
    pub shape: Shape,
    /// CPUs that keep interrupts off now and then.
    pub keepers: usize,
    /// Whether the measuring thread has a higher priority than the load.
    pub is_fifo: bool,
}

/// What is gathered for one policy and shape.
#[derive(Debug)]
pub struct Row {
    /// The policy's name.
    pub policy: String,
    /// How late each wake-up was, in ns; the first `taken` are filled.
    pub samples: Vec<u32>,
    /// Samples taken.
    pub taken: usize,
    /// Moments that passed during a longer delay.
    pub missed: u64,
    /// What the load did.
    pub load: Tally,
    /// What the kernel's counters grew by.
    pub counters: Counters,
    off: Vec<u32>,
    ipi_waits: Vec<u32>,
    longest: Longest,
}

impl Row {
    /// An empty row for `policy`; make it after forking the load, or the first samples pay for copies of pages.
    pub fn new(policy: &str) -> Self {
        Self {
            policy: policy.to_owned(),
            // Written, not just reserved: the measured loop must not fault on it.
            samples: vec![1; MAX_SAMPLES],
            taken: 0,
            missed: 0,
            load: Tally::default(),
            counters: Counters::new(),
            off: Vec::new(),
            ipi_waits: Vec::new(),
            longest: Longest::default(),
        }
    }

    /// Adds what an interval's record says of one CPU.
    pub fn add(&mut self, longest: Longest) {
        let narrow = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        self.off.push(narrow(longest.off_ns));
        self.ipi_waits.extend(longest.ipi_wait_ns.map(narrow));
        if longest.off_ns > self.longest.off_ns {
            self.longest = longest;
        }
    }

    /// Adds what the load did in an interval.
    pub fn add_load(&mut self, load: Tally) {
        self.load.operations += load.operations;
        self.load.reads += load.reads;
        self.load.wrong += load.wrong;
        self.load.kept += load.kept;
    }

    /// Sorts and summarises the wake-ups; `None` without any.
    pub fn summarise(&mut self) -> Option<Summary> {
        Summary::of(&mut self.samples[..self.taken])
    }

    /// The row for the lab, with at most `limit` samples; `reference` is what the ratio is to. Call after
    /// [`Row::summarise`], which sorts the samples.
    pub fn to_json(
        &mut self,
        setting: Setting,
        late: &Summary,
        reference: Option<&Summary>,
        limit: usize,
    ) -> Value {
        let operations = self.load.operations;
        let mut row = json!({
            "policy": self.policy,
            "threads": setting.shape.threads,
            "pages": setting.shape.pages,
            "median_ns": late.median,
            "p99_ns": late.p99,
            "min_ns": late.min,
            "max_ns": self.samples[..self.taken].last(),
            "ratio": summary::ratio(late.median, reference.map(|summary| summary.median)),
            "wakeups": self.taken,
            "missed": self.missed,
            "fifo": setting.is_fifo,
            "keepers": setting.keepers,
            "irq_offs": self.load.kept,
            "iterations": operations,
            "ipis_per_op": counters::share(counters::ipis_sent(&self.counters), operations),
            "stale": self.load.wrong,
            "check_reads": self.load.reads,
            "counters": counters::per_operation(&self.counters, operations),
            "samples": summary::thin(&self.samples[..self.taken], limit),
        });
        self.add_spans(&mut row, limit);
        row
    }

    /// The longest spans with preemption off, one for each CPU and interval; nothing where the kernel keeps no record.
    fn add_spans(&mut self, row: &mut Value, limit: usize) {
        if let Some(off) = Summary::of(&mut self.off) {
            row["off_p50_ns"] = off.median.into();
            row["off_p99_ns"] = off.p99.into();
            row["off_max_ns"] = self.longest.off_ns.into();
            row["off_at"] = json!(self.longest.off_at);
            row["off_samples"] = summary::thin(&self.off, limit).into();
        }
        if let Some(waits) = Summary::of(&mut self.ipi_waits) {
            row["ipi_wait_p50_ns"] = waits.median.into();
            row["ipi_wait_p99_ns"] = waits.p99.into();
            row["ipi_wait_samples"] = summary::thin(&self.ipi_waits, limit).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: Setting = Setting {
        shape: Shape {
            threads: 2,
            pages: 8,
        },
        keepers: 1,
        is_fifo: true,
    };

    fn row() -> Row {
        let mut row = Row::new("best");
        row.samples[..3].copy_from_slice(&[30, 10, 20]);
        row.taken = 3;
        row.add_load(Tally {
            operations: 4,
            ..Tally::default()
        });
        row
    }

    #[test]
    fn a_row_has_the_maxima_of_all_intervals_and_where_the_longest_began() {
        let mut row = row();
        for (off_ns, place) in [(5, "a:1"), (900, "b:2"), (7, "c:3")] {
            row.add(Longest {
                cpu: 0,
                off_ns,
                off_at: Some(place.to_owned()),
                ipi_wait_ns: Some(off_ns / 2),
            });
        }
        let late = row.summarise().unwrap();
        let json = row.to_json(SETTING, &late, None, 10);
        assert_eq!(
            (&json["median_ns"], &json["max_ns"]),
            (&20.into(), &30.into())
        );
        assert_eq!(
            (&json["off_p50_ns"], &json["off_p99_ns"]),
            (&7.into(), &900.into())
        );
        assert_eq!(
            (&json["off_at"], &json["off_samples"]),
            (&"b:2".into(), &json!([5, 7, 900]))
        );
        assert_eq!(json["ipi_wait_p99_ns"], 450);
        assert_eq!(json["iterations"], 4);
    }

    #[test]
    fn without_a_record_there_are_no_spans() {
        let mut row = row();
        let late = row.summarise().unwrap();
        let json = row.to_json(SETTING, &late, Some(&late), 2);
        assert!(json.get("off_p99_ns").is_none() && json.get("ipi_wait_p99_ns").is_none());
        assert_eq!(json["ratio"], 1.0);
        assert_eq!(json["samples"].as_array().map(Vec::len), Some(2));
    }
}
