//! Calls of one CPU or of all at once, on the timed machine: what is counted of them.

use shootdown_sim::timed::{Activity, Preset};
use shootdown_sim::workload::{Called, Callers, Means, Operation, Peer, Volley};

fn row(peer: Peer, callers: Callers) -> Volley {
    Volley {
        peer,
        callers,
        operation: Operation::Call,
        means: Means::Interrupts,
        targets: 7,
        cpus: 20,
        function_ps: 0,
        calls: 3,
        costs: Preset::named("40-core").unwrap().costs(),
        seed: 5,
        names_lines: false,
    }
}

#[test]
fn every_target_of_every_call_is_counted_once() {
    for peer in Peer::ALL {
        for (callers, calls) in [(Callers::One, 3), (Callers::All, 60)] {
            let result = row(peer, callers).run();
            assert_eq!(result.calls.len(), calls, "{peer}");
            assert_eq!(result.runs, calls as u64 * 7, "{peer}");
            let Activity {
                ipis_sent,
                register_writes,
                ..
            } = result.activity;
            assert!(
                register_writes <= ipis_sent && ipis_sent <= result.runs,
                "{peer}"
            );
            for called in &result.calls {
                let Called {
                    whole_ps,
                    sent_ps,
                    busy_ps,
                    ..
                } = *called;
                assert!(
                    sent_ps <= whole_ps && busy_ps <= whole_ps,
                    "{peer}: {called:?}"
                );
            }
        }
    }
}

/// A lone initiator interrupts each target once; who multicasts needs a write a cluster of 16.
#[test]
fn sending_costs_a_register_write_a_cluster_or_a_target() {
    for (peer, most) in [
        (Peer::Mailbox, 21),
        (Peer::OneLock, 6),
        (Peer::Shootdown, 6),
    ] {
        let activity = row(peer, Callers::One).run().activity;
        assert_eq!(activity.ipis_sent, 21, "{peer}");
        assert!(activity.register_writes <= most, "{peer}: {activity:?}");
        assert_eq!(activity.ipis_taken, 21, "{peer}");
    }
}
