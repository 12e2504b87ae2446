//! The rows of `bench selected` (table T5), and its part of the result.

use serde_json::{Value, json};
use shootdown_sim::workload::{Masks, PUBLISHED_SELECTED, Peer, Selected, SelectedResult};

use super::lists::{self, Count, Draw};
use super::{command, farm};
use crate::bench::sim::Setup;
use crate::cli_calls::Calls;
use crate::failure::{Failure, Outcome};

/// The algorithm that all percentages refer to.
pub const REFERENCE: Peer = Peer::OneLock;
/// Machines; only random masks depend on the number of CPUs, so the others are drawn on the first.
const CPUS: [usize; 2] = [128, 192];
const INITIATORS: [usize; 5] = [1, 2, 4, 8, 16];
const QUICK_INITIATORS: [usize; 2] = [1, 4];
const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK_SIZES: [usize; 4] = [1, 4, 16, 64];
/// 500 us, as in the published table, and nothing.
const FUNCTIONS_PS: [u64; 2] = [500_000_000, 0];
/// Calls of an initiator: as a rule, and for a look.
const CALLS: (usize, usize) = (50, 20);

/// What one line of a table is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    pub cpus: usize,
    pub function_ps: u64,
    pub draw: Draw,
    pub initiators: usize,
    pub targets: usize,
}

/// A line of every peer.
#[derive(Debug)]
pub struct Measured {
    pub line: Line,
    pub results: Vec<(Peer, SelectedResult)>,
}

/// What is measured.
#[derive(Debug)]
pub struct Plan {
    pub lines: Vec<Line>,
    pub peers: Vec<Peer>,
    pub calls: usize,
}

impl Plan {
    /// What the caller asks for.
    ///
    /// # Errors
    /// No machine has room for it.
    pub fn new(calls: &Calls) -> Outcome<Self> {
        let machines = match calls.cpus {
            Some(cpus) => vec![command::machine_size(cpus)?],
            None if calls.quick => CPUS[..1].to_vec(),
            None => CPUS.to_vec(),
        };
        let (normal, quick) = CALLS;
        let plan = Self {
            lines: lines(calls, &machines)?,
            peers: lists::peers(calls)?,
            calls: match lists::number_of_calls(calls)? {
                Some(asked) => asked,
                None if calls.quick => quick,
                None => normal,
            },
        };
        if plan.lines.is_empty() {
            return Err(Failure::input(
                format!(
                    "no such masks fit into {} CPUs beside the initiators",
                    machines[0]
                ),
                "ask for fewer --initiators or --targets, or for more --cpus",
            ));
        }
        Ok(plan)
    }

    /// Runs all of it.
    ///
    /// # Errors
    /// This host starts no threads.
    pub fn measure(&self, calls: &Calls, setup: &Setup) -> Outcome<Vec<Measured>> {
        // The reference is measured in any case.
        let mut peers = self.peers.clone();
        if !peers.contains(&REFERENCE) {
            peers.push(REFERENCE);
        }
        let rows: Vec<Selected> = self
            .lines
            .iter()
            .flat_map(|line| peers.iter().map(|peer| self.row(line, *peer, calls, setup)))
            .collect();
        let results = farm::all("rows", &rows, Selected::run)?;
        let mut results = rows.iter().map(|row| row.peer).zip(results);
        let measured = |line: &Line| Measured {
            line: *line,
            results: results.by_ref().take(peers.len()).collect(),
        };
        Ok(self.lines.iter().map(measured).collect())
    }

    fn row(&self, line: &Line, peer: Peer, calls: &Calls, setup: &Setup) -> Selected {
        Selected {
            peer,
            initiators: line.initiators,
            size: line.targets,
            masks: line.draw.masks(),
            cpus: line.cpus,
            function_ps: line.function_ps,
            calls: self.calls,
            costs: setup.costs().clone(),
            seed: calls.seed,
        }
    }
}

