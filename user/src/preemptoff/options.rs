//! The command line of `preemptoff`.

use std::ffi::OsString;
use std::time::Duration;

use super::board::MAX_THREADS;
use super::tail::Tail;
use crate::args::{self, UsageError};
use crate::effort::Effort;

/// The most threads.
const MAX_WORKERS: u64 = 20;
/// The most of them beside which somebody keeps interrupts off.
const MAX_KEEPERS: u64 = MAX_THREADS as u64 - MAX_WORKERS;
/// The most pages a worker may map at a time.
const MAX_PAGES: u64 = 4096;
/// The kernel keeps interrupts off no longer than this.
const MAX_CUT_US: u64 = 50_000;

/// What `--help` prints.
pub const HELP: &str = "\
preemptoff: how late a SCHED_FIFO thread wakes up while others unmap memory on all
CPUs and some keep interrupts off, and how long the kernel had preemption off

usage: preemptoff [OPTION]...
  --threads LIST    low-priority threads, one a CPU              [2]
  --pages LIST      pages that each maps and unmaps at a time    [8]
  --period-us N     time between wake-ups                        [1000]
  --keepers N       CPUs that keep interrupts off now and then   [threads / 4, at least 1]
  --gap-us N        mean time between those times                [1000]
  --body-us N       their median (lognormal)                     [15]
  --body-sigma X    standard deviation of their logarithm        [0.5]
  --tail-us N       least time of the tail (Pareto)              [200]
  --tail-alpha X    its exponent                                 [1.2]
  --tail-share X    what part of them is from the tail           [0.02]
  --cut-us N        the longest time, at most 50000              [50000]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one interval                       [60]
  --rounds N        intervals of each policy                     [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, times with interrupts off [1]
  --help

A kernel without /proc/shootdown/irqoff keeps interrupts on, one without
/proc/shootdown/latency tells no spans; the rows say so.

exit status: 0 all well, 1 a stale page or a failed call, 2 bad arguments
";

const NAMES: [&str; 11] = [
    "--threads",
    "--pages",
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

/// What to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Numbers of low-priority threads.
    pub threads: Vec<usize>,
    /// Numbers of pages that each maps at a time.
    pub pages: Vec<usize>,
    /// Time between wake-ups.
    pub period: Duration,
    /// CPUs that keep interrupts off, if the caller says how many.
    pub keepers: Option<usize>,
    /// Mean time with interrupts on in between.
    pub gap: Duration,
    /// Times with interrupts off.
    pub tail: Tail,
    /// How long, how often, in which order.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: vec![2],
            pages: vec![8],
            period: Duration::from_millis(1),
            keepers: None,
            gap: Duration::from_millis(1),
            tail: Tail::default(),
            effort: Effort::default(),
        }
    }
}

impl Options {
    /// Reads the arguments after the program's name; `None` means that help was asked for.
    pub fn parse<I>(arguments: I) -> Result<Option<Self>, UsageError>
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        let mut options = Self::default();
        let mut effort = options.effort.clone();
        let set = |name: &str, text: &str| options.set(name, text);
        let goes_on = effort.parse(arguments, &NAMES, set)?;
        options.effort = effort;
        if options.tail.least > options.tail.cut {
            return Err(UsageError::new(
                "--tail-us is above --cut-us: no time could be drawn",
            ));
        }
        Ok(goes_on.then_some(options))
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let micros = |range| args::number(name, text, range).map(Duration::from_micros);
        let tail = &mut self.tail;
        match name {
            "--threads" => self.threads = args::numbers(name, text, 1..=MAX_WORKERS)?,
            "--pages" => self.pages = args::numbers(name, text, 1..=MAX_PAGES)?,
            "--period-us" => self.period = micros(50..=1_000_000)?,
            "--keepers" => {
                self.keepers = Some(args::number(name, text, 0..=MAX_KEEPERS)? as usize);
            }
            "--gap-us" => self.gap = micros(1..=1_000_000)?,
            "--body-us" => tail.body = micros(1..=MAX_CUT_US)?,
            "--body-sigma" => tail.sigma = args::decimal(name, text, 0.0..=5.0)?,
            "--tail-us" => tail.least = micros(1..=MAX_CUT_US)?,
            "--tail-alpha" => tail.alpha = args::decimal(name, text, 0.1..=10.0)?,
            "--tail-share" => tail.share = args::decimal(name, text, 0.0..=1.0)?,
            _ => tail.cut = micros(1..=MAX_CUT_US)?,
        }
        Ok(())
    }

    /// Refuses more threads than there are CPUs to pin them to.
    pub fn fit(&self, cpus: usize) -> Result<(), UsageError> {
        let (most, least) = (self.threads.iter().max(), self.threads.iter().min());
        match (most, least, self.keepers) {
            (Some(&most), _, _) if most > cpus => Err(UsageError::new(format!(
                "{most} threads need {most} CPUs and this machine has {cpus}: \
                 ask for fewer threads or more CPUs"
            ))),
            (_, Some(&least), Some(keepers)) if keepers > least => Err(UsageError::new(format!(
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

    /// Measured time of the whole run.
    pub fn duration(&self, policies: usize) -> Duration {
        let Effort {
            slice,
            rounds,
            warmup,
            ..
        } = &self.effort;
        let row = *slice * *rounds as u32 + *warmup;
        row * (self.threads.len() * self.pages.len() * policies) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, UsageError> {
        Options::parse(line.split_whitespace())
    }

    #[test]
    fn every_option_is_read() {
        let line = "--threads 2,4 --pages 1 --period-us 500 --keepers 2 --gap-us 300 --body-us 9 \
                    --body-sigma 0.25 --tail-us 100 --tail-alpha 1.5 --tail-share 0.125 --cut-us 20000 \
                    --rounds 3 --slice-ms 10 --warmup-ms 0";
        let options = parse(line).unwrap().unwrap();
        assert_eq!(
            (&options.threads[..], &options.pages[..]),
            (&[2, 4][..], &[1][..])
        );
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
        assert_eq!(options.duration(2), Duration::from_millis(2 * 2 * 30));
    }

    #[test]
    fn nothing_means_the_defaults() {
        let options = parse("").unwrap().unwrap();
        assert_eq!(options, Options::default());
        let keepers: Vec<usize> = [1, 2, 4, 8].map(|n| options.keepers(n)).to_vec();
        assert_eq!(keepers, [1, 1, 1, 2]);
        assert_eq!(parse("--help").unwrap(), None);
    }

    #[test]
    fn bad_lines_are_refused() {
        for bad in [
            "--threads 0",
            "--pages 0",
            "--period-us 10",
            "--cut-us 50001",
            "--tail-alpha 0",
            "--tail-share 2",
            "--tail-us 300 --cut-us 200",
            "--spaces 1",
            "stray",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn what_does_not_fit_the_machine_is_one_line() {
        let fit = |line: &str| parse(line).unwrap().unwrap().fit(4);
        assert!(fit("--threads 4 --keepers 4").is_ok());
        for bad in ["--threads 5", "--threads 2,4 --keepers 3"] {
            let text = fit(bad).unwrap_err().to_string();
            assert!(
                text.contains("ask for fewer") && !text.contains('\n'),
                "{text}"
            );
        }
    }
}
