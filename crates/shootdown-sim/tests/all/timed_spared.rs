//! Flushes whose targets need no interrupt, on the timed machine.

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Whereabouts, spared};

#[test]
fn only_targets_in_user_mode_are_interrupted() {
    let costs = Preset::named("40-core").unwrap().costs();
    for whereabouts in Whereabouts::ALL {
        let spared = spared(whereabouts, 5, &costs);
        let due = if whereabouts == Whereabouts::User {
            5
        } else {
            0
        };
        assert_eq!(spared.activity.ipis_sent, due, "{whereabouts:?}");
        assert_eq!(spared.activity.ipis_taken, due, "{whereabouts:?}");
        assert!(spared.time_ps >= costs.flush_page_ps, "{spared:?}");
    }
}

#[test]
fn a_cpu_in_the_kernel_pays_for_what_it_missed_and_little_otherwise() {
    let costs = Preset::named("40-core").unwrap().costs();
    let spared = spared(Whereabouts::Kernel, 1, &costs);
    assert!(spared.way_ps < costs.flush_space_ps, "{spared:?}");
    assert!(spared.catch_up_ps >= costs.flush_space_ps, "{spared:?}");
}
