//! What distinguishes the benches of two workloads: names, axes and what they are by default.

use crate::cli::{Bench, MachineKind, Workload};
use crate::failure::{Failure, Outcome};

const POLICIES: [&str; 4] = ["before", "published", "best", "best+defer"];
/// A row of zerocopy on the reference kernel: pages mapped for all threads of the server, under a policy that has windows.
const ORDINARY: &str = "best+ordinary";

/// How names of policies end under which CPUs in the kernel are left alone.
pub const DEFERS: &str = "+defer";

impl Bench {
    /// Fills in the policies where none were asked for.
    #[must_use]
    pub fn settle(mut self) -> Self {
        if self.policies.is_empty() {
            let is_live = self.machine.contains(&MachineKind::Qemu);
            let policies = match self.workload {
                Workload::Zerocopy if is_live => ["before", ORDINARY, "best"],
                _ => ["before", "published", "best"],
            };
            self.policies = policies.map(str::to_owned).to_vec();
        }
        self
    }
}

impl Workload {
    /// The name of the program, and of the workload in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Madvise => "madvise",
            Self::Dirtysync => "dirtysync",
            Self::Pingpong => "pingpong",
            Self::Preemptoff => "preemptoff",
            Self::Zerocopy => "zerocopy",
        }
    }

    /// What there is more or less of, row by row: an option of bench, a key in results.
    pub fn actors(self) -> &'static str {
        match self {
            Self::Madvise | Self::Dirtysync | Self::Preemptoff | Self::Zerocopy => "threads",
            Self::Pingpong => "spaces",
        }
    }

    /// How many actors there may be; the machine may have narrower bounds.
    fn bounds(self) -> (u32, u32) {
        match self {
            Self::Madvise | Self::Dirtysync | Self::Preemptoff | Self::Zerocopy => (1, u32::MAX),
            Self::Pingpong => (2, 64),
        }
    }

    /// Pages, likewise. No flush of madvise is larger; more pages of so many processes do not fit into the machines.
    fn page_bounds(self) -> (u32, u32) {
        match self {
            Self::Madvise | Self::Dirtysync | Self::Preemptoff => (1, 4096),
            Self::Zerocopy => (1, 256),
            Self::Pingpong => (0, 512),
        }
    }

    /// How many virtual CPUs that many actors keep busy.
    pub fn busy_cpus(self, actors: u32) -> usize {
        match self {
            Self::Madvise | Self::Dirtysync | Self::Preemptoff | Self::Zerocopy => actors as usize,
            Self::Pingpong => 1,
        }
    }
}

/// What is measured, but for the policies.
#[derive(Debug, Clone)]
pub struct Axes {
    /// The workload.
    pub workload: Workload,
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
        let workload = bench.workload;
        let (asked, foreign, default_actors, default_pages): (_, _, &[u32], &[u32]) = match workload
        {
            Workload::Madvise => (&bench.threads, &bench.spaces, &[1, 2, 4], &[1, 8, 32]),
            Workload::Dirtysync => (&bench.threads, &bench.spaces, &[1, 2, 4], &[4]),
            Workload::Pingpong => (&bench.spaces, &bench.threads, &[2, 3, 6, 8, 12], &[0, 512]),
            Workload::Preemptoff => (&bench.threads, &bench.spaces, &[2, 4], &[8]),
            Workload::Zerocopy => (&bench.threads, &bench.spaces, &[1, 2], &[1]),
        };
        if foreign.is_some() {
            let (name, own) = (workload.name(), workload.actors());
            let other = match workload {
                Workload::Pingpong => Workload::Madvise,
                _ => Workload::Pingpong,
            };
            return Err(Failure::input(
                format!("{name} has no --{}", other.actors()),
                format!("use --{own}"),
            ));
        }
        let actors = distinct(asked.as_deref().unwrap_or(default_actors));
        let pages = distinct(bench.pages.as_deref().unwrap_or(default_pages));
        check(&actors, workload.bounds(), workload.actors())?;
        check(&pages, workload.page_bounds(), "pages")?;
        check_policies(workload, &bench.policies)?;
        Ok(Self {
            workload,
            actors,
            pages,
        })
    }

    /// So many actors in words.
    pub fn actors_in_words(&self, count: u32) -> String {
        counted(count, self.workload.actors())
    }
}

/// `1 page`, `2 pages`: the number with the word, which is given in the plural.
pub fn counted(count: u32, words: &str) -> String {
    match count {
        1 => format!("1 {}", words.trim_end_matches('s')),
        _ => format!("{count} {words}"),
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

fn check_policies(workload: Workload, policies: &[String]) -> Outcome<()> {
    let is_known = |policy: &str| {
        POLICIES.contains(&policy) || (workload == Workload::Zerocopy && policy == ORDINARY)
    };
    match policies.iter().find(|policy| !is_known(policy)) {
        Some(policy) => Err(Failure::input(
            format!("no policy is called {policy:?}"),
            format!("choose from {}", POLICIES.join(", ")),
        )),
        None => Ok(()),
    }
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

    #[test]
    fn one_of_a_thing_is_singular() {
        assert_eq!(counted(1, "pages"), "1 page");
        assert_eq!(counted(0, "pages"), "0 pages");
    }
}
