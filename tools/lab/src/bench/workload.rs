//! [`Program`]: a workload that is a user program, in one description; and [`Axes`], what the caller asks of it.

use super::columns::Column;
use super::merge::Metric;
use super::row::Row;
use super::sim::Simulated;
use crate::cli::{Bench, MachineKind};
use crate::failure::{Failure, Outcome};
use crate::protocol::Object;

const POLICIES: [&str; 4] = ["before", "published", "best", "best+defer"];

/// How names of policies end under which CPUs in the kernel are left alone.
pub const DEFERS: &str = "+defer";

/// A user program under each policy.
#[derive(Debug)]
pub struct Program {
    /// Of the program, of the command line, and of results.
    pub name: &'static str,
    /// For the help.
    pub about: &'static str,
    /// What there is more or less of, row by row.
    pub actors: Actors,
    /// How many actors there may be; the machine may have narrower bounds.
    pub actor_bounds: (u32, u32),
    /// Pages, likewise.
    pub page_bounds: (u32, u32),
    /// Without a choice, so many actors.
    pub default_actors: &'static [u32],
    /// Without a choice, so many pages.
    pub default_pages: &'static [u32],
    /// Whether all actors share one CPU.
    pub shares_cpu: bool,
    /// Whether a row is a percentile over intervals, of which many are needed.
    pub has_intervals: bool,
    /// A policy besides those of all workloads.
    pub own_policy: Option<&'static str>,
    /// Policies that are compared on the reference kernel without a choice.
    pub default_policies: [&'static str; 3],
    /// What Linux has of it.
    pub linux: OnLinux,
    /// Whether it is measured on the simulated machine where no machine is asked for.
    pub is_simulated_first: bool,
    /// Whether one iteration can be shown with `--trace` and `--picture`.
    pub is_shown: bool,
    /// What the table says above, of so many pages (`4 pages`).
    pub title: fn(&str) -> String,
    /// Columns between those of all workloads.
    pub columns: &'static [Column],
    /// Figures of its rows besides those of all workloads.
    pub metrics: &'static [Metric],
    /// A figure without which a row has measured nothing.
    pub needs: Option<&'static str>,
    /// Figures that follow from the rows of all boots; the second rows are those of the reference policy.
    pub pool: fn(&mut Row, &[&Row], &[&Row]),
    /// The counters that show how it works: heading and name.
    pub counters: &'static [(&'static str, &'static str)],
    /// What stands below a table.
    pub below: fn(&[&Row]) -> Option<String>,
    /// What must be known to read the tables; with what the program says of itself.
    pub notes: fn(&[Row], Option<&Object>) -> Vec<String>,
    /// What stands in the place of the counters where these say nothing.
    pub no_counters: fn(&[Row]) -> Option<&'static str>,
    /// What must be known to compare with Linux.
    pub linux_note: Option<&'static str>,
    /// How it runs on the simulated machine; or why not, and the remedy.
    pub simulated: Result<Simulated, (&'static str, &'static str)>,
}

impl Program {
    /// Threads that flush pages, measured by their times and the counters of the flush. A workload says what is different.
    pub const PLAIN: Self = Self {
        name: "",
        about: "",
        actors: Actors::Threads,
        actor_bounds: (1, u32::MAX),
        page_bounds: (1, 4096),
        default_actors: &[1, 2, 4],
        default_pages: &[1],
        shares_cpu: false,
        has_intervals: false,
        own_policy: None,
        default_policies: ["before", "published", "best"],
        linux: OnLinux::Always,
        is_simulated_first: false,
        is_shown: false,
        title: |pages| pages.to_owned(),
        columns: &[],
        metrics: &[],
        needs: None,
        pool: |_, _, _| (),
        counters: FLUSHES,
        below: |_| None,
        notes: |_, _| Vec::new(),
        no_counters: |_| None,
        linux_note: None,
        simulated: Err((
            "the simulated machine has no system calls",
            "use --machine qemu",
        )),
    };

    /// How many virtual CPUs that many actors keep busy.
    pub fn busy_cpus(&self, actors: u32) -> usize {
        if self.shares_cpu { 1 } else { actors as usize }
    }
}

/// How flushes work: heading, and counter of the engine.
const FLUSHES: &[(&str, &str)] = &[
    ("acks before flush", "early_acks"),
    ("flushed here first", "flushes_overlapped"),
    ("nobody waited", "flushes_unwaited"),
    ("lines read", "shared_lines_read"),
    ("pages dropped", "pages_flushed"),
];

/// What there is more or less of: an option of bench, a key of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actors {
    /// Busy threads, as a rule each on its CPU.
    Threads,
    /// Processes on one CPU.
    Spaces,
}

impl Actors {
    /// The option and the key.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Spaces => "spaces",
        }
    }
}

