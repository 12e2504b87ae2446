//! The whole run: for each number of threads and pages, rounds of slices, the check, the rows.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use super::options::{HELP, Options};
use super::ramdisk;
use super::target::{Target, Writes};
use crate::args::UsageError;
use crate::course::{Bench, Course};
use crate::madvise::row::Shape;
use crate::policy::PolicySwitch;
use crate::region::PAGE_WORDS;
use crate::{args, program, report};

const PROGRAM: &str = "dirtysync";

/// The program `dirtysync`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, Run::conclude)
}

/// Everything set up before the first slice.
struct Run {
    options: Options,
    course: Course,
    target: Target,
}

impl Bench for Target {
    type Work<'a> = Writes<'a>;

    fn work(&self, _: &str, shape: Shape, _: bool) -> Writes<'_> {
        Writes {
            target: self,
            pages: shape.pages,
        }
    }

    fn judge(&self, _: Shape, _: u64) -> io::Result<(u64, u64)> {
        let words = if self.is_checkable {
            (self.pages() * PAGE_WORDS) as u64
        } else {
            0
        };
        Ok((self.lost_words()?, words))
    }
}

impl Run {
    fn new(mut options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        options.fit(cpus.len())?;
        let policies = PolicySwitch::of_this_kernel().resolve(&options.effort.policies)?;
        if options.directory.is_none() {
            let disk = ramdisk::mount()
                .map_err(|error| UsageError::new(format!("cannot make a disk: {error}")))?;
            options.directory = disk.map(Path::to_owned);
        }
        let target = Target::new(options.file_pages, options.directory.as_deref())
            .map_err(|error| UsageError::new(format!("cannot make the file: {error}")))?;
        let shapes = options.threads.len() * options.pages.len();
        Ok(Self {
            course: Course::new(options.effort.clone(), cpus, policies, shapes),
            target,
            options,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many words were not stored as they were written.
    fn all(&mut self) -> io::Result<u64> {
        self.course.pin()?;
        self.print_info();
        let options = &self.options;
        self.course
            .run(&self.target, &options.threads, &options.pages)
    }

    fn print_info(&self) {
        let options = &self.options;
        let mut info = self.course.info(PROGRAM, &options.threads, &options.pages);
        info["file_pages"] = options.file_pages.into();
        info["directory"] = json!(options.directory);
        info["keeps_stored_copy"] = self.target.is_checkable.into();
        report::info(&info);
    }
}
