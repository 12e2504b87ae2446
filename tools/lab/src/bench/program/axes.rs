//! [`Axes`]: what the caller asks of a program.

use shootdown::Policy;

use crate::bench::workload::Program;
use crate::cli::{Bench, MAX_CPUS};
use crate::failure::{Failure, Outcome};

/// Shown in an error; [`Policy::from_name`] knows them, and what may stand behind a `+`.
const POLICIES: &str =
    "before, published, best; behind it +concurrent, +inline, +early-ack, +prefetch, +defer";

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
        let own = program.actors;
        let (asked, other, foreign) = match own {
            "spaces" => (&bench.spaces, &bench.threads, "threads"),
            _ => (&bench.threads, &bench.spaces, "spaces"),
        };
        if other.is_some() {
            return Err(Failure::input(
                format!("{} has no --{foreign}", program.name),
                format!("use --{own}"),
            ));
        }
        let actors = distinct(asked.as_deref().unwrap_or(program.default_actors));
        let pages = distinct(bench.pages.as_deref().unwrap_or(program.default_pages));
        check(&actors, program.actor_bounds, own)?;
        check(&pages, program.page_bounds, "pages")?;
        let is_known = |policy: &&String| {
            Policy::from_name(policy).is_some()
                || program.own_policy == Some(policy)
                || program.simulated_policies().contains(&policy.as_str())
                || program.default_policies.contains(&policy.as_str())
        };
        if let Some(policy) = bench.policies.iter().find(|policy| !is_known(policy)) {
            return Err(Failure::input(
                format!("no policy is called {policy:?}"),
                format!("choose from {POLICIES}"),
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
    let most = match most {
        u32::MAX => MAX_CPUS,
        most => most.into(),
    };
    Err(Failure::input(
        format!("{wrong} {option} cannot be measured"),
        format!("--{option} takes {least} to {most}"),
    ))
}

/// Sorted, each value once.
pub fn distinct<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::bench;

    fn axes(words: &str) -> Outcome<Axes> {
        Axes::new(&bench(words))
    }

    #[test]
    fn each_workload_has_axes_of_its_own() {
        let axes = |words| axes(words).map(|axes| (axes.actors, axes.pages)).unwrap();
        assert_eq!(axes(""), (vec![1, 2, 4], vec![1, 8, 32]));
        assert_eq!(axes("pingpong --spaces 3,2,3"), (vec![2, 3], vec![0, 512]));
    }

    #[test]
    fn a_machine_that_is_taken_anyway_may_be_named() {
        for name in ["madvise", "pingpong", "syscall"] {
            let named = bench(&format!("{name} --machine qemu"));
            assert_eq!(bench(name).policies, named.policies);
        }
        assert_ne!(bench("syscall").policies, bench("madvise").policies);
        let zerocopy = bench("zerocopy --machine sim");
        assert_eq!(bench("zerocopy").policies, zerocopy.policies);
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
            ("--threads 0", "1 to 64"),
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
