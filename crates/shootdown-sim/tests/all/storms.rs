//! All CPUs at once: who is reached, and which cache lines move.

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{
    Callers, Means, Operation, Peer, Volley, VolleyResult, on_large_stack,
};

const OPERATIONS: [Operation; 2] = [Operation::Call, Operation::Flush];

fn storm(peer: Peer, operation: Operation, cpus: usize, targets: usize) -> Volley {
    Volley {
        peer,
        callers: Callers::All,
        operation,
        means: Means::Interrupts,
        targets,
        cpus,
        function_ps: 0,
        calls: 2,
        costs: Preset::named("large-server").unwrap().costs(),
        seed: 1,
        names_lines: true,
    }
}

fn run(row: &Volley) -> VolleyResult {
    on_large_stack(|| row.run())
}

/// CPUs that no whole space is left for have none, and flush nothing.
#[test]
fn every_flush_reaches_every_target() {
    for peer in Peer::ALL {
        for (targets, callers) in [(1, 20), (8, 18), (18, 19), (19, 20)] {
            let row = storm(peer, Operation::Flush, 20, targets);
            let result = run(&row);
            assert_eq!(result.calls.len(), callers * row.calls, "{peer}");
            assert_eq!(
                result.runs as usize,
                callers * row.calls * targets,
                "{peer}"
            );
        }
        let lone = Volley {
            callers: Callers::One,
            ..storm(peer, Operation::Flush, 9, 8)
        };
        assert_eq!((run(&lone).calls.len(), run(&lone).runs), (2, 16), "{peer}");
    }
}

/// Nothing else takes anything like so long.
#[test]
fn both_sides_of_a_flush_pay_for_forgetting_the_page() {
    const MILLISECOND_PS: u64 = 1_000_000_000;
    for peer in Peer::ALL {
        let mut row = storm(peer, Operation::Flush, 2, 1);
        row.callers = Callers::One;
        row.costs.flush_page_ps = MILLISECOND_PS;
        let result = run(&row);
        let busy_ps = result
            .calls
            .iter()
            .map(|called| called.busy_ps)
            .sum::<u64>();
        let paid = [result.activity.handler_ps, busy_ps].map(|ps| ps / MILLISECOND_PS);
        assert_eq!(paid, [2, 2], "{peer}: 2 flushes of a page");
    }
}

/// The engine's slot has its pending set on lines of its own from 65 CPUs on.
#[test]
fn every_line_that_moves_has_a_name() {
    for (peer, cpus) in Peer::ALL
        .map(|peer| (peer, 64))
        .into_iter()
        .chain([(Peer::Shootdown, 256)])
    {
        for operation in OPERATIONS {
            for targets in [1, 8, cpus - 1] {
                let result = run(&storm(peer, operation, cpus, targets));
                let names: Vec<&str> = result.moves.keys().copied().collect();
                assert!(!names.contains(&"other"), "{peer}: {names:?}");
                let named: u64 = result.moves.values().map(|moves| moves.sum().count).sum();
                assert_eq!(named, result.lines, "{peer}, {operation:?} of {targets}");
            }
        }
    }
}

#[test]
fn names_say_what_the_lines_hold() {
    let names = |callers, peer, operation, cpus| {
        let row = Volley {
            callers,
            ..storm(peer, operation, cpus, cpus - 1)
        };
        let names: Vec<_> = run(&row).moves.into_keys().collect();
        names.join(", ")
    };
    for (peer, expected) in [
        (Peer::Mailbox, "lock, message"),
        (Peer::OneLock, "call, lock"),
        (Peer::TaskSet, "calls, set of callers"),
        (Peer::CallQueues, "entries, queues"),
        (Peer::Scoreboard, "operations, scoreboard"),
    ] {
        assert_eq!(names(Callers::All, peer, Operation::Flush, 9), expected);
    }
    let ours = |callers, operation, cpus| names(callers, Peer::Shootdown, operation, cpus);
    let (few, many) = (
        ours(Callers::One, Operation::Call, 4),
        ours(Callers::One, Operation::Call, 64),
    );
    assert!(few.contains("inbox") && !few.contains("ring"), "{few}");
    assert!(
        many.contains("ring: leaves") && !many.contains("inbox"),
        "{many}"
    );
    assert!(
        !many.contains("pending"),
        "a slot for 64 CPUs is one line: {many}"
    );
    let wide = ours(Callers::One, Operation::Call, 256);
    assert!(wide.contains("slot, slot: pending"), "{wide}");
    let storm = ours(Callers::All, Operation::Flush, 64);
    assert!(storm.contains("space: generation"), "{storm}");
}

#[test]
fn naming_lines_changes_nothing() {
    for operation in OPERATIONS {
        let row = storm(Peer::Shootdown, operation, 20, 8);
        let unnamed = Volley {
            names_lines: false,
            ..row.clone()
        };
        let (named, unnamed) = (run(&row), run(&unnamed));
        assert_eq!(named.calls, unnamed.calls);
        assert_eq!(
            (named.activity, named.lines),
            (unnamed.activity, unnamed.lines)
        );
        assert!(unnamed.moves.is_empty() && !named.moves.is_empty());
    }
}
