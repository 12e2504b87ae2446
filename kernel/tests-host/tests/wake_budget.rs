//! What threads that wake up may take from those that run.

use shootdown_kernel_tests::task::scheduling::{Priority, SLICE_NS};
use shootdown_kernel_tests::task::wake_budget::WakeBudget;

const MS: u64 = 1_000_000;

/// One that sleeps a moment after each of its turns, and one that never does: half the time each, after a slice.
#[test]
fn woken_threads_take_no_more_than_half() {
    for (turn, rest) in [(9 * MS, 1), (MS, 1), (SLICE_NS, MS), (3 * MS, 2 * MS)] {
        let budget = WakeBudget::full();
        let (mut woken, mut other) = (0, 0);
        while woken + other < 100 * SLICE_NS {
            budget.account(Priority::NORMAL, false, rest);
            other += rest;
            if budget.allows() {
                budget.account(Priority::AWAKE, true, turn);
                woken += turn;
            }
        }
        assert!(
            woken <= other + 2 * SLICE_NS,
            "{turn}, {rest}: {woken} of {other}"
        );
        assert!(
            turn < rest || woken + 2 * SLICE_NS >= other,
            "{turn}, {rest}: {woken} of {other}"
        );
    }
}

#[test]
fn who_takes_nothing_from_anybody_pays_nothing() {
    let budget = WakeBudget::full();
    budget.account(Priority::AWAKE, false, 100 * SLICE_NS);
    assert!(budget.allows(), "nobody waited");
    budget.account(Priority::AWAKE, true, u64::MAX);
    assert!(!budget.allows());
    budget.account(Priority::NORMAL, false, SLICE_NS);
    assert!(!budget.allows(), "a slice is owed, and no more");
    budget.account(Priority::NORMAL, false, 1);
    assert!(budget.allows());
}
