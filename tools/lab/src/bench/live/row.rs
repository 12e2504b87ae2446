//! What is said of a row: what one contender did in one shape of calls, as `shootdown-callbench` prints it.

use crate::bench::row::Row;
use crate::machine::host_cores;
use crate::protocol::{self, Message};

/// A function that takes this long hides what the host's scheduler does to the calls.
pub const LONG_FUNCTION_NS: u64 = 100_000;
/// What every row has besides lists.
const KEYS: [&str; 16] = [
    "initiators",
    "targets",
    "function_ns",
    "cpus",
    "busy",
    "calls",
    "wrong",
    "min_ns",
    "median_ns",
    "p99_ns",
    "limit_ns",
    "ipis",
    "sends",
    "entries",
    "spurious",
    "runs",
];
/// What contenders have in common.
const SHAPE: [&str; 5] = ["masks", "initiators", "targets", "function_ns", "cpus"];

/// Reads one console line; nothing if it is no result.
pub fn parse(line: &str) -> Option<Result<Row, String>> {
    let row = match protocol::parse(line)? {
        Ok(Message::Row(row)) => Row(row),
        Ok(_) => return None,
        Err(garbled) => return Some(Err(garbled.to_string())),
    };
    let lacks = |key: &&&str| row.number(key).is_none();
    Some(match KEYS.iter().find(lacks) {
        Some(key) => Err(format!("a result row lacks something: {key}")),
        None => Ok(row),
    })
}

impl Row {
    /// The round in the middle.
    pub fn whole_median_ns(&self) -> f64 {
        middle(self.numbers("whole_ns"))
    }

    /// Whether it keeps more CPUs busy than the host has cores, and tells times: CPUs that rest by spinning are busy too.
    pub fn crowds_host(&self) -> bool {
        let busy = match self.text("rest") {
            "halt" => "busy",
            _ => "cpus",
        };
        let counts_instructions = self.0.get("counts_instructions") == Some(&true.into());
        self.count(busy) > host_cores() as u64 && !counts_instructions
    }

    /// Whether its times say something: the calls' own, or those of functions that are much longer.
    pub fn has_times(&self) -> bool {
        !self.crowds_host() || self.count("function_ns") >= LONG_FUNCTION_NS
    }

    /// How much longer a round takes than the other contender's, in percent: the middle of all rounds, each against the
    /// other's of the same round, for the two come close together.
    pub fn change_against(&self, other: &Self) -> f64 {
        let rounds = self.numbers("whole_ns").zip(other.numbers("whole_ns"));
        middle(rounds.map(|(own, other)| (own / other.max(1.0) - 1.0) * 100.0))
    }

    /// So many of a count a call.
    pub fn per_call(&self, key: &str) -> f64 {
        self.count(key) as f64 / self.count("calls").max(1) as f64
    }

    /// The slowest initiator's 99th percentile by the fastest one's.
    pub fn unfairness(&self) -> f64 {
        let p99_ns = || self.numbers("initiator_p99_ns");
        let most = p99_ns().fold(0.0, f64::max);
        most / p99_ns().reduce(f64::min).unwrap_or(0.0).max(1.0)
    }

    /// Whether one run may serve several calls.
    pub fn may_merge(&self) -> bool {
        self.text("masks") == "idempotent"
    }

    /// Whether it is another contender's row of the same shape.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.agrees(other, &SHAPE)
    }
}

/// The middle one; 0 of none.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A result with the usual figures.
    pub(crate) fn line(peer: &str, whole_ns: u64) -> String {
        format!(
            r#"@row {{"workload":"selected","peer":"{peer}","masks":"disjoint","initiators":2,"targets":1,
            "function_ns":0,"rest":"busy","cpus":4,"busy":4,"calls":10,"wrong":0,"min_ns":1,"median_ns":2,
            "p99_ns":3,"initiator_p99_ns":[2,3],"whole_ns":[{whole_ns},{whole_ns},1],"limit_ns":0,"ipis":5,"sends":5,
            "entries":5,"spurious":0,"runs":10,"bytes":64}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn results_are_read_and_others_left() {
        let row = parse(&line("best", 7)).unwrap().unwrap();
        assert_eq!((row.whole_median_ns(), row.per_call("ipis")), (7.0, 0.5));
        assert!((row.unfairness() - 1.5).abs() < 1e-9);
        assert!(parse("calls: done rows=1 wrong=0").is_none());
        assert!(parse(r#"@row {"peer":"best"}"#).unwrap().is_err());
    }
}
