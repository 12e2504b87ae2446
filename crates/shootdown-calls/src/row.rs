//! [`Row`]: one shape of calls.

use alloc::vec::Vec;

use crate::masks::Masks;
use crate::plan::Plan;

/// One shape of calls, measured for each peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// How targets are drawn.
    pub masks: Masks,
    /// CPUs that call, the first ones.
    pub initiators: usize,
    /// Targets of each call.
    pub targets: usize,
    /// How long the function takes on each target.
    pub function_ns: u64,
}

impl Row {
    /// Whether a machine has CPUs for it.
    fn fits(&self, cpus: usize) -> bool {
        let most = self.masks.most_targets(self.initiators, cpus);
        self.initiators <= cpus && (1..=most).contains(&self.targets)
    }

    /// CPUs that are busy in it at a time, at most; the others rest.
    pub fn busy(&self, cpus: usize) -> usize {
        let targets = match self.masks {
            Masks::Random | Masks::Disjoint => self.initiators * self.targets,
            Masks::Identical | Masks::Idempotent => self.targets,
        };
        cpus.min(self.initiators + targets)
    }

    /// The shapes that a plan has on a machine of `cpus` CPUs, and how many it leaves out because they do not fit.
    pub(crate) fn all(plan: &Plan, cpus: usize) -> (Vec<Self>, usize) {
        let (mut rows, mut left_out) = (Vec::new(), 0);
        for &function_ns in &plan.function_ns {
            for &masks in &plan.masks {
                for (initiators, targets) in plan.shapes() {
                    let initiators = initiators.count(cpus);
                    let row = Self {
                        masks,
                        initiators,
                        targets: targets.count(masks.most_targets(initiators, cpus)),
                        function_ns,
                    };
                    match row.fits(cpus) {
                        false => left_out += 1,
                        true if rows.iter().any(|other| row.repeats(other)) => {}
                        true => rows.push(row),
                    }
                }
            }
        }
        (rows, left_out)
    }

    /// Whether it measures what the other does: one initiator's fixed masks are the same whatever they are called.
    fn repeats(&self, other: &Self) -> bool {
        let is_fixed =
            self.initiators == 1 && self.masks != Masks::Random && other.masks != Masks::Random;
        let same = Self {
            masks: if is_fixed { other.masks } else { self.masks },
            ..*self
        };
        same == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_that_fit_each_once() {
        let plan = Plan::parse("selected,initiators=1:2:all,targets=1:3:all,ns=0").unwrap();
        let (rows, left_out) = Row::all(&plan, 4);
        let shapes = |masks| -> Vec<(usize, usize)> {
            let those = rows.iter().filter(|row| row.masks == masks);
            those.map(|row| (row.initiators, row.targets)).collect()
        };
        assert_eq!(shapes(Masks::Disjoint), [(1, 1), (1, 3), (2, 1)]);
        assert_eq!(
            shapes(Masks::Random),
            [(1, 1), (1, 3), (2, 1), (2, 2), (4, 1), (4, 3)]
        );
        assert_eq!(shapes(Masks::Identical), [(2, 1), (2, 2)]);
        assert_eq!(left_out, 13);
    }
}
