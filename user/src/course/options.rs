//! The command line of a measuring program: the axes of its table, its effort, and what only this program is told.

use std::ffi::OsString;
use std::ops::RangeInclusive;

use super::effort::Effort;
use crate::args::{self, UsageError};

/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;
/// The most pages of an operation, unless something else bounds them.
pub const MAX_PAGES: u64 = 4096;

/// One axis of a table; its option takes a list.
#[derive(Debug)]
pub struct Axis {
    /// The option.
    pub option: &'static str,
    /// The list unless the caller says otherwise.
    pub default: &'static [usize],
    /// What may be in a list.
    pub range: RangeInclusive<u64>,
}

impl Axis {
    /// Threads, one a CPU.
    pub const fn threads(default: &'static [usize]) -> Self {
        Self {
            option: "--threads",
            default,
            range: 1..=MAX_THREADS,
        }
    }

    /// Pages of each operation.
    pub const fn pages(default: &'static [usize], range: RangeInclusive<u64>) -> Self {
        Self {
            option: "--pages",
            default,
            range,
        }
    }

    /// What it counts.
    pub fn name(&self) -> &'static str {
        self.option.trim_start_matches('-')
    }
}

/// What a program prints rows of.
#[derive(Debug)]
pub struct Table {
    /// The program's name.
    pub program: &'static str,
    /// What `--help` prints.
    pub help: &'static str,
    /// Threads or processes.
    pub tasks: Axis,
    /// Pages that each uses in an operation.
    pub pages: Axis,
    /// Names of rows unless the caller says otherwise.
    pub policies: [&'static str; 3],
    /// Whether each task has a CPU of its own.
    pub is_spread: bool,
    /// Whether rows are checked by turns of their own.
    pub is_checked: bool,
}

/// The options that one program has and no other.
pub trait OwnOptions: Default {
    /// Their names.
    const NAMES: &'static [&'static str];

    /// Reads the value of one of them.
    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError>;
}

/// No such options.
impl OwnOptions for () {
    const NAMES: &'static [&'static str] = &[];

    fn set(&mut self, _: &str, _: &str) -> Result<(), UsageError> {
        Ok(())
    }
}

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options<Own> {
    /// Numbers of threads or processes, the measuring one included.
    pub tasks: Vec<usize>,
    /// Numbers of pages.
    pub pages: Vec<usize>,
    /// How long, how often, in which order.
    pub effort: Effort,
    /// Everything else.
    pub own: Own,
}

impl<Own: OwnOptions> Options<Own> {
    fn of(table: &Table) -> Self {
        Self {
            tasks: table.tasks.default.to_vec(),
            pages: table.pages.default.to_vec(),
            effort: Effort::of(table.policies),
            own: Own::default(),
        }
    }

    /// Reads the arguments after the program's name; `None` means that help was asked for.
    pub fn parse<I>(table: &Table, arguments: I) -> Result<Option<Self>, UsageError>
    where
        I: IntoIterator<Item: Into<OsString>>,
    {
        let mut options = Self::of(table);
        let goes_on = args::read(arguments, |name, text| options.set(table, name, text))?;
        Ok(goes_on.then_some(options))
    }

    fn set(&mut self, table: &Table, name: &str, text: args::Value<'_>) -> Result<(), UsageError> {
        let (tasks, pages) = (&table.tasks, &table.pages);
        if name == "--self-check" {
            self.effort.check_long();
        } else if name == tasks.option {
            self.tasks = args::numbers(name, &text()?, tasks.range.clone())?;
        } else if name == pages.option {
            self.pages = args::numbers(name, &text()?, pages.range.clone())?;
        } else if Effort::NAMES.contains(&name) {
            self.effort.set(name, &text()?)?;
        } else if Own::NAMES.contains(&name) {
            self.own.set(name, &text()?)?;
        } else {
            return Err(UsageError::unknown(name));
        }
        Ok(())
    }

    /// Refuses more threads than there are CPUs to pin them to.
    pub fn fit(&self, table: &Table, cpus: usize) -> Result<(), UsageError> {
        match self.tasks.iter().max() {
            Some(&threads) if table.is_spread && threads > cpus => Err(UsageError::new(format!(
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
    use std::time::Duration;

    const TABLE: Table = Table {
        program: "test",
        help: "",
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[4], 0..=MAX_PAGES),
        policies: ["a", "b", "c"],
        is_spread: true,
        is_checked: true,
    };

    #[derive(Debug, Default, PartialEq)]
    struct Depths(Vec<String>);

    impl OwnOptions for Depths {
        const NAMES: &'static [&'static str] = &["--depth"];

        fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
            self.0.push(format!("{name} {text}"));
            Ok(())
        }
    }

    fn parse(line: &str) -> Result<Option<Options<Depths>>, UsageError> {
        Options::parse(&TABLE, line.split_whitespace())
    }

    #[test]
    fn every_option_is_read() {
        let line = "--threads 1,2,4 --pages 0,7 --policies best --slice-ms 5 --rounds 3 --depth 4 \
                    --warmup-ms 0 --samples=10 --seed 9 --self-check --depth=5";
        let options = parse(line).unwrap().unwrap();
        assert_eq!((options.tasks, options.pages), (vec![1, 2, 4], vec![0, 7]));
        assert_eq!(options.own.0, ["--depth 4", "--depth 5"]);
        let effort = &options.effort;
        assert_eq!(effort.policies, ["best"]);
        assert_eq!((effort.rounds, effort.row_samples, effort.seed), (3, 10, 9));
        assert_eq!(effort.row(), Duration::from_millis(5 * 3));
        assert_eq!(effort.check.as_millis(), 1000);
    }

    #[test]
    fn nothing_means_the_defaults_and_help_means_help() {
        let options = parse("").unwrap().unwrap();
        assert_eq!((options.tasks, options.pages), (vec![1, 2], vec![4]));
        assert_eq!(options.effort.policies, ["a", "b", "c"]);
        assert_eq!(parse("--threads 1 --help").unwrap(), None);
    }

    #[test]
    fn bad_lines_are_refused() {
        for bad in [
            "--threads",
            "--threads 0",
            "--threads 1025",
            "--pages 4097",
            "--rounds 0",
            "stray",
            "--samples 2001",
            "--policies ,",
            "--seed -1",
        ] {
            assert!(parse(bad).is_err(), "{bad:?} was accepted");
        }
        let unknown = parse("--width").unwrap_err().to_string();
        assert_eq!(unknown, "there is no option --width");
    }

    #[test]
    fn more_threads_than_cpus_is_one_line_with_the_remedy() {
        let options = parse("--threads 1,3").unwrap().unwrap();
        assert!(options.fit(&TABLE, 3).is_ok());
        let error = options.fit(&TABLE, 2).unwrap_err().to_string();
        assert!(
            error.contains("3 threads need") && error.contains("has 2: ask for fewer threads"),
            "{error}"
        );
    }
}
