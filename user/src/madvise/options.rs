//! The command line of `madvise`.

use std::ffi::OsString;
use std::time::Duration;

use lexopt::Arg::{Long, Short};

use crate::args::{self, UsageError};

/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;
/// The most pages one iteration may discard.
const MAX_PAGES: u64 = 4096;
/// The most samples a row may carry.
const MAX_ROW_SAMPLES: u64 = 2000;
/// How long each row's self-check runs when it was not asked for.
const SHORT_CHECK: Duration = Duration::from_millis(20);
/// How long each row's self-check runs with `--self-check`.
const LONG_CHECK: Duration = Duration::from_millis(1000);

/// What `--help` prints.
pub const HELP: &str = "\
madvise: the time of madvise(MADV_DONTNEED) + touch while other threads spin

usage: madvise [OPTION]...
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages LIST      pages per iteration                          [1,8,32]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, choices of the self-check [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a stale or lost page or a failed call, 2 bad arguments
";

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of threads, the measuring one included.
    pub threads: Vec<usize>,
    /// Numbers of pages per iteration.
    pub pages: Vec<usize>,
    /// Names of policies, in the order of the first round.
    pub policies: Vec<String>,
    /// Length of one slice.
    pub slice: Duration,
    /// Slices of each policy for each number of threads and pages.
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

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: vec![1, 2],
            pages: vec![1, 8, 32],
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

impl Options {
    /// Reads the arguments after the program's name; `None` means that help was asked for.
    pub fn parse<I>(arguments: I) -> Result<Option<Self>, UsageError>
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        let mut options = Self::default();
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next()? {
            let name = match argument {
                Long("help") | Short('h') => return Ok(None),
                Long("self-check") => {
                    options.check = LONG_CHECK;
                    continue;
                }
                Long(name) => format!("--{name}"),
                other => return Err(other.unexpected().into()),
            };
            options.set(&name, &mut parser)?;
        }
        Ok(Some(options))
    }

    fn set(&mut self, name: &str, parser: &mut lexopt::Parser) -> Result<(), UsageError> {
        const KNOWN: [&str; 8] = [
            "--threads",
            "--pages",
            "--policies",
            "--slice-ms",
            "--rounds",
            "--warmup-ms",
            "--samples",
            "--seed",
        ];
        if !KNOWN.contains(&name) {
            return Err(UsageError::new(format!("there is no option {name}")));
        }
        let text = args::text(parser)?;
        let number = |range| args::number(name, &text, range);
        match name {
            "--threads" => self.threads = args::numbers(name, &text, 1..=MAX_THREADS)?,
            "--pages" => self.pages = args::numbers(name, &text, 1..=MAX_PAGES)?,
            "--policies" => self.policies = args::names(name, &text)?,
            "--slice-ms" => self.slice = Duration::from_millis(number(1..=60_000)?),
            "--rounds" => self.rounds = number(1..=1000)? as usize,
            "--warmup-ms" => self.warmup = Duration::from_millis(number(0..=60_000)?),
            "--samples" => self.row_samples = number(0..=MAX_ROW_SAMPLES)? as usize,
            _ => self.seed = number(0..=u64::MAX)?,
        }
        Ok(())
    }

    /// Refuses more threads than there are CPUs to pin them to.
    pub fn fit(&self, cpus: usize) -> Result<(), UsageError> {
        match self.threads.iter().max() {
            Some(&threads) if threads > cpus => Err(UsageError::new(format!(
                "{threads} threads need {threads} CPUs and this machine has {cpus}: \
                 ask for fewer threads or more CPUs"
            ))),
            _ => Ok(()),
        }
    }

    /// Measured and checked time of the whole run.
    pub fn duration(&self, policies: usize) -> Duration {
        let row = self.slice * self.rounds as u32 + self.warmup + self.check;
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
        let line = "--threads 1,2,4 --pages 1 --policies best --slice-ms 5 --rounds 3 \
                    --warmup-ms 0 --samples=10 --seed 9 --self-check";
        let options = parse(line).unwrap().unwrap();
        assert_eq!(options.threads, [1, 2, 4]);
        assert_eq!(options.pages, [1]);
        assert_eq!(options.policies, ["best"]);
        assert_eq!(
            (options.rounds, options.row_samples, options.seed),
            (3, 10, 9)
        );
        assert_eq!(options.check, LONG_CHECK);
        assert_eq!(
            options.duration(1),
            Duration::from_millis(3 * (5 * 3 + 1000))
        );
    }

    #[test]
    fn nothing_means_the_defaults_and_help_means_help() {
        assert_eq!(parse("").unwrap(), Some(Options::default()));
        assert_eq!(parse("--threads 1 --help").unwrap(), None);
    }

    #[test]
    fn bad_lines_are_refused() {
        for bad in [
            "--threads",
            "--threads 0",
            "--pages 4097",
            "--rounds 0",
            "--wrong 1",
            "stray",
            "--samples 2001",
            "--policies ,",
            "--seed -1",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn more_threads_than_cpus_is_one_line_with_the_remedy() {
        let options = parse("--threads 1,3").unwrap().unwrap();
        assert!(options.fit(3).is_ok());
        let error = options.fit(2).unwrap_err().to_string();
        assert!(
            error.contains("3 threads") && error.contains("has 2"),
            "{error}"
        );
    }
}
