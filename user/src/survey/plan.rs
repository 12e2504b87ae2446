//! Which programs run, with which arguments.

use super::pages;
use super::table::Table;
use crate::args::UsageError;
use serde_json::Value;

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

    /// Slices that policies take in turns: `--slice-ms`, `--rounds`, `--warmup-ms`.
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
    let is_least = effort == Effort::Least;
    let threads = match cpus {
        1 => "1".to_owned(),
        2 => "1,2".to_owned(),
        cpus if is_least => cpus.to_string(),
        cpus => format!("2,{cpus}"),
    };
    let (pages, spaces, touched) = match is_least {
        true => ("1", "2", "8"),
        false => ("1,32", "2,8,12", "128"),
    };
    let program = |name, page, axes: [(&str, &str); 2], times: [u32; 3]| {
        let mut arguments: Vec<String> = axes
            .iter()
            .map(|(axis, list)| format!("--{axis}={list}"))
            .collect();
        for (option, value) in ["slice-ms", "rounds", "warmup-ms"].iter().zip(times) {
            arguments.push(format!("--{option}={value}"));
        }
        arguments.push(format!("--samples={}", effort.samples()));
        let way = Way::Program(arguments);
        Bench { name, way, page }
    };
    let all = cpus.to_string();
    let (slices, intervals) = (effort.slices(), effort.intervals());
    let mut benches = vec![
        program(
            "madvise",
            pages::madvise,
            [("threads", &threads), ("pages", pages)],
            slices,
        ),
        program(
            "pingpong",
            pages::pingpong,
            [("spaces", spaces), ("pages", touched)],
            slices,
        ),
        program(
            "preemptoff",
            pages::preemptoff,
            [("threads", &all), ("pages", "8")],
            intervals,
        ),
    ];
    if cpus > 1 {
        let [calls, rounds] = effort.calls();
        benches.push(Bench {
            name: "shoot",
            way: Way::Calls(format!(
                "shoot,initiators=1:all,targets=1:all,calls={calls},rounds={rounds}"
            )),
            page: pages::shoot,
        });
    }
    benches
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
        for (cpus, threads) in [(1, "1"), (2, "1,2"), (3, "2,3"), (16, "2,16")] {
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
