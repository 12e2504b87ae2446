//! [`Masks`]: whom initiators call.

use alloc::vec::Vec;
use core::fmt;

use fastrand::Rng;
use shootdown::{Capacity, CpuId, CpuMask};

/// How the targets of a call are drawn, and what is called there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Masks {
    /// Each initiator has targets of its own, the same in every call.
    Disjoint,
    /// Each call draws anew, uniformly, without repetition.
    Random,
    /// All initiators have the same targets.
    Identical,
}

impl Masks {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Disjoint, Self::Random, Self::Identical];

    /// Its name in plans and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disjoint => "disjoint",
            Self::Random => "random",
            Self::Identical => "identical",
        }
    }

    /// How many targets each of so many initiators can have on a machine of `cpus` CPUs. If all CPUs are initiators, only
    /// random masks have any.
    pub fn most_targets(self, initiators: usize, cpus: usize) -> usize {
        let others = cpus.saturating_sub(initiators);
        match self {
            Self::Random if others == 0 => cpus - 1,
            Self::Disjoint => others / initiators,
            _ => others,
        }
    }

    /// The targets of each call of each initiator, `targets` each. Initiators are the first CPUs, and targets are others, unless all
    /// CPUs are initiators: then each may call all but itself.
    ///
    /// # Panics
    /// With more than [`most_targets`](Self::most_targets).
    pub fn draw<C: Capacity>(
        self,
        seed: u64,
        initiators: usize,
        calls: usize,
        targets: usize,
        cpus: usize,
    ) -> Vec<Vec<CpuMask<C>>> {
        assert!(
            targets <= self.most_targets(initiators, cpus),
            "{cpus} CPUs are too few for {initiators} initiators with {targets} {self} targets each"
        );
        let mut random = Rng::with_seed(seed);
        let everybody = initiators == cpus;
        let first = if everybody { 0 } else { initiators };
        (0..initiators)
            .map(|initiator| {
                let candidates: Vec<usize> = (first..cpus)
                    .filter(|cpu| !everybody || *cpu != initiator)
                    .collect();
                let chosen = |_| match self {
                    Self::Disjoint => candidates[initiator * targets..][..targets].to_vec(),
                    Self::Identical => candidates[..targets].to_vec(),
                    Self::Random => random.choose_multiple(candidates.iter().copied(), targets),
                };
                let mask = |chosen: Vec<usize>| {
                    let cpus = chosen.into_iter().map(|cpu| CpuId::new(cpu as u32));
                    cpus.collect()
                };
                (0..calls).map(chosen).map(mask).collect()
            })
            .collect()
    }
}

impl fmt::Display for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fifo_limit;

    #[test]
    fn disjoint_calls_do_not_wait_and_identical_ones_queue() {
        let limit =
            |masks: Masks| fifo_limit(&masks.draw::<shootdown::Cpus<16>>(1, 4, 10, 3, 16), 5);
        assert_eq!(limit(Masks::Disjoint), 50);
        assert_eq!(limit(Masks::Identical), 200);
        assert!((51..200).contains(&limit(Masks::Random)));
    }

    #[test]
    fn targets_are_no_initiators_unless_everybody_calls() {
        let drawn = Masks::Random.draw::<shootdown::Cpus<16>>(1, 2, 20, 6, 8);
        let others: CpuMask<shootdown::Cpus<16>> = (2..8).map(CpuId::new).collect();
        assert!(drawn.iter().flatten().all(|mask| *mask == others));
        let drawn = Masks::Random.draw::<shootdown::Cpus<16>>(1, 8, 20, 7, 8);
        for (initiator, masks) in drawn.iter().enumerate() {
            let mut others = CpuMask::<shootdown::Cpus<16>>::first(8);
            others.remove(CpuId::new(initiator as u32));
            assert!(masks.iter().all(|mask| *mask == others));
        }
    }
}
