//! The command line of `madvise`.

use std::ffi::OsString;
use std::time::Duration;

use crate::args::{self, UsageError};
use crate::effort::Effort;

/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;
/// The most pages one iteration may discard.
const MAX_PAGES: u64 = 4096;

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
    /// How long, how often, in which order.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: vec![1, 2],
            pages: vec![1, 8, 32],
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
        let (threads, pages) = (&mut options.threads, &mut options.pages);
        let set = |name: &str, text: &str| {
            match name {
                "--threads" => *threads = args::numbers(name, text, 1..=MAX_THREADS)?,
                _ => *pages = args::numbers(name, text, 1..=MAX_PAGES)?,
            }
            Ok(())
        };
        let goes_on = options
            .effort
            .parse(arguments, &["--threads", "--pages"], set)?;
        Ok(goes_on.then_some(options))
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
        self.effort.row() * (self.threads.len() * self.pages.len() * policies) as u32
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
        let effort = &options.effort;
        assert_eq!(effort.policies, ["best"]);
        assert_eq!((effort.rounds, effort.row_samples, effort.seed), (3, 10, 9));
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