/// What Linux has of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLinux {
    /// All of it: it is the comparison that counts.
    Always,
    /// Less: there is a comparison where Linux was asked for.
    IfAsked,
    /// As before, and without a choice only an image with a disk is compared.
    WithDisk,
    /// Nothing, for this reason.
    Never(&'static str),
}

impl Bench {
    /// Fills in the policies where none were asked for.
    #[must_use]
    pub fn settle(mut self) -> Self {
        if self.policies.is_empty() {
            let policies = match self.machine.contains(&MachineKind::Qemu) {
                true => self.workload.default_policies,
                false => Program::PLAIN.default_policies,
            };
            self.policies = policies.map(str::to_owned).to_vec();
        }
        self
    }
}

/// What is measured, but for the policies.
#[derive(Debug, Clone)]
pub struct Axes {
    /// The workload.
    pub program: &'static Program,
    /// Numbers of actors, ascending.
    pub actors: Vec<u32>,
    /// Numbers of pages, ascending.
    pub pages: Vec<u32>,
}

impl Axes {
    /// What the caller asks for, or what the workload measures by default.
    ///
    /// # Errors
    /// An option belongs to another workload, or no machine could measure it.
    pub fn new(bench: &Bench) -> Outcome<Self> {
        let program = bench.workload;
        let (asked, other, foreign) = match program.actors {
            Actors::Threads => (&bench.threads, &bench.spaces, Actors::Spaces),
            Actors::Spaces => (&bench.spaces, &bench.threads, Actors::Threads),
        };
        let own = program.actors.name();
        if other.is_some() {
            return Err(Failure::input(
                format!("{} has no --{}", program.name, foreign.name()),
                format!("use --{own}"),
            ));
        }
        let actors = distinct(asked.as_deref().unwrap_or(program.default_actors));
        let pages = distinct(bench.pages.as_deref().unwrap_or(program.default_pages));
        check(&actors, program.actor_bounds, own)?;
        check(&pages, program.page_bounds, "pages")?;
        let is_known = |policy: &&String| {
            POLICIES.contains(&policy.as_str()) || program.own_policy == Some(policy)
        };
        if let Some(policy) = bench.policies.iter().find(|policy| !is_known(policy)) {
            return Err(Failure::input(
                format!("no policy is called {policy:?}"),
                format!("choose from {}", POLICIES.join(", ")),
            ));
        }
        Ok(Self {
            program,
            actors,
            pages,
        })
    }
}

fn check(values: &[u32], (least, most): (u32, u32), option: &str) -> Outcome<()> {
    let Some(wrong) = values.iter().find(|value| !(least..=most).contains(value)) else {
        return Ok(());
    };
    // Threads have no bound of their own: each machine says how many CPUs it has.
    let most = if most == u32::MAX { 16 } else { most };
    Err(Failure::input(
        format!("{wrong} {option} cannot be measured"),
        format!("--{option} takes {least} to {most}"),
    ))
}

/// Sorted, each value once.
pub fn distinct(values: &[u32]) -> Vec<u32> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn axes(words: &str) -> Outcome<Axes> {
        let words = ["lab", "bench"].into_iter().chain(words.split_whitespace());
        match Cli::parse_from(words).command {
            Command::Bench(bench) => Axes::new(&bench.settle()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_workload_has_axes_of_its_own() {
        let madvise = axes("").unwrap();
        assert_eq!(
            (madvise.actors, madvise.pages),
            (vec![1, 2, 4], vec![1, 8, 32])
        );
        let pingpong = axes("pingpong --spaces 3,2,3").unwrap();
        assert_eq!(
            (pingpong.actors, pingpong.pages),
            (vec![2, 3], vec![0, 512])
        );
    }

    #[test]
    fn what_belongs_to_the_other_workload_or_nowhere_is_refused() {
        for (words, remedy) in [
            ("--spaces 2", "--threads"),
            ("pingpong --threads 2", "--spaces"),
            ("pingpong --spaces 1", "2 to 64"),
            ("pingpong --spaces 65", "2 to 64"),
            ("pingpong --pages 513", "0 to 512"),
            ("--pages 0", "1 to 4096"),
            ("--threads 0", "1 to 16"),
            ("preemptoff --spaces 2", "--threads"),
            ("dirtysync --pages 0", "1 to 4096"),
            ("preemptoff --pages 0", "1 to 4096"),
            ("zerocopy --pages 257", "1 to 256"),
            ("zerocopy --spaces 2", "--threads"),
            ("madvise --policies best+ordinary", "published"),
            ("pingpong --policies fast", "published"),
        ] {
            let text = axes(words).unwrap_err().to_string();
            assert!(text.contains(remedy) && !text.contains('\n'), "{text}");
        }
    }
}
