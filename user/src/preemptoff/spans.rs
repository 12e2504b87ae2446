//! What a row of `preemptoff` has besides its wake-ups.

use serde_json::{Value, json};

use super::board::Tally;
use super::tracer::Longest;
use crate::clock::narrow;
use crate::summary::{Summary, thin};

/// What is gathered for one policy and shape.
#[derive(Debug, Default)]
pub struct Spans {
    /// Moments that passed during a longer delay.
    pub missed: u64,
    /// What the load did.
    pub load: Tally,
    off: Vec<u32>,
    ipi_waits: Vec<u32>,
    longest: Longest,
}

impl Spans {
    /// Adds what an interval's record says of one CPU.
    pub fn add(&mut self, longest: Longest) {
        self.off.push(narrow(longest.off_ns));
        self.ipi_waits.extend(longest.ipi_wait_ns.map(narrow));
        if longest.off_ns > self.longest.off_ns {
            self.longest = longest;
        }
    }

    /// Adds them to a row, with at most `limit` samples: the longest spans with preemption off are one for each CPU and
    /// interval, and nothing where the kernel keeps no record.
    pub fn add_fields(&mut self, limit: usize, row: &mut Value) {
        row["missed"] = self.missed.into();
        row["irq_offs"] = self.load.kept.into();
        row["check_reads"] = self.load.reads.into();
        if let Some(off) = Summary::of(&mut self.off) {
            row["off_p50_ns"] = off.median.into();
            row["off_p99_ns"] = off.p99.into();
            row["off_max_ns"] = self.longest.off_ns.into();
            row["off_at"] = json!(self.longest.off_at);
            row["off_samples"] = thin(&self.off, limit).into();
        }
        if let Some(waits) = Summary::of(&mut self.ipi_waits) {
            row["ipi_wait_p50_ns"] = waits.median.into();
            row["ipi_wait_p99_ns"] = waits.p99.into();
            row["ipi_wait_samples"] = thin(&self.ipi_waits, limit).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_maxima_of_all_intervals_and_where_the_longest_began() {
        let mut spans = Spans::default();
        for (off_ns, place) in [(5, "a:1"), (900, "b:2"), (7, "c:3")] {
            spans.add(Longest {
                cpu: 0,
                off_ns,
                off_at: Some(place.to_owned()),
                ipi_wait_ns: Some(off_ns / 2),
            });
        }
        let mut row = json!({});
        spans.add_fields(10, &mut row);
        let expected = json!({
            "missed": 0,
            "irq_offs": 0,
            "check_reads": 0,
            "off_p50_ns": 7,
            "off_p99_ns": 900,
            "off_max_ns": 900,
            "off_at": "b:2",
            "off_samples": [5, 7, 900],
            "ipi_wait_p50_ns": 3,
            "ipi_wait_p99_ns": 450,
            "ipi_wait_samples": [2, 3, 450],
        });
        assert_eq!(row, expected);
    }

    #[test]
    fn without_a_record_there_are_no_spans() {
        let mut row = json!({});
        Spans::default().add_fields(10, &mut row);
        assert!(row.get("off_p99_ns").is_none() && row.get("ipi_wait_p99_ns").is_none());
    }
}
