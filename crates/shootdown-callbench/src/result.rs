//! [`Findings`]: what the turns of one contender in one row found, and the line for the lab.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;
use shootdown_peers::Peer;

use crate::plan::Plan;
use crate::row::Row;
use crate::tally::Counts;
use crate::turn::Log;

/// What was found of one contender in one row.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The time of each call, by initiator.
    pub(crate) calls_ns: Vec<Vec<u64>>,
    /// From the first call's beginning to the last one's end, by round.
    pub(crate) whole_ns: Vec<u64>,
    pub(crate) counts: Counts,
    pub(crate) wrong: u64,
}

impl Findings {
    /// Room for everything, so that nothing is allocated while others wait.
    pub(crate) fn with_room(row: &Row, plan: &Plan) -> Self {
        let room = |_| Vec::with_capacity(plan.calls * plan.rounds);
        Self {
            calls_ns: (0..row.initiators).map(room).collect(),
            whole_ns: Vec::with_capacity(plan.rounds),
            ..Self::default()
        }
    }

    /// Adds one turn: the logs of its initiators, in order.
    pub(crate) fn add<'a>(&mut self, logs: impl Iterator<Item = &'a Log>) {
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        for (log, calls_ns) in logs.zip(&mut self.calls_ns) {
            calls_ns.extend_from_slice(&log.calls_ns);
            first_ns = first_ns.min(log.first_ns);
            last_ns = last_ns.max(log.last_ns);
        }
        self.whole_ns.push(last_ns - first_ns);
    }

    /// The line, without its mark.
    pub(crate) fn line(&self, row: &Row, plan: &Plan, peer: Peer, facts: &Facts) -> String {
        let mut all: Vec<u64> = self.calls_ns.iter().flatten().copied().collect();
        all.sort_unstable();
        let initiator_p99_ns = self.calls_ns.iter().map(|calls_ns| {
            let mut sorted = calls_ns.clone();
            sorted.sort_unstable();
            at_per_mille(&sorted, 990)
        });
        let line = Line {
            workload: plan.workload.name(),
            peer: peer.name(),
            masks: row.masks.name(),
            initiators: row.initiators,
            targets: row.targets,
            function_ns: row.function_ns,
            rest: plan.rest.name(),
            cpus: facts.cpus,
            busy: row.busy(facts.cpus),
            calls: all.len(),
            wrong: self.wrong,
            min_ns: at_per_mille(&all, 0),
            median_ns: at_per_mille(&all, 500),
            p99_ns: at_per_mille(&all, 990),
            initiator_p99_ns: initiator_p99_ns.collect(),
            whole_ns: self.whole_ns.clone(),
            limit_ns: facts.limit_ns,
            ipis: self.counts.ipis,
            sends: self.counts.sends,
            entries: self.counts.entries,
            spurious: self.counts.spurious,
            runs: self.counts.runs,
            bytes: facts.bytes,
        };
        serde_json::to_string(&line).expect("numbers and plain words are always JSON")
    }
}

/// What belongs to a line and was not measured.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) cpus: usize,
    /// What nobody could be faster than in one round.
    pub(crate) limit_ns: u64,
    /// Memory of the contender.
    pub(crate) bytes: usize,
}

/// A result as the lab reads it.
#[derive(Debug, Serialize)]
struct Line {
    workload: &'static str,
    peer: &'static str,
    masks: &'static str,
    initiators: usize,
    targets: usize,
    function_ns: u64,
    rest: &'static str,
    cpus: usize,
    busy: usize,
    calls: usize,
    wrong: u64,
    min_ns: u64,
    median_ns: u64,
    p99_ns: u64,
    initiator_p99_ns: Vec<u64>,
    whole_ns: Vec<u64>,
    limit_ns: u64,
    ipis: u64,
    sends: u64,
    entries: u64,
    spurious: u64,
    runs: u64,
    bytes: usize,
}

/// The value that so many thousandths of the sorted values are below; 0 of none.
fn at_per_mille(sorted: &[u64], per_mille: usize) -> u64 {
    let last = sorted.len().saturating_sub(1);
    let at = (sorted.len() * per_mille / 1000).min(last);
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stay_inside() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!(
            [0, 500, 990, 1000].map(|rank| at_per_mille(&values, rank)),
            [1, 101, 199, 200]
        );
        assert_eq!(at_per_mille(&[], 500), 0);
    }
}
