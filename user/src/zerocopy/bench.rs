//! What differs from other [courses](crate::course): servers, and a check that looks at every word.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::abi::MOST_PAGES;
use super::client::Calls;
use super::contender::{self, MODES};
use super::server::Servers;
use crate::args::UsageError;
use crate::course::crew::Crew;
use crate::course::{Axis, Bench, Checked, Course, Program, Shape, Slice, Table, Turn};
use crate::region::PAGE_WORDS;

/// What `--help` prints.
const HELP: &str = "\
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

/// The program `zerocopy`: servers, one process for each way to map.
#[derive(Debug)]
pub struct Zerocopy {
    servers: Vec<(u32, Servers)>,
    wrong: AtomicU64,
}

impl Program for Zerocopy {
    const TABLE: &'static Table = &Table {
        program: "zerocopy",
        help: HELP,
        tasks: Axis::threads(&[1, 2]),
        pages: Axis::pages(&[1], 1..=MOST_PAGES as u64),
        policies: ["before", "best+ordinary", "best"],
        is_spread: true,
        is_checked: true,
    };
    type Options = ();
    type Bench<'a> = Clients<'a>;

    fn new((): (), course: &Course) -> Result<Self, UsageError> {
        let most_pages = course.pages.iter().copied().max().unwrap_or(1);
        let mut servers = Vec::new();
        for mode in MODES {
            let started = Servers::start(&course.cpus, mode, most_pages as u32)
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

    fn policy(row: &str) -> &str {
        contender::policy(row)
    }

    fn start<'a>(&'a self, shape: Shape, course: &'a Course) -> io::Result<Clients<'a>> {
        Ok(Clients {
            office: self,
            pages: shape.pages,
            others: &course.cpus[1..shape.tasks],
        })
    }
}

/// One shape.
#[derive(Debug)]
pub struct Clients<'a> {
    office: &'a Zerocopy,
    pages: usize,
    /// The CPUs of the threads beside the measuring one.
    others: &'a [usize],
}

impl Clients<'_> {
    fn run(&self, turn: Turn<'_>, is_check: bool, around: &mut dyn FnMut()) -> io::Result<Slice> {
        let mode = contender::mode(turn.row);
        let mut servers = self.office.servers.iter();
        let (_, servers) = servers
            .find(|(known, _)| *known == mode)
            .expect("there are servers for each mode");
        let crew = Crew {
            work: &Calls {
                service: servers.service(),
                pages: self.pages,
                is_check,
                wrong: &self.office.wrong,
            },
            cpus: self.others,
        };
        let slice = crew.run(turn, around)?;
        let wrong = self.office.wrong.swap(0, Relaxed);
        Ok(Slice { wrong, ..slice })
    }
}

impl Bench for Clients<'_> {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        self.run(turn, false, around)
    }

    fn check(&mut self, turn: Turn<'_>) -> io::Result<Checked> {
        let slice = self.run(turn, true, &mut || ())?;
        Ok(Checked {
            rounds: slice.operations,
            reads: slice.operations * (self.pages * PAGE_WORDS) as u64,
            wrong: slice.wrong,
        })
    }
}
