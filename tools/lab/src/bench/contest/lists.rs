//! [`Asked`]: what the words of the command line mean on the simulated machine, or what is wrong with them.

use shootdown_callbench::Masks;
use shootdown_sim::workload::{MAX_CPUS, Peer};

use crate::bench::program::distinct;
use crate::cli::Calls;
use crate::failure::{Failure, Outcome};

/// The longest function: a second.
const MOST_US: u64 = 1_000_000;
/// The most calls of an initiator.
const MOST_CALLS: u64 = 100_000;

/// What the caller asks for, where he does.
#[derive(Debug)]
pub struct Asked {
    /// CPUs of the machines; sorted, each number once.
    pub cpus: Option<Vec<usize>>,
    /// How many CPUs call; sorted, each number once.
    pub initiators: Option<Vec<Count>>,
    /// How many they call, likewise.
    pub targets: Option<Vec<Count>>,
    /// Ways to draw masks; all without a choice.
    pub masks: Vec<Masks>,
    /// Algorithms, likewise.
    pub peers: Vec<Peer>,
    /// How long functions take.
    pub functions_ps: Option<Vec<u64>>,
    /// Calls of each initiator.
    pub calls: Option<usize>,
}

/// A number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Count {
    /// So many.
    Some(usize),
    /// All that there are.
    All,
}

impl Count {
    /// How many, where there are `all`.
    pub fn of(self, all: usize) -> usize {
        match self {
            Self::Some(count) => count,
            Self::All => all,
        }
    }

    /// These numbers.
    pub fn each(counts: &[usize]) -> Vec<Self> {
        counts.iter().copied().map(Self::Some).collect()
    }
}

impl Asked {
    /// Reads the options.
    ///
    /// # Errors
    /// One of them means nothing on this machine.
    pub fn of(calls: &Calls) -> Outcome<Self> {
        let functions_us = calls.function_us.as_deref();
        if let Some(us) = functions_us.and_then(|list| list.iter().find(|us| **us > MOST_US)) {
            return Err(Failure::input(
                format!("a function of {us} us is too long"),
                format!("--function-us takes 0 to {MOST_US}"),
            ));
        }
        if let Some(asked) = calls
            .calls
            .filter(|asked| !(1..=MOST_CALLS).contains(asked))
        {
            return Err(Failure::input(
                format!("{asked} calls cannot be measured"),
                format!("--calls takes 1 to {MOST_CALLS}"),
            ));
        }
        Ok(Self {
            cpus: machine_sizes(calls.cpus.as_deref())?,
            initiators: counts("initiators", calls.initiators.as_deref())?,
            targets: counts("targets", calls.targets.as_deref())?,
            masks: named("masks", calls.masks.as_deref(), &Masks::ALL, Masks::name)?,
            peers: named("peers", calls.peers.as_deref(), &Peer::ALL, Peer::name)?,
            functions_ps: functions_us.map(|list| list.iter().map(|us| us * 1_000_000).collect()),
            calls: calls.calls.map(|asked| asked as usize),
        })
    }
}

fn machine_sizes(asked: Option<&[i64]>) -> Outcome<Option<Vec<usize>>> {
    let size = |cpus: &i64| match usize::try_from(*cpus) {
        Ok(size) if (2..=MAX_CPUS).contains(&size) => Ok(size),
        _ => Err(Failure::input(
            format!("calls on {cpus} CPUs cannot be simulated"),
            format!("--cpus takes 2 to {MAX_CPUS} here"),
        )),
    };
    let sizes = asked.map(|asked| asked.iter().map(size).collect::<Outcome<Vec<usize>>>());
    Ok(sizes.transpose()?.map(|sizes| distinct(&sizes)))
}

fn counts(option: &str, words: Option<&[String]>) -> Outcome<Option<Vec<Count>>> {
    let count = |word: &String| match word.parse::<usize>() {
        _ if word == "all" => Ok(Count::All),
        Ok(count) if (1..MAX_CPUS).contains(&count) => Ok(Count::Some(count)),
        _ => Err(Failure::input(
            format!("--{option} has no {word:?}"),
            format!("use numbers from 1 to {}, or all", MAX_CPUS - 1),
        )),
    };
    let counts = words.map(|words| words.iter().map(count).collect::<Outcome<Vec<Count>>>());
    Ok(counts.transpose()?.map(|counts| distinct(&counts)))
}

fn named<T: Copy>(
    option: &str,
    words: Option<&[String]>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Outcome<Vec<T>> {
    let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
    let mut words_asked = words.into_iter().flatten();
    if let Some(wrong) = words_asked.find(|word| !known.contains(&word.as_str())) {
        return Err(Failure::input(
            format!("--{option} has no {wrong:?}"),
            format!("choose from {}", known.join(", ")),
        ));
    }
    let is_asked = |one: &T| words.is_none_or(|words| words.iter().any(|word| word == name(*one)));
    Ok(all.iter().copied().filter(is_asked).collect())
}
