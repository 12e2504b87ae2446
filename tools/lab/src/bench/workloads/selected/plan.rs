//! [`Plan`]: the lines of the tables of `selected`.

use shootdown_callbench::Masks;
use shootdown_sim::workload::Peer;

use crate::bench::contest::{Asked, Count};
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
        if calls.lines {
            return Err(Failure::input(
                "selected does not tell which cache lines move",
                "use --lines with bench shoot",
            ));
        }
        let asked = Asked::of(calls)?;
        let machines = match &asked.cpus {
            Some(machines) => machines.clone(),
            None if calls.quick => CPUS[..1].to_vec(),
            None => CPUS.to_vec(),
        };
        let (normal, quick) = CALLS;
        let default_calls = if calls.quick { quick } else { normal };
        let plan = Self {
            lines: lines(&asked, calls.quick, &machines),
            peers: asked.peers,
            calls: asked.calls.unwrap_or(default_calls),
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

fn lines(asked: &Asked, is_quick: bool, machines: &[usize]) -> Vec<Line> {
    // Without a choice also all CPUs that do not call.
    let (initiators, targets) = match is_quick {
        true => (&QUICK_INITIATORS[..], Count::each(&QUICK_SIZES)),
        false => (
            &INITIATORS[..],
            [Count::each(&SIZES), vec![Count::All]].concat(),
        ),
    };
    let initiators = asked.initiators.clone().unwrap_or(Count::each(initiators));
    let targets = asked.targets.as_ref().unwrap_or(&targets);
    let functions_ps = asked.functions_ps.as_deref().unwrap_or(&FUNCTIONS_PS);
    let mut lines = Vec::new();
    for &cpus in machines {
        for &function_ps in functions_ps {
            for &masks in &asked.masks {
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
    lines
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
