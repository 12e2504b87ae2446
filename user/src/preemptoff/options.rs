//! What only `preemptoff` is told.

use std::time::Duration;

use super::board::MAX_THREADS;
use super::tail::Tail;
use crate::args::{self, UsageError};
use crate::course::OwnOptions;

/// The most threads that map and unmap.
pub const MAX_WORKERS: u64 = 64;
/// The most CPUs that keep interrupts off.
const MAX_KEEPERS: u64 = MAX_THREADS as u64 - MAX_WORKERS;
/// The kernel keeps interrupts off no longer than this.
const MAX_CUT_US: u64 = 50_000;

/// The load, and the alarm.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Time between wake-ups.
    pub period: Duration,
    /// CPUs that keep interrupts off, if the caller says how many.
    pub keepers: Option<usize>,
    /// Mean time with interrupts on in between.
    pub gap: Duration,
    /// Times with interrupts off.
    pub tail: Tail,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(1),
            keepers: None,
            gap: Duration::from_millis(1),
            tail: Tail::default(),
        }
    }
}

impl OwnOptions for Options {
    const NAMES: &'static [&'static str] = &[
        "--period-us",
        "--keepers",
        "--gap-us",
        "--body-us",
        "--body-sigma",
        "--tail-us",
        "--tail-alpha",
        "--tail-share",
        "--cut-us",
    ];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let micros = |range| args::number(name, text, range).map(Duration::from_micros);
        let tail = &mut self.tail;
        match name {
            "--period-us" => self.period = micros(50..=1_000_000)?,
            "--keepers" => {
                self.keepers = Some(args::number(name, text, 0..=MAX_KEEPERS)? as usize);
            }
            "--gap-us" => self.gap = micros(1..=1_000_000)?,
            "--body-us" => tail.body = micros(1..=MAX_CUT_US)?,
            "--body-sigma" => tail.sigma = args::number(name, text, 0.0..=5.0)?,
            "--tail-us" => tail.least = micros(1..=MAX_CUT_US)?,
            "--tail-alpha" => tail.alpha = args::number(name, text, 0.1..=10.0)?,
            "--tail-share" => tail.share = args::number(name, text, 0.0..=1.0)?,
            _ => tail.cut = micros(1..=MAX_CUT_US)?,
        }
        Ok(())
    }
}

impl Options {
    /// Refuses what does not fit together, or not with so many threads.
    pub fn fit(&self, threads: &[usize]) -> Result<(), UsageError> {
        if self.tail.least > self.tail.cut {
            return Err(UsageError::new(
                "--tail-us is above --cut-us: no time could be drawn",
            ));
        }
        match (threads.iter().min(), self.keepers) {
            (Some(&least), Some(keepers)) if keepers > least => Err(UsageError::new(format!(
                "{keepers} keepers need {keepers} of the threads' CPUs and {least} have some: \
                 ask for fewer keepers"
            ))),
            _ => Ok(()),
        }
    }

    /// How many CPUs keep interrupts off beside so many threads.
    pub fn keepers(&self, threads: usize) -> usize {
        self.keepers.unwrap_or((threads / 4).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(line: &str) -> Result<Options, UsageError> {
        let mut options = Options::default();
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            options.set(pair[0], pair[1])?;
        }
        Ok(options)
    }

    #[test]
    fn every_option_is_read() {
        let line = "--period-us 500 --keepers 2 --gap-us 300 --body-us 9 --body-sigma 0.25 \
                    --tail-us 100 --tail-alpha 1.5 --tail-share 0.125 --cut-us 20000";
        let options = set(line).unwrap();
        assert_eq!(options.period, Duration::from_micros(500));
        assert_eq!((options.keepers(4), options.gap.as_micros()), (2, 300));
        let expected = Tail {
            body: Duration::from_micros(9),
            sigma: 0.25,
            least: Duration::from_micros(100),
            alpha: 1.5,
            share: 0.125,
            cut: Duration::from_millis(20),
        };
        assert_eq!(options.tail, expected);
    }

    #[test]
    fn a_quarter_of_the_threads_are_keepers_by_default() {
        let options = Options::default();
        let keepers: Vec<usize> = [1, 2, 4, 8].map(|n| options.keepers(n)).to_vec();
        assert_eq!(keepers, [1, 1, 1, 2]);
    }

    #[test]
    fn bad_values_are_refused() {
        for bad in [
            "--period-us 10",
            "--cut-us 50001",
            "--tail-alpha 0",
            "--tail-share 2",
        ] {
            assert!(set(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn what_does_not_fit_is_one_line() {
        let fit = |line: &str, threads: &[usize]| set(line).unwrap().fit(threads);
        assert!(fit("--keepers 4", &[4]).is_ok());
        for (bad, threads) in [
            ("--keepers 3", &[2, 4][..]),
            ("--tail-us 300 --cut-us 200", &[4]),
        ] {
            let text = fit(bad, threads).unwrap_err().to_string();
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
