//! Measures an empty system call, `getppid`, by all threads at once: what a policy adds to each way into the kernel and out of it.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use shootdown_user::args::UsageError;
use shootdown_user::course::crew::{Crew, Work};
use shootdown_user::course::{
    self, Axis, Bench, Checked, Course, Program, Sample, Shape, Slice, Table, Turn,
};
use shootdown_user::{clock, policy};

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

fn main() -> ExitCode {
    course::main::<Syscall>()
}

/// Who the parent is, which every call must tell.
struct Syscall {
    parent: u32,
    wrong: AtomicU64,
}

impl Program for Syscall {
    const TABLE: &'static Table = &Table {
        program: "syscall",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[0], 0..=0),
        policies: policy::USUAL,
        is_spread: true,
        is_checked: true,
    };
    type Options = ();
    type Bench<'a> = Calls<'a>;

    fn new((): (), _: &Course) -> Result<Self, UsageError> {
        Ok(Self {
            parent: std::os::unix::process::parent_id(),
            wrong: AtomicU64::new(0),
        })
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Calls<'a>> {
        Ok(Calls {
            program: self,
            others: &course.cpus[1..shape.tasks],
        })
    }
}

impl Work for Syscall {
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

/// The calls of all threads.
struct Calls<'a> {
    program: &'a Syscall,
    others: &'a [usize],
}

impl Bench for Calls<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let crew = Crew {
            work: self.program,
            cpus: self.others,
        };
        let slice = crew.run(turn, around)?;
        let wrong = self.program.wrong.swap(0, Ordering::Relaxed);
        Ok(Slice { wrong, ..slice })
    }

    fn check(&mut self, turn: Turn<'_>) -> io::Result<Checked> {
        let slice = self.turn(turn, &mut || ())?;
        Ok(Checked {
            rounds: slice.operations,
            reads: slice.operations,
            wrong: slice.wrong,
        })
    }
}
