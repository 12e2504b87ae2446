//! The command line of `dirtysync`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::args::{self, UsageError};
use crate::effort::Effort;
use crate::region::PAGE_BYTES;

/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;
/// The most pages one write may have.
const MAX_PAGES: u64 = 4096;
/// Pages of one MiB.
const PAGES_PER_MIB: usize = (1 << 20) / PAGE_BYTES;

/// What `--help` prints.
pub const HELP: &str = "\
dirtysync: the time of a write through a shared mapping of a file + fdatasync, by all threads at once

usage: dirtysync [OPTION]...
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages LIST      consecutive pages in a write                 [4]
  --file-mib N      size of the file                             [32]
  --directory PATH  make the file there, not in memory alone
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, places that are written   [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a lost write or a failed call, 2 bad arguments
";

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Numbers of threads, the measuring one included.
    pub threads: Vec<usize>,
    /// Numbers of pages in a write.
    pub pages: Vec<usize>,
    /// Pages of the file.
    pub file_pages: usize,
    /// Where the file is made; in memory, without a name, if nowhere.
    pub directory: Option<PathBuf>,
    /// How long, how often, in which order.
    pub effort: Effort,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: vec![1, 2],
            pages: vec![4],
            file_pages: 32 * PAGES_PER_MIB,
            directory: None,
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
        let set = |name: &str, text: &str| {
            let number = |range| args::number(name, text, range);
            match name {
                "--threads" => options.threads = args::numbers(name, text, 1..=MAX_THREADS)?,
                "--pages" => options.pages = args::numbers(name, text, 1..=MAX_PAGES)?,
                "--file-mib" => options.file_pages = number(1..=4096)? as usize * PAGES_PER_MIB,
                _ => options.directory = Some(PathBuf::from(text)),
            }
            Ok(())
        };
        let names = ["--threads", "--pages", "--file-mib", "--directory"];
        let goes_on = effort.parse(arguments, &names, set)?;
        options.effort = effort;
        Ok(goes_on.then_some(options))
    }

    /// Refuses more threads than there are CPUs to pin them to, and writes that are larger than the file.
    pub fn fit(&self, cpus: usize) -> Result<(), UsageError> {
        let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
        let (threads, pages) = (most(&self.threads), most(&self.pages));
        if threads > cpus {
            return Err(UsageError::new(format!(
                "{threads} threads need {threads} CPUs and this machine has {cpus}: \
                 ask for fewer threads or more CPUs"
            )));
        }
        if pages > self.file_pages {
            return Err(UsageError::new(format!(
                "a write of {pages} pages does not fit into a file of {} pages: \
                 ask for smaller writes or a larger --file-mib",
                self.file_pages
            )));
        }
        Ok(())
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
        let line = "--threads 1,4 --pages 2 --file-mib 8 --directory /mnt --rounds 3";
        let options = parse(line).unwrap().unwrap();
        assert_eq!((options.threads, options.pages), (vec![1, 4], vec![2]));
        assert_eq!(options.file_pages, 2048);
        assert_eq!(options.directory, Some(PathBuf::from("/mnt")));
        assert_eq!(options.effort.rounds, 3);
        assert_eq!(parse("").unwrap(), Some(Options::default()));
        assert_eq!(parse("--help").unwrap(), None);
    }

    #[test]
    fn what_does_not_fit_is_one_line_with_the_remedy() {
        let refusal = |line: &str| {
            let options = parse(line).unwrap().unwrap();
            options.fit(2).unwrap_err().to_string()
        };
        assert!(refusal("--threads 3").contains("fewer threads"));
        assert!(refusal("--pages 4096 --file-mib 1").contains("larger --file-mib"));
        for bad in ["--threads 0", "--pages 4097", "--file-mib 0", "stray"] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
    }
}
