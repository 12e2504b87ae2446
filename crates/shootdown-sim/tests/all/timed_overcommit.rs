//! Virtual CPUs that share processors, on the timed machine.

use shootdown_sim::timed::{HostCounts, Preset};
use shootdown_sim::workload::{Overcommit, Overcommitted, Telling};

fn row(telling: Telling, callers: usize) -> Overcommitted {
    let row = Overcommit {
        cpus: 8,
        callers,
        telling,
        costs: Preset::named("kvm-2-to-1").unwrap().costs(),
        seed: 3,
        span_ps: 60_000_000_000,
    };
    row.run()
}

#[test]
fn who_does_not_run_is_taken_and_nobody_uses_anything_old() {
    for callers in [1, 8] {
        for telling in [Telling::Kvm, Telling::Best] {
            let row = row(telling, callers);
            let taken = row.per_call(row.host.taken);
            assert!((3.0..=4.5).contains(&taken), "{taken}");
            let HostCounts {
                flushes, entries, ..
            } = row.host;
            assert!(
                flushes > 0 && flushes <= entries,
                "{callers} {:?} {}",
                row.host,
                row.calls
            );
            assert_eq!(row.stale, 0, "{telling:?}");
        }
    }
}

#[test]
fn with_interrupts_alone_nobody_is_taken_and_calls_wait_for_turns() {
    let row = row(Telling::Interrupts, 1);
    assert_eq!((row.host.taken, row.host.flushes, row.stale), (0, 0, 0));
    assert_eq!(row.per_call(row.stats.ipis_sent).round(), 7.0);
    assert!(row.late().0 > 0.9, "{:?}", row.late());
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    let times = || -> Vec<u64> {
        let samples = row(Telling::Best, 8).samples;
        samples.iter().map(|it| it.whole_ps).collect()
    };
    assert_eq!(times(), times());
}
