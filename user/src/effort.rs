//! What the caller of a measuring program may choose: policies, slices, rounds, samples, seed and self-check.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::Arg::{Long, Short};
use serde_json::{Value, json};

use crate::args::{self, UsageError};
use crate::machine;

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

impl Default for Effort {
    fn default() -> Self {
        Self {
            policies: ["before", "published", "best"].map(str::to_owned).to_vec(),
            slice: Duration::from_millis(60),
            rounds: 7,
            warmup: Duration::from_millis(50),
            row_samples: MAX_ROW_SAMPLES as usize,
            seed: 1,
            check: SHORT_CHECK,
        }
    }
}

impl Effort {
    /// What runs where, for the lab; `own` is what only this program has to say.
    pub fn info<const N: usize>(
        &self,
        program: &str,
        cpus: usize,
        expected: Duration,
        own: [(&str, Value); N],
    ) -> Value {
        let millis = |duration: Duration| duration.as_millis() as u64;
        let mut info = json!({
            "program": program,
            "kernel": machine::kernel_name(),
            "cpus": cpus,
            "slice_ms": millis(self.slice),
            "rounds": self.rounds,
            "warmup_ms": millis(self.warmup),
            "seed": self.seed,
            "expected_ms": millis(expected),
        });
        for (name, value) in own {
            info[name] = value;
        }
        info
    }

    /// How long the self-check of each row is, in milliseconds.
    pub fn check_ms(&self) -> u64 {
        self.check.as_millis() as u64
    }

    /// Reads a whole command line; `false` means that help was asked for.
    ///
    /// The program's own options are those in `names`; each is handed to `set` with its value.
    pub fn parse<I>(
        &mut self,
        arguments: I,
        names: &[&str],
        mut set: impl FnMut(&str, &str) -> Result<(), UsageError>,
    ) -> Result<bool, UsageError>
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            let name = match argument {
                Long("help") | Short('h') => return Ok(false),
                Long("self-check") => {
                    self.check = LONG_CHECK;
                    continue;
                }
                Long(name) => format!("--{name}"),
                other => return Err(other.unexpected().into()),
            };
            if names.contains(&name.as_str()) {
                set(&name, &args::text(&mut parser)?)?;
            } else if Self::NAMES.contains(&name.as_str()) {
                self.set(&name, &args::text(&mut parser)?)?;
            } else {
                return Err(UsageError::new(format!("there is no option {name}")));
            }
        }
        Ok(true)
    }

    const NAMES: [&str; 6] = [
        "--policies",
        "--slice-ms",
        "--rounds",
        "--warmup-ms",
        "--samples",
        "--seed",
    ];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
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

    /// Measured and checked time of one row.
    pub fn row(&self) -> Duration {
        self.slice * self.rounds as u32 + self.warmup + self.check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_every_place_in_turn() {
        let effort = Effort {
            seed: 5,
            ..Effort::default()
        };
        let orders: Vec<Vec<usize>> = (0..3)
            .map(|round| effort.order(round, 3).collect())
            .collect();
        assert_eq!(orders, [[2, 0, 1], [0, 1, 2], [1, 2, 0]]);
        assert_eq!(effort.order(7, 1).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn own_options_are_handed_over_and_unknown_ones_refused() {
        let mut effort = Effort::default();
        let mut seen = Vec::new();
        let line = "--depth 4 --rounds 3 --self-check --depth=5";
        let result = effort.parse(line.split(' '), &["--depth"], |name, text| {
            seen.push(format!("{name} {text}"));
            Ok(())
        });
        assert_eq!((result, effort.rounds), (Ok(true), 3));
        assert_eq!(effort.check, LONG_CHECK);
        assert_eq!(seen, ["--depth 4", "--depth 5"]);
        let unknown = effort.parse(["--width", "4"], &["--depth"], |_, _| Ok(()));
        assert_eq!(
            unknown.unwrap_err().to_string(),
            "there is no option --width"
        );
    }
}
