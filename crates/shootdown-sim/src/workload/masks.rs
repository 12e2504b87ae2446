//! [`Masks`]: whom initiators call; [`fifo_limit_ps`]: how fast anybody could.

use std::fmt;

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

/// When the last of the calls ends if nothing costs anything but the function, each target runs one at a time, first
/// come, first served, and each initiator makes its next call when the one before is complete.
pub fn fifo_limit_ps(masks: &[Vec<Vec<usize>>], function_ps: u64) -> u64 {
    let cpus = masks
        .iter()
        .flatten()
        .flatten()
        .max()
        .map_or(0, |cpu| cpu + 1);
    let mut free_ps = vec![0u64; cpus];
    // When each initiator makes its next call, and which.
    let mut next: Vec<(u64, usize)> = vec![(0, 0); masks.len()];
    while let Some(initiator) = (0..masks.len())
        .filter(|initiator| next[*initiator].1 < masks[*initiator].len())
        .min_by_key(|initiator| next[*initiator].0)
    {
        let (now_ps, call) = next[initiator];
        let done_ps = masks[initiator][call]
            .iter()
            .map(|target| {
                free_ps[*target] = free_ps[*target].max(now_ps) + function_ps;
                free_ps[*target]
            })
            .max();
        next[initiator] = (done_ps.unwrap_or(now_ps), call + 1);
    }
    next.into_iter()
        .map(|(end_ps, _)| end_ps)
        .max()
        .unwrap_or(0)
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
