//! The command line of `zerocopy`.

use std::ffi::OsString;

use crate::args::{self, UsageError};
use crate::effort::Effort;
use crate::zerocopy_abi::MOST_PAGES;

/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;

/// What `--help` prints.
pub const HELP: &str = "\
zerocopy: the time of a call that lends pages to a server on the same CPU, which copies them

usage: zerocopy [OPTION]...
  --threads LIST    client threads, one a CPU                    [1,2]
  --pages LIST      pages in a call                              [1]
  --policies LIST   rows: a policy of the kernel; pages are in a window under
                    best, and ordinary mappings otherwise and with +ordinary
                                                                 [before,best+ordinary,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each row                           [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of rows                                [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a wrong copy or a failed call, 2 bad arguments
";

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of client threads, the measuring one included.
    pub threads: Vec<usize>,
    /// Numbers of pages in a call.
    pub pages: Vec<usize>,
    /// How long, how often, in which order.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: vec![1, 2],
            pages: vec![1],
            effort: Effort {
                policies: ["before", "best+ordinary", "best"]
                    .map(str::to_owned)
                    .to_vec(),
                ..Effort::default()
            },
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
        let set = |name: &str, text: &str| {
            match name {
                "--threads" => options.threads = args::numbers(name, text, 1..=MAX_THREADS)?,
                _ => options.pages = args::numbers(name, text, 1..=MOST_PAGES.into())?,
            }
            Ok(())
        };
        let goes_on = effort.parse(arguments, &["--threads", "--pages"], set)?;
        options.effort = effort;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_senseless_ones_refused() {
        let parse = |line: &str| Options::parse(line.split_whitespace());
        let options = parse("--threads 1,4 --pages 2,256 --rounds 3")
            .unwrap()
            .unwrap();
        assert_eq!((options.threads, options.pages), (vec![1, 4], vec![2, 256]));
        assert_eq!(options.effort.rounds, 3);
        assert_eq!(parse("").unwrap(), Some(Options::default()));
        assert_eq!(parse("--help").unwrap(), None);
        for bad in ["--threads 0", "--pages 0", "--pages 257", "stray"] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
        let error = Options::default().fit(1).unwrap_err().to_string();
        assert!(error.contains("fewer threads"), "{error}");
    }
}
