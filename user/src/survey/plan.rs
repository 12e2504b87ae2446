//! Which programs run, with which arguments.

use serde_json::Value;

use super::pages;
use super::table::Table;
use crate::args::UsageError;

/// How long a survey takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Effort {
    /// Some minutes: figures to keep.
    #[default]
    Full,
    /// Some seconds: for a look.
    Quick,
    /// As little as makes a row: for a check on a slow emulator.
    Least,
}

impl Effort {
    const ALL: [Self; 3] = [Self::Full, Self::Quick, Self::Least];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Quick => "quick",
            Self::Least => "least",
        }
    }

    /// The effort of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, UsageError> {
        let mut all = Self::ALL.into_iter();
        all.find(|effort| effort.name() == name).ok_or_else(|| {
            UsageError::new(format!("--effort is full, quick or least, not {name:?}"))
        })
    }

    /// Slices that policies take, each after the other: `--slice-ms`, `--rounds`, `--warmup-ms`.
    fn slices(self) -> [u32; 3] {
        match self {
            Self::Full => [100, 10, 50],
            Self::Quick => [30, 3, 20],
            Self::Least => [10, 1, 10],
        }
    }

    /// The same where a slice is an interval of which the longest span counts.
    fn intervals(self) -> [u32; 3] {
        match self {
            Self::Full => [500, 40, 100],
            Self::Quick => [100, 8, 100],
            Self::Least => [40, 2, 10],
        }
    }

    /// Calls of each initiator in a turn, and turns.
    fn calls(self) -> [u32; 2] {
        match self {
            Self::Full => [1000, 7],
            Self::Quick => [20, 2],
            Self::Least => [4, 1],
        }
    }

    /// Samples that a row carries: a serial line takes a second for 11 KB.
    fn samples(self) -> u32 {
        match self {
            Self::Full => 200,
            Self::Quick | Self::Least => 20,
        }
    }
}

/// How a bench is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// By the program of its name, with these arguments.
    Program(Vec<String>),
    /// By the kernel, which is told this plan.
    Calls(String),
}

/// One bench.
#[derive(Debug, Clone)]
pub struct Bench {
    /// Its name.
    pub name: &'static str,
    /// How it is carried out.
    pub way: Way,
    /// What is shown of its rows.
    pub page: fn(&[Value]) -> Table,
}

/// All benches that a machine of so many CPUs can carry out, in order. Calls are last: what answers them stays.
pub fn benches(effort: Effort, cpus: usize) -> Vec<Bench> {
    let all = cpus.to_string();
    let threads = match cpus {
        1 => "1".to_owned(),
        2 => "1,2".to_owned(),
        _ if effort == Effort::Least => all.clone(),
        cpus => format!("2,{cpus}"),
    };
    let (pages, spaces, touched) = match effort {
        Effort::Least => ("1", "2", "8"),
        Effort::Full | Effort::Quick => ("1,32", "2,8,12", "128"),
    };
    let (slices, intervals) = (effort.slices(), effort.intervals());
    let arguments = |axes: &str, times| arguments(effort, axes, times);
    let madvise = arguments(&format!("--threads={threads} --pages={pages}"), slices);
    let pingpong = arguments(&format!("--spaces={spaces} --pages={touched}"), slices);
    let preemptoff = arguments(&format!("--threads={all} --pages=8"), intervals);
    let mut benches = vec![
        bench("madvise", Way::Program(madvise), pages::madvise),
        bench("pingpong", Way::Program(pingpong), pages::pingpong),
        bench("preemptoff", Way::Program(preemptoff), pages::preemptoff),
    ];
    if cpus > 1 {
        let [calls, rounds] = effort.calls();
        let plan = format!("shoot,initiators=1:all,targets=1:all,calls={calls},rounds={rounds}");
        benches.push(bench("shoot", Way::Calls(plan), pages::shoot));
    }
    benches
}

fn bench(name: &'static str, way: Way, page: fn(&[Value]) -> Table) -> Bench {
    Bench { name, way, page }
}

/// What a program is told: its axes, its times, and how many samples it shows.
fn arguments(effort: Effort, axes: &str, times: [u32; 3]) -> Vec<String> {
    let [slice, rounds, warmup] = times;
    let mut arguments: Vec<String> = axes.split(' ').map(str::to_owned).collect();
    arguments.extend([
        format!("--slice-ms={slice}"),
        format!("--rounds={rounds}"),
        format!("--warmup-ms={warmup}"),
        format!("--samples={}", effort.samples()),
    ]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a bench is carried out, as words.
    fn words(benches: &[Bench], name: &str) -> Option<String> {
        let bench = benches.iter().find(|bench| bench.name == name)?;
        Some(match &bench.way {
            Way::Program(arguments) => arguments.join(" "),
            Way::Calls(plan) => plan.clone(),
        })
    }

    #[test]
    fn threads_are_few_and_all() {
        for (cpus, threads) in [(1, "1"), (2, "1,2"), (3, "2,3"), (64, "2,64")] {
            let benches = benches(Effort::Full, cpus);
            let madvise = words(&benches, "madvise").unwrap();
            assert!(
                madvise.starts_with(&format!("--threads={threads} --pages=1,32 ")),
                "{madvise}"
            );
            let preemptoff = words(&benches, "preemptoff").unwrap();
            assert!(
                preemptoff.starts_with(&format!("--threads={cpus} ")),
                "{preemptoff}"
            );
        }
    }

    #[test]
    fn one_cpu_has_nobody_to_call() {
        assert_eq!(words(&benches(Effort::Quick, 1), "shoot"), None);
        let plan = words(&benches(Effort::Quick, 2), "shoot");
        let expected = "shoot,initiators=1:all,targets=1:all,calls=20,rounds=2";
        assert_eq!(plan.as_deref(), Some(expected));
    }
}