fn lines(calls: &Calls, machines: &[usize]) -> Outcome<Vec<Line>> {
    let (draws, functions_ps) = (
        lists::draws(calls)?,
        lists::functions_ps(calls, &FUNCTIONS_PS)?,
    );
    let default: &[usize] = if calls.quick {
        &QUICK_INITIATORS
    } else {
        &INITIATORS
    };
    let initiators = lists::counts("initiators", calls.initiators.as_deref())?
        .unwrap_or_else(|| default.iter().copied().map(Count::Some).collect());
    let targets = targets(calls)?;
    let mut lines = Vec::new();
    for &cpus in machines {
        for &function_ps in &functions_ps {
            for &draw in &draws {
                if cpus != machines[0] && draw.masks() != Masks::Random {
                    continue;
                }
                for initiators in initiators.iter().map(|count| count.of(cpus - 1)) {
                    let mut sizes: Vec<usize> = targets
                        .iter()
                        .map(|count| count.of(cpus.saturating_sub(initiators)))
                        .collect();
                    sizes.dedup();
                    let line = |targets| Line {
                        cpus,
                        function_ps,
                        draw,
                        initiators,
                        targets,
                    };
                    lines.extend(sizes.into_iter().map(line).filter(Line::fits));
                }
            }
        }
    }
    Ok(lines)
}

/// Without a choice also all CPUs that do not call.
fn targets(calls: &Calls) -> Outcome<Vec<Count>> {
    let asked = lists::counts("targets", calls.targets.as_deref())?;
    Ok(asked.unwrap_or_else(|| {
        let some = |sizes: &[usize]| sizes.iter().copied().map(Count::Some).collect();
        match calls.quick {
            true => some(&QUICK_SIZES),
            false => {
                let mut all: Vec<Count> = some(&SIZES);
                all.push(Count::All);
                all
            }
        }
    }))
}

impl Line {
    /// Whether the machine has so many CPUs.
    fn fits(&self) -> bool {
        let needed = match self.draw.masks() {
            Masks::Disjoint => self.initiators * self.targets,
            _ => self.targets,
        };
        needed > 0 && self.initiators + needed <= self.cpus
    }

    /// What the authors of T5 measured, in percent; they do not say how their masks were drawn.
    pub fn published(&self) -> Option<f64> {
        let column = [1, 2, 4].iter().position(|n| *n == self.initiators)?;
        if self.function_ps != FUNCTIONS_PS[0] || self.draw == Draw::Idempotent {
            return None;
        }
        let row = PUBLISHED_SELECTED
            .iter()
            .find(|(size, _)| *size == self.targets);
        row.map(|(_, percents)| percents[column])
    }
}

impl Measured {
    /// The result of a peer.
    pub fn of(&self, peer: Peer) -> Option<&SelectedResult> {
        let mut results = self.results.iter();
        results
            .find(|(other, _)| *other == peer)
            .map(|(_, result)| result)
    }

    /// A time against the reference's, in percent.
    fn change(&self, whole_ps: u64) -> f64 {
        let base_ps = self.of(REFERENCE).map_or(1, |base| base.whole_ps);
        100.0 * (whole_ps as f64 / base_ps as f64 - 1.0)
    }

    /// The whole time of a peer against the reference's, in percent.
    pub fn change_of(&self, peer: Peer) -> Option<f64> {
        Some(self.change(self.of(peer)?.whole_ps))
    }

    /// What the same masks allow whoever serves first come, first served, in percent; where that means anything.
    pub fn limit(&self) -> Option<f64> {
        let is_meant = self.line.function_ps > 0 && self.line.draw != Draw::Idempotent;
        is_meant.then(|| self.change(self.results[0].1.limit_ps))
    }

    /// The rows of the result.
    pub fn objects(&self, peers: &[Peer]) -> Vec<Value> {
        let Line {
            cpus,
            function_ps,
            draw,
            initiators,
            targets,
        } = self.line;
        let object = |peer: &Peer| {
            let result = self.of(*peer)?;
            Some(json!({
                "machine": "sim", "accel": "virtual time", "peer": peer.name(), "cpus": cpus,
                "function_ns": function_ps as f64 / 1000.0, "masks": draw.name(),
                "initiators": initiators, "targets": targets,
                "change_percent": self.change(result.whole_ps), "limit_percent": self.limit(),
                "published_percent": self.line.published(),
                "whole_ns": result.whole_ps as f64 / 1000.0,
                "median_ns": result.quantile_ns(500), "p99_ns": result.quantile_ns(990),
                "unfairness": result.unfairness(),
                "runs": result.runs, "lines": result.lines,
            }))
        };
        peers.iter().filter_map(object).collect()
    }
}
