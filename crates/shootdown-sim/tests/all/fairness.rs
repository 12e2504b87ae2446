//! Who waits for whom when several CPUs call at once, on the timed machine: the published algorithms' ways to starve somebody,
//! and that the engine has none. Simulated times are exact, so they may be asserted.

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Masks, Peer, Selected, SelectedResult};

/// As long as the published function: nothing else counts beside it.
const FUNCTION_PS: u64 = 500_000_000;

fn row(peer: Peer, initiators: usize, size: usize, masks: Masks, calls: usize) -> Selected {
    Selected {
        peer,
        initiators,
        size,
        masks,
        cpus: 128,
        function_ps: FUNCTION_PS,
        calls,
        costs: Preset::named("40-core").unwrap().costs(),
        seed: 1,
    }
}

/// In the number of functions that one call waits for, its own among them, by initiator.
fn longest_waits(result: &SelectedResult) -> Vec<u64> {
    let longest = |calls_ps: &Vec<u64>| calls_ps.iter().max().unwrap() / FUNCTION_PS;
    result.calls_ps.iter().map(longest).collect()
}

/// With a few calls a 99th percentile is the longest of them, and depends on chance.
const MANY_CALLS: usize = 500;

#[test]
fn no_initiator_of_ours_fares_worse_than_the_others() {
    for initiators in [1, 2, 4, 8, 16] {
        for (masks, size) in [
            (Masks::Disjoint, 4),
            (Masks::Random, 4),
            (Masks::Random, 16),
            (Masks::Identical, 16),
        ] {
            // Disjoint calls that take no time differ by the distance of their targets, and in nothing else.
            let functions_ps = match masks {
                Masks::Disjoint => &[FUNCTION_PS][..],
                _ => &[FUNCTION_PS, 0],
            };
            for &function_ps in functions_ps {
                let row = Selected {
                    function_ps,
                    ..row(Peer::Shootdown, initiators, size, masks, MANY_CALLS)
                };
                let unfairness = row.run().unfairness();
                assert!(
                    unfairness <= 1.5,
                    "{initiators} initiators, {size} {masks} targets, {function_ps} ps: {unfairness}"
                );
            }
        }
    }
}

/// Four initiators with the same targets: whoever is served in turn waits for three others.
fn four_with_the_same_targets(peer: Peer) -> Vec<u64> {
    longest_waits(&row(peer, 4, 16, Masks::Identical, 20).run())
}

#[test]
fn ours_linux_s_and_locked_calls_are_served_in_turn() {
    for peer in [
        Peer::Shootdown,
        Peer::CallQueues,
        Peer::OneLock,
        Peer::Mailbox,
    ] {
        assert_eq!(four_with_the_same_targets(peer), [4, 4, 4, 4], "{peer}");
    }
}

/// Its responder looks from CPU 0 again after every operation: two initiators keep it busy, and the others wait until these have
/// no more calls.
#[test]
fn freebsd_s_last_initiators_wait_until_the_first_have_finished() {
    let waits = four_with_the_same_targets(Peer::Scoreboard);
    let calls_of_the_first_two = 2 * 20;
    assert!(waits[0] <= 3 && waits[1] <= 3, "{waits:?}");
    assert!(waits[3] >= calls_of_the_first_two, "{waits:?}");
}

/// Its responder walks the set of initiators once an interrupt, from CPU 0: each of the higher numbers waits for more lower ones.
#[test]
fn xen_s_initiators_wait_the_longer_the_higher_their_number() {
    let waits = four_with_the_same_targets(Peer::TaskSet);
    assert!(waits.is_sorted() && waits[0] < waits[3], "{waits:?}");
}

/// Under one lock a call waits for calls that have nothing to do with it.
#[test]
fn locked_calls_wait_for_calls_to_other_targets() {
    for (peer, waits) in [
        (Peer::OneLock, 4),
        (Peer::Mailbox, 4),
        (Peer::TaskSet, 1),
        (Peer::CallQueues, 1),
        (Peer::Scoreboard, 1),
        (Peer::Shootdown, 1),
    ] {
        let result = row(peer, 4, 16, Masks::Disjoint, 20).run();
        assert_eq!(longest_waits(&result), [waits; 4], "{peer}");
    }
}
