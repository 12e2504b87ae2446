//! The lists of the command line: what each of their words means, or what is wrong with it.

use shootdown_callbench::Masks;
use shootdown_sim::workload::{MAX_CPUS, Peer};

use crate::cli::Calls;
use crate::failure::{Failure, Outcome};

/// The longest function: a second.
const MOST_US: u64 = 1_000_000;
/// The most calls of an initiator.
const MOST_CALLS: u64 = 100_000;

/// How many CPUs the caller asks for.
///
/// # Errors
/// Too few for a call, or more than can be simulated.
pub fn machine_size(cpus: i64) -> Outcome<usize> {
    let size = usize::try_from(cpus).ok();
    size.filter(|cpus| (2..=MAX_CPUS).contains(cpus))
        .ok_or_else(|| {
            Failure::input(
                format!("calls on {cpus} CPUs cannot be simulated"),
                format!("--cpus takes 2 to {MAX_CPUS} here"),
            )
        })
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
}

/// Numbers, or all; sorted, each once. `None` if the option was not given.
///
/// # Errors
/// A word is neither.
pub fn counts(option: &str, words: Option<&[String]>) -> Outcome<Option<Vec<Count>>> {
    let Some(words) = words else {
        return Ok(None);
    };
    let count = |word: &String| match word.parse::<usize>() {
        _ if word == "all" => Ok(Count::All),
        Ok(count) if (1..MAX_CPUS).contains(&count) => Ok(Count::Some(count)),
        _ => Err(Failure::input(
            format!("--{option} has no {word:?}"),
            format!("use numbers from 1 to {}, or all", MAX_CPUS - 1),
        )),
    };
    let mut counts: Vec<Count> = words.iter().map(count).collect::<Outcome<_>>()?;
    counts.sort_unstable();
    counts.dedup();
    Ok(Some(counts))
}

/// Ways to draw masks.
///
/// # Errors
/// There is no such way.
pub fn draws(calls: &Calls) -> Outcome<Vec<Masks>> {
    named(&calls.masks, &Masks::ALL, Masks::name, "masks")
}

/// Algorithms.
///
/// # Errors
/// There is no such algorithm.
pub fn peers(calls: &Calls) -> Outcome<Vec<Peer>> {
    named(&calls.peers, &Peer::ALL, Peer::name, "peers")
}

fn named<T: Copy + PartialEq>(
    words: &Option<Vec<String>>,
    all: &[T],
    name: fn(T) -> &'static str,
    option: &str,
) -> Outcome<Vec<T>> {
    let Some(words) = words else {
        return Ok(all.to_vec());
    };
    if let Some(wrong) = words
        .iter()
        .find(|word| !all.iter().any(|one| name(*one) == **word))
    {
        let known: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        return Err(Failure::input(
            format!("--{option} has no {wrong:?}"),
            format!("choose from {}", known.join(", ")),
        ));
    }
    let is_asked = |one: &T| words.iter().any(|word| name(*one) == *word);
    Ok(all.iter().copied().filter(is_asked).collect())
}

/// How long functions take, in picoseconds.
///
/// # Errors
/// One is too long.
pub fn functions_ps(calls: &Calls, default_ps: &[u64]) -> Outcome<Vec<u64>> {
    let Some(asked_us) = &calls.function_us else {
        return Ok(default_ps.to_vec());
    };
    match asked_us.iter().find(|us| **us > MOST_US) {
        Some(us) => Err(Failure::input(
            format!("a function of {us} us is too long"),
            format!("--function-us takes 0 to {MOST_US}"),
        )),
        None => Ok(asked_us.iter().map(|us| us * 1_000_000).collect()),
    }
}

/// Calls of each initiator, if that was asked for.
///
/// # Errors
/// None, or too many.
pub fn number_of_calls(calls: &Calls) -> Outcome<Option<usize>> {
    match calls.calls {
        Some(asked) if !(1..=MOST_CALLS).contains(&asked) => Err(Failure::input(
            format!("{asked} calls cannot be measured"),
            format!("--calls takes 1 to {MOST_CALLS}"),
        )),
        asked => Ok(asked.map(|asked| asked as usize)),
    }
}
