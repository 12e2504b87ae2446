//! Tags against the architecture's rules: the crate's sequences run on an emulated processor that
//! keeps every translation that it may keep and faults where the manual says so.
//!
//! `contract` checks each operation: what it promises to drop is gone, and what it has no reason to
//! drop is still there. `story` checks data: whatever happens, no translation contradicts the page tables.
//! `states` goes through every state that a processor can be in when it is handed over, and interrupts each operation
//! everywhere. `known` holds cases by hand, and cases that must fail. `guest` is the same for guests' tags.

mod contract;
mod guest;
mod known;
mod processor;
mod states;
mod story;
mod tables;

use proptest::test_runner::Config;

/// Failures are shown whole and not kept in files: the tree stays clean when mutants fail on purpose.
fn config() -> Config {
    Config {
        failure_persistence: None,
        ..Config::with_cases(512)
    }
}
