//! Machines that move while their guests write, on the timed machine.

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Evacuate, Evacuated, Evacuation};

fn row(evacuation: Evacuation) -> Evacuated {
    let row = Evacuate {
        cpus: 8,
        machines: 5,
        vcpus: 2,
        pages: 512,
        evacuation,
        costs: Preset::named("ten-guests").unwrap().costs(),
        seed: 3,
        rounds: 2,
    };
    row.run()
}

#[test]
fn every_write_is_in_a_log() {
    for evacuation in Evacuation::ALL {
        let counted = row(evacuation).counted;
        assert_eq!(counted.stale, 0, "{evacuation:?}");
        assert!(counted.dirtied > 1000 && counted.cleared > 1000);
        assert!(counted.writes >= counted.dirtied);
    }
}

#[test]
fn a_first_write_tells_nobody_and_a_log_is_one_flush() {
    let (best, xen) = (row(Evacuation::Best).counted, row(Evacuation::Xen).counted);
    // Two rounds of five logs.
    assert!(best.flushes <= 10, "{best:?}");
    assert!(best.ipis <= 7 * best.flushes, "{best:?}");
    assert!(xen.flushes >= xen.dirtied, "{xen:?}");
    assert!(best.tags_dropped * 10 < xen.tags_dropped);
}
