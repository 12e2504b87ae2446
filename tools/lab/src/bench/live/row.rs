//! [`LiveRow`]: what one contender did in one shape of calls, as `shootdown-calls` prints it.

use serde::{Deserialize, Serialize};

use crate::machine::host_cores;
use crate::protocol::{self, Message};

/// A function that takes this long hides what the host's scheduler does to the calls.
pub const LONG_FUNCTION_NS: u64 = 100_000;

/// One result.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct LiveRow {
    /// `selected` or `shoot`.
    pub workload: String,
    /// Whose calls.
    pub peer: String,
    /// How targets were drawn.
    pub masks: String,
    /// CPUs that call.
    pub initiators: usize,
    /// Targets of each call.
    pub targets: usize,
    /// How long the function takes on each.
    pub function_ns: u64,
    /// What the others did meanwhile.
    pub rest: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// CPUs that the row keeps busy, resting ones left out.
    pub busy: usize,
    /// Calls of all initiators in all rounds.
    pub calls: u64,
    /// Calls that were not carried out as they should.
    pub wrong: u64,
    /// The fastest call.
    pub min_ns: u64,
    /// Half of the calls took less.
    pub median_ns: u64,
    /// One in a hundred took more.
    pub p99_ns: u64,
    /// The same, by initiator.
    pub initiator_p99_ns: Vec<u64>,
    /// From the first call's beginning to the last one's end, by round.
    pub whole_ns: Vec<u64>,
    /// What nobody could be faster than in a round.
    pub limit_ns: u64,
    /// Targets for which an interrupt was asked.
    pub ipis: u64,
    /// Times it was asked.
    pub sends: u64,
    /// Times a handler was entered.
    pub entries: u64,
    /// Times a handler found nothing to run.
    pub spurious: u64,
    /// Functions that ran.
    pub runs: u64,
    /// Memory of the contender.
    pub bytes: u64,
    /// Its times are counts of instructions: not the program's word but the lab's.
    #[serde(default)]
    pub counts_instructions: bool,
}

impl LiveRow {
    /// Reads one console line; nothing if it is no result.
    pub fn parse(line: &str) -> Option<Result<Self, String>> {
        match protocol::parse(line)? {
            Ok(Message::Row(row)) => {
                let row = serde_json::from_value(row.into());
                Some(row.map_err(|error| format!("a result row lacks something: {error}")))
            }
            Ok(_) => None,
            Err(garbled) => Some(Err(garbled.to_string())),
        }
    }

    /// The round in the middle.
    pub fn whole_median_ns(&self) -> u64 {
        let mut sorted = self.whole_ns.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or(0)
    }

    /// Whether it keeps more CPUs busy than the host has cores, and tells times: CPUs that rest by spinning are busy too.
    pub fn is_crowded(&self) -> bool {
        let busy = if self.rest == "halt" {
            self.busy
        } else {
            self.cpus
        };
        busy > host_cores() && !self.counts_instructions
    }

    /// Whether its times say something: the calls' own, or those of functions that are much longer.
    pub fn has_times(&self) -> bool {
        !self.is_crowded() || self.function_ns >= LONG_FUNCTION_NS
    }

    /// How much longer a round takes than the other contender's, in percent: the middle of all rounds, each against the
    /// other's of the same round, for the two come close together.
    pub fn change_against(&self, other: &Self) -> f64 {
        let rounds = self.whole_ns.iter().zip(&other.whole_ns);
        let mut changes: Vec<f64> = rounds
            .map(|(own, other)| (*own as f64 / (*other).max(1) as f64 - 1.0) * 100.0)
            .collect();
        changes.sort_by(f64::total_cmp);
        changes.get(changes.len() / 2).copied().unwrap_or(0.0)
    }

    /// So many of a count a call.
    pub fn per_call(&self, count: u64) -> f64 {
        count as f64 / self.calls.max(1) as f64
    }

    /// The slowest initiator's 99th percentile by the fastest one's.
    pub fn unfairness(&self) -> f64 {
        let least = self.initiator_p99_ns.iter().min().copied().unwrap_or(0);
        let most = self.initiator_p99_ns.iter().max().copied().unwrap_or(0);
        most as f64 / least.max(1) as f64
    }

    /// Whether one run may serve several calls.
    pub fn may_merge(&self) -> bool {
        self.masks == "idempotent"
    }

    /// Whether it is another contender's row of the same shape.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        let shape = |row: &Self| {
            let numbers = (row.initiators, row.targets, row.function_ns, row.cpus);
            (row.masks.clone(), numbers)
        };
        shape(self) == shape(other)
    }
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
        let row = LiveRow::parse(&line("best", 7)).unwrap().unwrap();
        assert_eq!((row.whole_median_ns(), row.per_call(row.ipis)), (7, 0.5));
        assert!((row.unfairness() - 1.5).abs() < 1e-9);
        assert!(LiveRow::parse("calls: done rows=1 wrong=0").is_none());
        assert!(LiveRow::parse(r#"@row {"peer":"best"}"#).unwrap().is_err());
    }
}
