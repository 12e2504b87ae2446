//! Workload T1, second part, as published: `sysbench fileio`, which writes at random places of mapped files and syncs them.
//!
//! The program is Debian's, unchanged, from the image that the lab has packed around this one. A turn is one run of it with a number of events; its events
//! are writes and syncs. In its mmap mode a sync is an `msync` of a whole file, and `--file-fsync-mode` has no effect.
//!
//! On Linux the files are on a disk in memory, as in [`dirtysync`](crate::dirtysync): in memory alone syncs would do nothing there.

pub mod output;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::args::{self, UsageError};
use crate::course::{Axis, Bench, Course, Entry, OwnOptions, Program, Sample, Shape, Slice};
use crate::course::{Table, Turn};
use crate::dirtysync::ramdisk;
use crate::region::PAGE_BYTES;
use crate::{machine, policy};
use output::Output;

/// Where the program is in the image.
const PROGRAM: &str = "/usr/bin/sysbench";
/// Where the files are, without a disk for them.
const DIRECTORY: &str = "/tmp";
/// Writes between two syncs of all files: sysbench's own default.
const SYNC_EVERY: u64 = 100;

const HELP: &str = "\
sysbench: the time of an event of sysbench fileio, random writes to mapped files, by all threads at once

usage: sysbench [OPTION]...
  --threads LIST    threads of sysbench                          [1,2]
  --pages LIST      consecutive pages in a write                 [4]
  --files N         files                                        [128]
  --file-mib N      size of all files together                   [32]
  --events N        events of a run                              [1000]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      how long a run is expected to take           [60]
  --rounds N        runs of each policy                          [7]
  --warmup-ms N     0: no run before the first round             [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, places that are written   [1]
  --self-check      has no effect
  --help

exit status: 0 all well, 1 a failed run, 2 bad arguments
";

/// What only this program is told.
#[derive(Debug)]
pub struct Options {
    files: u64,
    file_mib: u64,
    events: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            files: 128,
            file_mib: 32,
            events: 1000,
        }
    }
}

impl OwnOptions for Options {
    const NAMES: &'static [&'static str] = &["--files", "--file-mib", "--events"];

    fn set(&mut self, name: &str, text: &str) -> Result<(), UsageError> {
        let number = |most| args::number(name, text, 1..=most);
        match name {
            "--files" => self.files = number(1024)?,
            "--file-mib" => self.file_mib = number(4096)?,
            _ => self.events = number(10_000_000)?,
        }
        Ok(())
    }
}

/// The program `sysbench`.
#[derive(Debug)]
pub struct Sysbench {
    options: Options,
    directory: PathBuf,
}

impl Program for Sysbench {
    const TABLE: &'static Table = &Table {
        program: "sysbench",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[4], 1..=64),
        policies: policy::USUAL,
        is_spread: false,
        is_checked: false,
    };
    type Options = Options;
    type Bench<'a> = Runs<'a>;

    fn new(options: Options, _: &Course) -> Result<Self, UsageError> {
        if !Path::new(PROGRAM).exists() {
            return Err(UsageError::new(format!(
                "there is no {PROGRAM}: make an image of it on the host (./lab image sysbench)"
            )));
        }
        let disk = ramdisk::mount()
            .map_err(|error| UsageError::new(format!("cannot make a disk: {error}")))?;
        Ok(Self {
            options,
            directory: disk.unwrap_or(Path::new(DIRECTORY)).to_owned(),
        })
    }

    fn info(&self, info: &mut Value) {
        info["files"] = self.options.files.into();
        info["file_mib"] = self.options.file_mib.into();
        info["events"] = self.options.events.into();
        info["writes_a_sync"] = SYNC_EVERY.into();
        info["directory"] = json!(self.directory);
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Runs<'a>> {
        let runs = Runs {
            program: self,
            shape,
            course,
        };
        // What an earlier shape has left, if any.
        let _ignored = runs.sysbench("cleanup", 1, 1);
        runs.sysbench("prepare", 1, 1)?;
        Ok(runs)
    }
}

/// Runs of the program with one number of threads.
#[derive(Debug)]
pub struct Runs<'a> {
    program: &'a Sysbench,
    shape: Shape,
    course: &'a Course,
}

impl Runs<'_> {
    /// Does one of its commands; what it prints.
    fn sysbench(&self, command: &str, seed: u64, events: u64) -> io::Result<String> {
        let Options {
            files, file_mib, ..
        } = self.program.options;
        let mut program = Command::new(PROGRAM);
        program
            .current_dir(&self.program.directory)
            .args(["fileio", "--file-test-mode=rndwr", "--file-io-mode=mmap"])
            .arg(format!("--file-num={files}"))
            .arg(format!("--file-total-size={file_mib}M"))
            .arg(format!(
                "--file-block-size={}",
                self.shape.pages * PAGE_BYTES
            ))
            .arg(format!("--file-fsync-freq={SYNC_EVERY}"))
            .arg(format!("--threads={}", self.shape.tasks))
            .arg(format!("--rand-seed={seed}"))
            .arg(format!("--events={events}"))
            .args(["--time=0", command]);
        // Its threads are not pinned, but have as many CPUs as there are threads.
        let cpus = &self.course.cpus;
        machine::pin_to_all(&cpus[..self.shape.tasks.min(cpus.len())])?;
        let output = program.output();
        machine::pin_to(cpus[0])?;
        let output = output?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => {
                let errors = String::from_utf8_lossy(&output.stderr).into_owned();
                let why = format!("sysbench {command}: {}: {text}{errors}", output.status);
                Err(io::Error::other(why.replace('\n', " ")))
            }
        }
    }
}

impl Bench for Runs<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        around();
        let text = self.sysbench("run", turn.seed, self.program.options.events)?;
        around();
        let found = Output::parse(&text).map_err(io::Error::other)?;
        let ticks = self.course.clock.to_ticks(found.elapsed);
        turn.samples[0] = Sample::of(ticks / found.events.max(1));
        Ok(Slice {
            samples: 1,
            operations: found.events,
            ticks,
            wrong: 0,
        })
    }

    fn add_fields(&mut self, entry: &Entry<'_>, row: &mut Value) {
        entry.add_calls(row);
        let elapsed_ns = self.course.clock.to_ns(entry.row.total.ticks);
        row["elapsed_ms"] = (elapsed_ns / 1_000_000).into();
    }
}
