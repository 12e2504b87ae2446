//! Measures an empty system call, `getppid`, by all threads at once: what a policy adds to each way into the kernel and out of it.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use shootdown_user::args::{self, UsageError};
use shootdown_user::course::{Bench, Course};
use shootdown_user::crew::Work;
use shootdown_user::effort::Effort;
use shootdown_user::madvise::row::Shape;
use shootdown_user::madvise::slice::Sample;
use shootdown_user::policy::PolicySwitch;
use shootdown_user::{clock, program, report};

const PROGRAM: &str = "syscall";
const HELP: &str = "\
syscall: the time of an empty system call, by all threads at once

usage: syscall [OPTION]...
  --threads LIST    threads of the process, one a CPU            [1,2]
  --pages 0         a row says of how many pages it is
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N, --rounds N, --warmup-ms N, --samples N, --seed N, --self-check
                    as those of madvise
  --help

exit status: 0 all well, 1 a wrong answer, 2 bad arguments
";
/// The most threads one run may ask for.
const MAX_THREADS: u64 = 1024;

fn main() -> ExitCode {
    let options = parse(std::env::args_os().skip(1));
    program::run(PROGRAM, HELP, options, set_up, |(mut course, threads)| {
        program::verdict(PROGRAM, measure(&mut course, &threads))
    })
}

type Options = (Effort, Vec<usize>);

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Options>, UsageError> {
    let (mut effort, mut threads) = (Effort::default(), vec![1, 2]);
    let set = |name: &str, text: &str| {
        match name {
            "--threads" => threads = args::numbers(name, text, 1..=MAX_THREADS)?,
            _ => drop(args::numbers(name, text, 0..=0)?),
        }
        Ok(())
    };
    let goes_on = effort.parse(arguments, &["--threads", "--pages"], set)?;
    Ok(goes_on.then_some((effort, threads)))
}

fn set_up((effort, threads): Options) -> Result<(Course, Vec<usize>), UsageError> {
    let cpus = args::cpus()?;
    if let Some(most) = threads.iter().max().filter(|most| **most > cpus.len()) {
        let have = cpus.len();
        return Err(UsageError::new(format!(
            "{most} threads need {most} CPUs and this machine has {have}: ask for fewer threads or more CPUs"
        )));
    }
    let policies = PolicySwitch::of_this_kernel().resolve(&effort.policies)?;
    let course = Course::new(effort, cpus, policies, threads.len());
    Ok((course, threads))
}

fn measure(course: &mut Course, threads: &[usize]) -> io::Result<u64> {
    course.pin()?;
    report::info(&course.info(PROGRAM, threads, &[0]));
    let calls = Calls {
        parent: std::os::unix::process::parent_id(),
        wrong: AtomicU64::new(0),
    };
    course.run(&calls, threads, &[0])
}

/// The calls of all threads.
struct Calls {
    parent: u32,
    wrong: AtomicU64,
}

impl Work for &Calls {
    type Seat = ();

    fn seat(&self, _: usize, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn operate(&self, (): &mut ()) -> io::Result<Sample> {
        let begun = clock::ticks();
        let parent = std::os::unix::process::parent_id();
        let ticks = clock::ticks().wrapping_sub(begun);
        if parent != self.parent {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        let whole = u32::try_from(ticks).unwrap_or(u32::MAX);
        Ok(Sample { whole, call: whole })
    }
}

impl Bench for Calls {
    type Work<'a> = &'a Calls;

    fn work(&self, _: &str, _: Shape, _: bool) -> &Calls {
        self
    }

    fn wrong(&self) -> u64 {
        self.wrong.swap(0, Ordering::Relaxed)
    }

    fn judge(&self, _: Shape, operations: u64) -> io::Result<(u64, u64)> {
        Ok((0, operations))
    }
}
