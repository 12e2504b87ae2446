//! [`Row`]: one shape of calls.

use shootdown_peers::Masks;

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
    pub(crate) fn fits(&self, cpus: usize) -> bool {
        let most = self.masks.most_targets(self.initiators, cpus);
        self.initiators <= cpus && (1..=most).contains(&self.targets)
    }

    /// CPUs that are busy in it at a time, at most; the others rest.
    pub fn busy(&self, cpus: usize) -> usize {
        let targets = match self.masks {
            Masks::Random | Masks::Disjoint => self.initiators * self.targets,
            Masks::Identical => self.targets,
        };
        cpus.min(self.initiators + targets)
    }

    /// Whether it measures what the other does: one initiator's fixed masks are the same whatever they are called.
    pub(crate) fn repeats(&self, other: &Self) -> bool {
        let is_fixed =
            self.initiators == 1 && self.masks != Masks::Random && other.masks != Masks::Random;
        let same = Self {
            masks: if is_fixed { other.masks } else { self.masks },
            ..*self
        };
        same == *other
    }
}
