//! [`Masks`]: whom initiators call.

use std::fmt;

use shootdown_peers::fifo_limit;

/// How the targets of a call are drawn. Initiators are CPUs `0..initiators` and never targets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Masks {
    /// Each initiator has targets of its own, the same in every call.
    Disjoint,
    /// Each call draws anew among all CPUs that are no initiators, uniformly, without repetition.
    Random,
    /// All initiators have the same targets.
    Identical,
}

impl Masks {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Disjoint, Self::Random, Self::Identical];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disjoint => "disjoint",
            Self::Random => "random",
            Self::Identical => "identical",
        }
    }

    /// The targets of every call of every initiator: `calls` lists of `size` CPUs below `cpus` each.
    ///
    /// # Panics
    /// When there are too few CPUs for them.
    pub fn draw(
        self,
        seed: u64,
        initiators: usize,
        calls: usize,
        size: usize,
        cpus: usize,
    ) -> Vec<Vec<Vec<usize>>> {
        let needed = match self {
            Self::Disjoint => initiators * size,
            Self::Random | Self::Identical => size,
        };
        assert!(
            cpus >= initiators + needed,
            "{cpus} CPUs are too few for {initiators} initiators with {size} {self} targets each"
        );
        let mut random = fastrand::Rng::with_seed(seed);
        let candidates: Vec<usize> = (initiators..cpus).collect();
        (0..initiators)
            .map(|initiator| {
                (0..calls)
                    .map(|_| match self {
                        Self::Disjoint => candidates[initiator * size..][..size].to_vec(),
                        Self::Identical => candidates[..size].to_vec(),
                        Self::Random => random.choose_multiple(candidates.iter().copied(), size),
                    })
                    .collect()
            })
            .collect()
    }
}

impl fmt::Display for Masks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What [`fifo_limit`] says of them.
pub(crate) fn fifo_limit_ps(masks: &[Vec<Vec<usize>>], function_ps: u64) -> u64 {
    let targets = masks.iter().flatten().flatten();
    let cpus = targets.max().map_or(0, |cpu| cpu + 1);
    fifo_limit(cpus, masks, |mask| mask.iter().copied(), function_ps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disjoint_calls_do_not_wait_and_identical_ones_queue() {
        let disjoint = Masks::Disjoint.draw(1, 4, 10, 3, 16);
        assert_eq!(fifo_limit_ps(&disjoint, 5), 50);
        let identical = Masks::Identical.draw(1, 4, 10, 3, 16);
        assert_eq!(fifo_limit_ps(&identical, 5), 200);
        let random = fifo_limit_ps(&Masks::Random.draw(1, 4, 10, 3, 16), 5);
        assert!((51..200).contains(&random), "{random}");
    }

    #[test]
    fn random_targets_are_other_cpus_each_once() {
        for masks in Masks::Random.draw(7, 2, 100, 8, 10) {
            for mut mask in masks {
                mask.sort_unstable();
                assert_eq!(mask, [2, 3, 4, 5, 6, 7, 8, 9]);
            }
        }
    }
}
