//! What the caller of a measuring program may choose: policies, slices, rounds, samples, seed and self-check.

use std::time::Duration;

use crate::args::{self, UsageError};

/// The most samples a row may carry.
const MAX_ROW_SAMPLES: u64 = 2000;
/// How long each row's self-check runs when it was not asked for.
const SHORT_CHECK: Duration = Duration::from_millis(20);
/// How long each row's self-check runs with `--self-check`.
const LONG_CHECK: Duration = Duration::from_millis(1000);

/// How long, how often and in which order policies are measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effort {
    /// Names of policies, in the order of the first round.
    pub policies: Vec<String>,
    /// Length of one slice.
    pub slice: Duration,
    /// Slices of each policy for each shape.
    pub rounds: usize,
    /// Unmeasured time of each policy before the first round.
    pub warmup: Duration,
    /// The most samples a row carries.
    pub row_samples: usize,
    /// Seed of every choice made.
    pub seed: u64,
    /// Length of the self-check of each row.
    pub check: Duration,
}

impl Effort {
    /// What is done with these policies unless the caller says otherwise.
    pub fn of(policies: [&str; 3]) -> Self {
        Self {
            policies: policies.map(str::to_owned).to_vec(),
            slice: Duration::from_millis(60),
            rounds: 7,
            warmup: Duration::from_millis(50),
            row_samples: MAX_ROW_SAMPLES as usize,
            seed: 1,
            check: SHORT_CHECK,
        }
    }

    /// Asks for the long self-check.
    pub fn check_long(&mut self) {
        self.check = LONG_CHECK;
    }

    /// Its options, but for `--self-check`, which has no value.
    pub const NAMES: [&str; 6] = [
        "--policies",
        "--slice-ms",
        "--rounds",
        "--warmup-ms",
        "--samples",
        "--seed",
    ];

    /// Reads the value of one of them.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let number = |range| args::number(name, text, range);
        match name {
            "--policies" => self.policies = args::names(name, text)?,
            "--slice-ms" => self.slice = Duration::from_millis(number(1..=60_000)?),
            "--rounds" => self.rounds = number(1..=1000)? as usize,
            "--warmup-ms" => self.warmup = Duration::from_millis(number(0..=60_000)?),
            "--samples" => self.row_samples = number(0..=MAX_ROW_SAMPLES)? as usize,
            _ => self.seed = number(0..=u64::MAX)?,
        }
        Ok(())
    }

    /// In which order `rows` policies take their turns in a round: rotated, from the seed on.
    pub fn order(&self, round: usize, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.seed as usize % rows.max(1) + round;
        (0..rows).map(move |position| (first + position) % rows)
    }

    /// Time of one row, without its check.
    pub fn row(&self) -> Duration {
        self.slice * self.rounds as u32 + self.warmup
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_every_place_in_turn() {
        let effort = Effort {
            seed: 5,
            ..Effort::of(["a", "b", "c"])
        };
        let orders: Vec<Vec<usize>> = (0..3)
            .map(|round| effort.order(round, 3).collect())
            .collect();
        assert_eq!(orders, [[2, 0, 1], [0, 1, 2], [1, 2, 0]]);
        assert_eq!(effort.order(7, 1).collect::<Vec<_>>(), [0]);
    }
}
