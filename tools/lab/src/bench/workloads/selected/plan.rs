//! [`Plan`]: the lines of the tables of `selected`.

use shootdown_callbench::Masks;
use shootdown_sim::workload::Peer;

use crate::bench::contest::{
    Count, counts, draws, functions_ps, machine_size, number_of_calls, peers,
};
use crate::cli::Calls;
use crate::failure::{Failure, Outcome};

/// Machines; only random masks depend on the number of CPUs, so the others are drawn on the first.
const CPUS: [usize; 2] = [128, 192];
const INITIATORS: [usize; 5] = [1, 2, 4, 8, 16];
const QUICK_INITIATORS: [usize; 2] = [1, 4];
const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const QUICK_SIZES: [usize; 4] = [1, 4, 16, 64];
/// 500 us, as in the published table, and nothing.
pub const FUNCTIONS_PS: [u64; 2] = [500_000_000, 0];
/// Calls of an initiator: as a rule, and for a look.
const CALLS: (usize, usize) = (50, 20);

/// What one line of a table is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line {
    pub cpus: usize,
    pub function_ps: u64,
    pub masks: Masks,
    pub initiators: usize,
    pub targets: usize,
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
            Some(cpus) => vec![machine_size(cpus)?],
            None if calls.quick => CPUS[..1].to_vec(),
            None => CPUS.to_vec(),
        };
        let (normal, quick) = CALLS;
        let plan = Self {
            lines: lines(calls, &machines)?,
            peers: peers(calls)?,
            calls: match number_of_calls(calls)? {
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
}

fn lines(calls: &Calls, machines: &[usize]) -> Outcome<Vec<Line>> {
    let (draws, functions_ps) = (draws(calls)?, functions_ps(calls, &FUNCTIONS_PS)?);
    let some = |counts: &[usize]| counts.iter().copied().map(Count::Some).collect();
    let default: &[usize] = if calls.quick {
        &QUICK_INITIATORS
    } else {
        &INITIATORS
    };
    let initiators = counts("initiators", calls.initiators.as_deref())?;
    let initiators: Vec<Count> = initiators.unwrap_or_else(|| some(default));
    // Without a choice also all CPUs that do not call.
    let targets = counts("targets", calls.targets.as_deref())?;
    let targets: Vec<Count> = targets.unwrap_or_else(|| match calls.quick {
        true => some(&QUICK_SIZES),
        false => [some(&SIZES), vec![Count::All]].concat(),
    });
    let mut lines = Vec::new();
    for &cpus in machines {
        for &function_ps in &functions_ps {
            for &masks in &draws {
                if cpus != machines[0] && masks != Masks::Random {
                    continue;
                }
                for initiators in initiators.iter().map(|count| count.of(cpus - 1)) {
                    let most = cpus.saturating_sub(initiators);
                    let mut sizes: Vec<usize> =
                        targets.iter().map(|count| count.of(most)).collect();
                    sizes.dedup();
                    let line = |targets| Line {
                        cpus,
                        function_ps,
                        masks,
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

impl Line {
    /// Whether the machine has so many CPUs.
    fn fits(&self) -> bool {
        let needed = match self.masks {
            Masks::Disjoint => self.initiators * self.targets,
            _ => self.targets,
        };
        needed > 0 && self.initiators + needed <= self.cpus
    }
}
