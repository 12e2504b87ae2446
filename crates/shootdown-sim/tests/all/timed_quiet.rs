//! Quiet CPUs on the timed machine: counts.

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{LeftAlone, Quiet, Quieted};

const CPUS: usize = 8;

fn row(left_alone: LeftAlone, calls_per_s: u64) -> Quieted {
    let row = Quiet {
        cpus: CPUS,
        left_alone,
        calls_per_s,
        costs: Preset::named("40-core").unwrap().costs(),
        span_ps: 300_000_000_000,
    };
    row.run()
}

#[test]
fn a_quiet_cpu_is_interrupted_by_flushes_of_its_own_space_alone() {
    let rows = LeftAlone::ALL.map(|it| row(it, 0));
    for row in &rows {
        let (others, _) = row.activities.split_at(CPUS - 2);
        assert!(others.iter().all(|it| it.ipis_taken > 60));
    }
    let [not, quiet, own] = rows;
    assert!(not.user_ipis > 150, "{}", not.user_ipis);
    assert_eq!(quiet.user_ipis, 0);
    assert!(
        quiet.activities[CPUS - 2..]
            .iter()
            .all(|it| it.ipis_taken == 0)
    );
    // For each stack that CPU 0 unmaps one on each of two, and often another for what was posted.
    assert!((20..80).contains(&own.user_ipis), "{}", own.user_ipis);
}

#[test]
fn in_its_system_calls_a_quiet_cpu_makes_good_what_it_has_missed() {
    let [not, quiet, own] = LeftAlone::ALL.map(|it| row(it, 1000));
    for row in [&not, &quiet, &own] {
        assert!(row.calls > 500, "{}", row.calls);
        assert_eq!(row.stale, 0);
    }
    assert_eq!(not.drops, 0);
    assert!(quiet.drops > 50 && quiet.stats.quiet_skipped > 50);
    assert!(quiet.user_ipis < 5, "{}", quiet.user_ipis);
}
