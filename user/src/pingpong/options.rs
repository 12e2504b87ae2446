//! The command line of `pingpong`.

use std::ffi::OsString;
use std::time::Duration;

use crate::args::{self, UsageError};
use crate::effort::Effort;

/// The most processes one ring may have.
const MAX_SPACES: u64 = 64;
/// The most pages a turn may touch.
const MAX_PAGES: u64 = 4096;

/// What `--help` prints.
pub const HELP: &str = "\
pingpong: the time of a turn of processes that hand a token round on one CPU

usage: pingpong [OPTION]...
  --spaces LIST     processes in the ring, each an address space [2,3,6,8,12]
  --pages LIST      pages that a process reads in its turn       [0,512]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, choices of the self-check [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a wrong page or a failed call, 2 bad arguments
";

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of processes.
    pub spaces: Vec<usize>,
    /// Numbers of pages read in a turn.
    pub pages: Vec<usize>,
    /// How long, how often, in which order.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            spaces: vec![2, 3, 6, 8, 12],
            pages: vec![0, 512],
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
        let (spaces, pages) = (&mut options.spaces, &mut options.pages);
        let set = |name: &str, text: &str| {
            match name {
                "--spaces" => *spaces = args::numbers(name, text, 2..=MAX_SPACES)?,
                _ => *pages = args::numbers(name, text, 0..=MAX_PAGES)?,
            }
            Ok(())
        };
        let goes_on = options
            .effort
            .parse(arguments, &["--spaces", "--pages"], set)?;
        Ok(goes_on.then_some(options))
    }

    /// Measured and checked time of the whole run.
    pub fn duration(&self, policies: usize) -> Duration {
        self.effort.row() * (self.spaces.len() * self.pages.len() * policies) as u32
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
        let line = "--spaces 2,3 --pages 0,7 --policies best --slice-ms 5 --rounds 3 --warmup-ms 0";
        let options = parse(line).unwrap().unwrap();
        assert_eq!(
            (&options.spaces[..], &options.pages[..]),
            (&[2, 3][..], &[0, 7][..])
        );
        assert_eq!(options.effort.policies, ["best"]);
        assert_eq!(options.duration(1), Duration::from_millis(4 * (5 * 3 + 20)));
        assert_eq!(parse("").unwrap(), Some(Options::default()));
        assert_eq!(parse("--help").unwrap(), None);
    }

    #[test]
    fn bad_lines_are_refused() {
        for bad in [
            "--spaces 1",
            "--spaces 65",
            "--spaces",
            "--pages 4097",
            "--threads 2",
            "stray",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
