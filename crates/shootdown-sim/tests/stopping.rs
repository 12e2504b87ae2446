//! CPUs that stop for good, at any of their events: what they have begun is in memory, where others could complete it (docs/protocol/steps.md).

use std::collections::BTreeMap;

use shootdown::sim::Unfinished;
use shootdown_sim::fuzz::{Case, run_stopping};

const SEEDS: u64 = 3000;
/// Events of a CPU in which it does most of what it does.
const EVENTS: u64 = 2_000;
/// What must have been found, or the schedules show nothing.
const FOUND: [Unfinished; 6] = [
    Unfinished::Claim,
    Unfinished::Leaf,
    Unfinished::Inbox,
    Unfinished::TakenData,
    Unfinished::Posting,
    Unfinished::Departure,
];

#[test]
fn what_a_stopped_cpu_has_begun_is_in_memory() {
    let mut found = BTreeMap::new();
    for seed in 1..=SEEDS {
        let case = Case::new(2 + seed as usize % 4, seed);
        // Spread, and none twice.
        let after = 1 + seed * 2_654_435_761 % EVENTS;
        let cpu = seed as usize / 4 % case.cpus;
        match run_stopping(&case, cpu, after) {
            Ok(left) => {
                let left = left.into_iter().flatten();
                left.for_each(|one| *found.entry(one).or_insert(0) += 1);
            }
            Err(lost) => panic!("{case}, CPU {cpu} stops after {after} events: {lost}"),
        }
    }
    let missing: Vec<_> = FOUND
        .iter()
        .filter(|one| !found.contains_key(one))
        .collect();
    assert!(
        missing.is_empty(),
        "never found: {missing:?}; found: {found:?}"
    );
}
