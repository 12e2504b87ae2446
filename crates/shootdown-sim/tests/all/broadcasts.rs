//! Flushes by an instruction that all CPUs obey, on the timed machine.

use shootdown_sim::timed::{Activity, Fabric, Preset};
use shootdown_sim::workload::{Callers, Means, Operation, Peer, Volley};

const TARGETS: usize = 7;
const FLUSHES: usize = 3;

fn row(callers: Callers, means: Means) -> Volley {
    Volley {
        peer: Peer::Shootdown,
        callers,
        operation: Operation::Flush,
        means,
        targets: TARGETS,
        cpus: TARGETS + 1,
        function_ps: 0,
        calls: FLUSHES,
        costs: Preset::named("large-server").unwrap().costs(),
        seed: 1,
        names_lines: false,
    }
}

/// The first to warm up interrupts and gives the space its tag, the second finds that all CPUs have it. `runs` says that the page is gone everywhere.
#[test]
fn broadcasts_interrupt_nobody_once_the_space_has_its_tag() {
    for (callers, initiators) in [(Callers::One, 1), (Callers::All, TARGETS + 1)] {
        for fabric in [Fabric::Parallel, Fabric::Serial] {
            let result = row(callers, Means::Broadcasts(fabric)).run();
            let runs = initiators * FLUSHES * TARGETS;
            assert_eq!(result.runs as usize, runs, "{callers:?} {fabric:?}");
            let Activity {
                ipis_sent,
                ipis_taken,
                ..
            } = result.activity;
            assert_eq!((ipis_sent, ipis_taken), (0, 0), "{callers:?} {fabric:?}");
        }
    }
}

#[test]
fn without_the_instruction_each_flush_interrupts_each_target() {
    let result = row(Callers::One, Means::Interrupts).run();
    assert_eq!(result.activity.ipis_sent as usize, FLUSHES * TARGETS);
    assert_eq!(result.warm_up.len(), 1);
}

/// So the cost at which broadcasts are level with interrupts is a difference.
#[test]
fn what_a_lone_broadcast_costs_is_added_to_its_flush() {
    let flushes = |broadcast_ps| -> Vec<u64> {
        let mut row = row(Callers::One, Means::Broadcasts(Fabric::Parallel));
        row.costs.broadcast_ps = broadcast_ps;
        let calls = row.run().calls;
        calls.iter().map(|it| it.whole_ps).collect()
    };
    let added = flushes(0).into_iter().map(|whole_ps| whole_ps + 777_000);
    assert!(added.eq(flushes(777_000)));
}
