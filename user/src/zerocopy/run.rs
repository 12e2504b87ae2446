//! The whole run: servers, rounds of slices, the check, the rows.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::client::Calls;
use super::contender::{self, MODES};
use super::options::{HELP, Options};
use super::server::Servers;
use crate::args::UsageError;
use crate::course::{Bench, Course};
use crate::madvise::row::Shape;
use crate::policy::PolicySwitch;
use crate::region::PAGE_WORDS;
use crate::{args, program, report};

const PROGRAM: &str = "zerocopy";

/// The program `zerocopy`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, Run::conclude)
}

/// Everything set up before the first slice.
struct Run {
    options: Options,
    course: Course,
    office: Office,
}

/// The servers, one process for each way to map.
struct Office {
    servers: Vec<(u32, Servers)>,
    wrong: AtomicU64,
}

impl Office {
    fn open(cpus: &[usize], most_pages: usize) -> Result<Self, UsageError> {
        let mut servers = Vec::new();
        for mode in MODES {
            let started = Servers::start(cpus, mode, most_pages as u32)
                .map_err(|error| UsageError::new(format!("cannot start servers: {error}")))?;
            let started = started.ok_or_else(|| {
                UsageError::new(
                    "this kernel has no /dev/zerocopy: run it on the reference kernel (--machine qemu)",
                )
            })?;
            servers.push((mode, started));
        }
        Ok(Self {
            servers,
            wrong: AtomicU64::new(0),
        })
    }
}

impl Bench for Office {
    type Work<'a> = Calls<'a>;

    fn policy<'a>(&self, row: &'a str) -> &'a str {
        contender::policy(row)
    }

    fn work(&self, row: &str, shape: Shape, is_check: bool) -> Calls<'_> {
        let mode = contender::mode(row);
        let (_, servers) = self
            .servers
            .iter()
            .find(|(known, _)| *known == mode)
            .expect("there are servers for each mode");
        Calls {
            service: servers.service(),
            pages: shape.pages,
            is_check,
            wrong: &self.wrong,
        }
    }

    fn wrong(&self) -> u64 {
        self.wrong.swap(0, Relaxed)
    }

    fn judge(&self, shape: Shape, operations: u64) -> io::Result<(u64, u64)> {
        Ok((0, operations * (shape.pages * PAGE_WORDS) as u64))
    }
}

impl Run {
    fn new(options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        options.fit(cpus.len())?;
        let most_pages = options.pages.iter().copied().max().unwrap_or(1);
        // Before there is much to copy.
        let office = Office::open(&cpus, most_pages)?;
        let rows = options.effort.policies.clone();
        let policies: Vec<String> = rows
            .iter()
            .map(|row| contender::policy(row).to_owned())
            .collect();
        PolicySwitch::of_this_kernel().resolve(&policies)?;
        let shapes = options.threads.len() * options.pages.len();
        Ok(Self {
            course: Course::new(options.effort.clone(), cpus, rows, shapes),
            office,
            options,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many copies were wrong.
    fn all(&mut self) -> io::Result<u64> {
        let (threads, pages) = (&self.options.threads, &self.options.pages);
        self.course.pin()?;
        report::info(&self.course.info(PROGRAM, threads, pages));
        self.course.run(&self.office, threads, pages)
    }
}
