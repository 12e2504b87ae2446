//! What the simulator says of hosts that do what they must not, and seeds of machines that no host of ours has: a trampoline, firmware, two kernel roots.

use shootdown_sim::FailureKind;
use shootdown_sim::fuzz::{Campaign, Case, campaign, run};
use shootdown_sim::kernel::Scenario;

/// How a scenario ends when nothing unusual happens.
fn ends(scenario: Scenario) -> Option<(FailureKind, usize, String)> {
    let case = Case {
        schedule: Some(Default::default()),
        ..Case::of(scenario, 1)
    };
    let failure = run(&case).failure?;
    Some((failure.kind, failure.cpu, failure.message))
}

/// One INVLPG at the base of the block leaves three of four small translations, which were right until the block was unmapped (FreeBSD had it so).
#[test]
fn a_promotion_that_is_flushed_as_one_page_is_caught() {
    let (kind, cpu, message) = ends(Scenario::PromoteByPage).expect("it is a mistake");
    assert_eq!((kind, cpu), (FailureKind::StaleAccess, 1));
    assert!(message.contains("page 1 of space"), "{message}");
}

#[test]
fn a_promotion_that_is_flushed_as_a_table_is_clean() {
    let plan = Campaign {
        runs: 1000,
        scenario: Some(Scenario::PromoteByTable),
        ..Campaign::default()
    };
    let failure = campaign(plan, |_| ()).failure;
    assert_eq!(
        failure.map(|(case, report)| (case.to_string(), report.failure)),
        None
    );
}

#[test]
fn a_root_without_the_memory_that_is_lent_is_named() {
    let (kind, _, message) = ends(Scenario::BareRoot).expect("it is a mistake");
    assert_eq!(kind, FailureKind::Unmapped);
    assert!(message.contains("which its root does not map"), "{message}");
}

/// The holder waits for the walker, and the walker for the lock.
#[test]
fn a_walker_that_spins_for_a_lock_whose_holder_waits_hangs() {
    let (kind, _, _) = ends(Scenario::WalkerLocks).expect("it is a mistake");
    // Both spin.
    assert_eq!(kind, FailureKind::OutOfEvents);
}

/// Each would wait for the other.
#[test]
fn walkers_that_free_tables_are_stopped() {
    let (kind, _, message) = ends(Scenario::WalkersFree).expect("it is a mistake");
    assert_eq!(kind, FailureKind::Panic);
    let why = "inside the section it may not wait for others, free tables";
    assert!(message.contains(why), "{message}");
}

/// Whoever waits for a lost interrupt stands still in most of its turns, while others spin.
#[test]
fn a_waiter_that_others_hold_up_has_the_time_to_send_a_lost_interrupt_again() {
    assert_eq!(run(&Case::new(4, 700_000_112_119)).failure, None);
}

/// Memory is full when its root is taken, and no more when its page is.
#[test]
fn a_trampoline_that_there_is_no_memory_for_keeps_none() {
    assert_eq!(run(&Case::new(6, 810_000_445_878)).failure, None);
}

/// Engines that were wrong about roots of the host failed in these.
#[test]
fn nothing_of_one_root_of_the_host_is_used_under_another() {
    for (what, cpus, seed) in [
        ("the trampoline", 3, 196),
        ("firmware's root", 4, 3),
        ("the kernel's other root", 6, 228),
        ("the root that a lazy CPU let go for", 4, 40),
    ] {
        assert_eq!(run(&Case::new(cpus, seed)).failure, None, "{what}");
    }
}
