//! What differs from other [courses](crate::course): a file, and a check that looks at what is stored of it.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::ramdisk;
use super::target::{Target, Writes};
use crate::args::{self, UsageError};
use crate::course::crew::Crew;
use crate::course::options::MAX_PAGES;
use crate::course::{Axis, Bench, Checked, Course, OwnOptions, Program, Shape, Slice, Table, Turn};
use crate::policy;
use crate::region::{PAGE_BYTES, PAGE_WORDS};

/// Pages of one MiB.
const PAGES_PER_MIB: usize = (1 << 20) / PAGE_BYTES;

/// What `--help` prints.
const HELP: &str = "\
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

/// What only this program is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// Pages of the file.
    pub file_pages: usize,
    /// Where the file is made; in memory, without a name, if nowhere.
    pub directory: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file_pages: 32 * PAGES_PER_MIB,
            directory: None,
        }
    }
}

impl OwnOptions for Options {
    const NAMES: &'static [&'static str] = &["--file-mib", "--directory"];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        match name {
            "--file-mib" => {
                self.file_pages = args::number(name, text, 1..=4096)? as usize * PAGES_PER_MIB;
            }
            _ => self.directory = Some(PathBuf::from(text)),
        }
        Ok(())
    }
}

impl Options {
    /// Refuses writes that are larger than the file.
    fn fit(&self, pages: &[usize]) -> Result<(), UsageError> {
        match pages.iter().max() {
            Some(&pages) if pages > self.file_pages => Err(UsageError::new(format!(
                "a write of {pages} pages does not fit into a file of {} pages: \
                 ask for smaller writes or a larger --file-mib",
                self.file_pages
            ))),
            _ => Ok(()),
        }
    }
}

/// The program `dirtysync`.
#[derive(Debug)]
pub struct Dirtysync {
    options: Options,
    target: Target,
}

impl Program for Dirtysync {
    const TABLE: &'static Table = &Table {
        program: "dirtysync",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[4], 1..=MAX_PAGES),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: true,
    };
    type Options = Options;
    type Bench<'a> = Writes<'a>;

    fn new(mut options: Options, course: &Course) -> Result<Self, UsageError> {
        options.fit(&course.pages)?;
        if options.directory.is_none() {
            let disk = ramdisk::mount()
                .map_err(|error| UsageError::new(format!("cannot make a disk: {error}")))?;
            options.directory = disk.map(Path::to_owned);
        }
        let target = Target::new(options.file_pages, options.directory.as_deref())
            .map_err(|error| UsageError::new(format!("cannot make the file: {error}")))?;
        Ok(Self { options, target })
    }

    fn info(&self, info: &mut Value) {
        info["file_pages"] = self.options.file_pages.into();
        info["directory"] = json!(self.options.directory);
        info["keeps_stored_copy"] = self.target.is_checkable.into();
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Writes<'a>> {
        Ok(Writes {
            target: &self.target,
            pages: shape.pages,
            others: &course.cpus[1..shape.tasks],
        })
    }
}

impl Bench for Writes<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let crew = Crew {
            work: &*self,
            cpus: self.others,
        };
        crew.run(turn, around)
    }

    fn check(&mut self, turn: Turn<'_>) -> io::Result<Checked> {
        let rounds = self.turn(turn, &mut || ())?.operations;
        let words = self.target.pages() * PAGE_WORDS;
        Ok(Checked {
            rounds,
            reads: if self.target.is_checkable {
                words as u64
            } else {
                0
            },
            wrong: self.target.lost_words()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_what_does_not_fit_is_one_line_with_the_remedy() {
        let mut options = Options::default();
        options.set("--file-mib", "8").unwrap();
        options.set("--directory", "/mnt").unwrap();
        let expected = Options {
            file_pages: 2048,
            directory: Some(PathBuf::from("/mnt")),
        };
        assert_eq!(options, expected);
        assert!(options.set("--file-mib", "0").is_err());
        assert!(options.fit(&[1, 2048]).is_ok());
        let error = options.fit(&[1, 2049]).unwrap_err().to_string();
        assert!(error.contains("larger --file-mib"), "{error}");
    }
}
