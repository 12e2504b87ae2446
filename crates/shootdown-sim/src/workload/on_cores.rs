//! What `bench shoot --machine cores` measures, on the simulated machine.

use shootdown::Policy;
use shootdown_peers::Peer;

use crate::timed::Costs;
use crate::workload::{Callers, Means, Operation, Volley};

/// Cycles of a nanosecond on the machine that the preset `xeon-far` stands for.
const CYCLES: f64 = 2.5;
/// What a figure there has besides: two readings of the counter.
const READINGS: f64 = 38.0;
/// What the called function takes: it reads the counter and notes it.
const FUNCTION_PS: u64 = 20_000;
const CALLS: usize = 200;

/// Whose calls and flushes: the name in records, the algorithm, and the engine's policy.
pub const CONTENDERS: [(&str, Peer, Policy); 11] = [
    ("mailbox", Peer::Mailbox, Policy::BEST),
    ("xen-before", Peer::OneLock, Policy::BEST),
    ("xen", Peer::TaskSet, Policy::BEST),
    ("linux", Peer::CallQueues, Policy::BEST),
    ("freebsd", Peer::Scoreboard, Policy::BEST),
    ("bits", Peer::Bits, Policy::BEST),
    ("bits numbered", Peer::BitsNumbered, Policy::BEST),
    ("bits guessed", Peer::BitsGuessed, Policy::BEST),
    ("engine before", Peer::Shootdown, Policy::BEFORE),
    ("engine published", Peer::Shootdown, Policy::PUBLISHED),
    ("best", Peer::Shootdown, Policy::BEST),
];

/// Where the two CPUs are, by its name in records, and the preset that stands for it.
pub const PLACEMENTS: [(&str, &str); 2] = [("far", "xeon-far"), ("near", "xeon-near")];

/// What two CPUs do, by its name in records.
pub const OPERATIONS: [(&str, Callers, Operation); 3] = [
    ("call 1", Callers::One, Operation::Call),
    ("all call all", Callers::All, Operation::Call),
    ("flush 1 page", Callers::One, Operation::Flush),
];

/// The median of an operation in cycles.
pub fn cycles(
    costs: &Costs,
    (_, peer, policy): (&str, Peer, Policy),
    (_, callers, operation): (&str, Callers, Operation),
) -> f64 {
    let row = Volley {
        peer,
        callers,
        operation,
        means: Means::Interrupts,
        targets: 1,
        cpus: 2,
        function_ps: FUNCTION_PS,
        calls: CALLS,
        costs: costs.clone(),
        seed: 1,
        names_lines: false,
    };
    let median_ns = row
        .run_under(policy)
        .quantile_ns(500, |called| called.whole_ps);
    median_ns * CYCLES + READINGS
}
