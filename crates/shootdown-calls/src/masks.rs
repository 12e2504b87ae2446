//! [`Masks`]: whom initiators call.

use alloc::vec::Vec;

use fastrand::Rng;
use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::row::Row;

/// How the targets of a call are drawn, and what is called there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Masks {
    /// Each initiator has targets of its own, the same in every call.
    Disjoint,
    /// Each call draws anew, uniformly, without repetition.
    Random,
    /// All initiators have the same targets.
    Identical,
    /// As `Identical`, and all initiators lend the same function, which is idempotent.
    Idempotent,
}

impl Masks {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Disjoint,
        Self::Random,
        Self::Identical,
        Self::Idempotent,
    ];

    /// Its name in plans and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disjoint => "disjoint",
            Self::Random => "random",
            Self::Identical => "identical",
            Self::Idempotent => "idempotent",
        }
    }

    /// How many targets each of so many initiators can have on a machine of `cpus` CPUs. If all CPUs are initiators, only
    /// random masks have any.
    pub(crate) fn most_targets(self, initiators: usize, cpus: usize) -> usize {
        let others = cpus.saturating_sub(initiators);
        match self {
            Self::Random if others == 0 => cpus - 1,
            Self::Disjoint => others / initiators,
            _ => others,
        }
    }
}

/// The targets of each call of each initiator. Initiators are the first CPUs, and targets are others, unless all CPUs are
/// initiators: then each may call all but itself.
pub(crate) fn draw<const N: usize>(
    row: &Row,
    cpus: usize,
    calls: usize,
    seed: u64,
) -> Vec<Vec<CpuMask<N>>>
where
    Cpus<N>: Capacity,
{
    let mut random = Rng::with_seed(seed);
    let everybody = row.initiators == cpus;
    let first = if everybody { 0 } else { row.initiators };
    (0..row.initiators)
        .map(|initiator| {
            let candidates: Vec<usize> = (first..cpus)
                .filter(|cpu| !everybody || *cpu != initiator)
                .collect();
            (0..calls)
                .map(|_| choose(row, initiator, &candidates, &mut random))
                .collect()
        })
        .collect()
}

fn choose<const N: usize>(
    row: &Row,
    initiator: usize,
    candidates: &[usize],
    random: &mut Rng,
) -> CpuMask<N>
where
    Cpus<N>: Capacity,
{
    let size = row.targets;
    let chosen = match row.masks {
        Masks::Disjoint => candidates[initiator * size..][..size].to_vec(),
        Masks::Identical | Masks::Idempotent => candidates[..size].to_vec(),
        Masks::Random => random.choose_multiple(candidates.iter().copied(), size),
    };
    chosen
        .into_iter()
        .map(|cpu| CpuId::new(cpu as u32))
        .collect()
}

#[cfg(test)]
mod tests {
    use shootdown_peers::fifo_limit;

    use super::*;

    fn row(masks: Masks, initiators: usize, targets: usize) -> Row {
        Row {
            masks,
            initiators,
            targets,
            function_ns: 5,
        }
    }

    #[test]
    fn disjoint_calls_do_not_wait_and_identical_ones_queue() {
        let limit = |masks| {
            let drawn = draw::<16>(&row(masks, 4, 3), 16, 10, 1);
            fifo_limit(16, &drawn, |mask| mask.iter().map(CpuId::index), 5)
        };
        assert_eq!(limit(Masks::Disjoint), 50);
        assert_eq!(limit(Masks::Identical), 200);
        assert!((51..200).contains(&limit(Masks::Random)));
    }

    #[test]
    fn targets_are_no_initiators_unless_everybody_calls() {
        let drawn = draw::<16>(&row(Masks::Random, 2, 6), 8, 20, 1);
        let others: CpuMask<16> = (2..8).map(CpuId::new).collect();
        assert!(drawn.iter().flatten().all(|mask| *mask == others));
        let drawn = draw::<16>(&row(Masks::Random, 8, 7), 8, 20, 1);
        for (initiator, masks) in drawn.iter().enumerate() {
            let mut others = CpuMask::<16>::first(8);
            others.remove(CpuId::new(initiator as u32));
            assert!(masks.iter().all(|mask| *mask == others));
        }
    }
}
