//! The command line of `tlbtorture`.

use std::ffi::OsString;
use std::time::Duration;

use crate::args::{self, UsageError};
use crate::policy;

/// The most threads there may be for each CPU.
const MAX_THREADS_PER_CPU: usize = 4;
/// The most threads at all: a mark's owner field must hold a worker's number.
const MAX_THREADS: usize = 1024;
/// The most times that each CPU can be asked to leave.
const MAX_CHURN: u64 = 1_000_000;
/// The longest run: a day.
const MAX_SECONDS: u64 = 86_400;

/// What `--help` prints.
pub const HELP: &str = "\
tlbtorture: change mappings at random while other threads use them; check every access

usage: tlbtorture [OPTION]...
  --seconds N       length of the run, shared evenly among the policies [10]
  --threads N       worker threads, at most 4 for each CPU              [one a CPU]
  --policies LIST   flush policies of the kernel, taking turns; a kernel
                    without a choice runs its only one, `linux`         [before,published,best]
  --seed N          seed of every choice                                [1]
  --windows         lend pages to servers on every CPU as well, through windows
  --churn N         take CPUs offline and bring them back all the time, each
                    at least N times, if that takes longer than --seconds
  --help

exit status: 0 all well, 1 an access saw or did what it must not, 2 bad arguments
";

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Length of the run.
    pub length: Duration,
    /// Worker threads; `None` means one for each CPU.
    pub threads: Option<usize>,
    /// Names of policies.
    pub policies: Vec<String>,
    /// Seed of every choice.
    pub seed: u64,
    /// Whether servers with windows run beside the workers.
    pub windows: bool,
    /// How often each CPU leaves and comes back at least; `None` if all stay.
    pub churn: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(10),
            threads: None,
            policies: policy::USUAL.map(str::to_owned).to_vec(),
            seed: 1,
            windows: false,
            churn: None,
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
        let goes_on = args::read(arguments, |name, text| {
            match name {
                "--seconds" => {
                    let seconds = args::number(name, &text()?, 1..=MAX_SECONDS)?;
                    options.length = Duration::from_secs(seconds);
                }
                "--threads" => {
                    options.threads = Some(args::number(name, &text()?, 1..=MAX_THREADS)?);
                }
                "--policies" => options.policies = args::names(name, &text()?)?,
                "--seed" => options.seed = args::number(name, &text()?, 0..=u64::MAX)?,
                "--windows" => options.windows = true,
                "--churn" => options.churn = Some(args::number(name, &text()?, 1..=MAX_CHURN)?),
                _ => return Err(UsageError::unknown(name)),
            }
            Ok(())
        })?;
        Ok(goes_on.then_some(options))
    }

    /// The number of worker threads on a machine with `cpus` CPUs.
    pub fn workers(&self, cpus: usize) -> Result<usize, UsageError> {
        let most = cpus * MAX_THREADS_PER_CPU;
        match self.threads {
            None => Ok(cpus),
            Some(threads) if threads <= most => Ok(threads),
            Some(threads) => Err(UsageError::new(format!(
                "{threads} threads are too many for {cpus} CPUs: ask for at most {most}, \
                 or for more CPUs"
            ))),
        }
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
        let line = "--seconds 60 --threads 3 --seed 7 --policies before,best --churn 9 --windows";
        let options = parse(line).unwrap().unwrap();
        assert_eq!(options.length, Duration::from_secs(60));
        assert_eq!((options.threads, options.seed), (Some(3), 7));
        assert_eq!(options.churn, Some(9));
        assert!(options.windows);
        assert_eq!(options.policies, ["before", "best"]);
        assert_eq!(parse("--help").unwrap(), None);
    }

    #[test]
    fn bad_lines_are_refused() {
        let bad = "--seconds 0;--threads x;--nonsense;stray;--seed;--policies a,";
        for bad in bad.split(';') {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn threads_default_to_the_cpus_and_are_bounded_by_them() {
        assert_eq!(parse("").unwrap().unwrap().workers(8), Ok(8));
        let options = parse("--threads 9").unwrap().unwrap();
        assert_eq!(options.workers(3), Ok(9));
        let error = options.workers(2).unwrap_err().to_string();
        assert!(error.contains("at most 8"), "{error}");
    }
}
