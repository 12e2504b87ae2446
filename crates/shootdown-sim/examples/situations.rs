//! Situations that mechanisms of the engine were made for, and those that they must not spoil: what `lab footprint --mechanisms` compares.
//!
//! `cargo run --release -p shootdown-sim --example situations`: a name and virtual nanoseconds a line

use shootdown::Policy;
use shootdown_sim::timed::{Costs, Fabric, Parameter, Preset};
use shootdown_sim::workload::on_cores::compared;
use shootdown_sim::workload::{
    Callers, Masks, Means, Operation, Overcommit, Peer, Pingpong, Selected, Telling, Volley,
    Whereabouts, on_large_stack, spared,
};

use Callers::{All, One};
use Operation::{Call, Flush};

/// CPUs of the two-socket machine.
const CPUS: usize = 36;
const CALLS: usize = 24;

/// Calls and flushes: preset, CPUs, who calls, what for, and targets.
const VOLLEYS: [(&str, usize, Callers, Operation, usize); 18] = [
    ("haswell-ep", CPUS, One, Call, 1),
    ("haswell-ep", CPUS, One, Call, 8),
    ("haswell-ep", CPUS, One, Call, 35),
    ("haswell-ep", CPUS, One, Flush, 1),
    ("haswell-ep", CPUS, One, Flush, 8),
    ("haswell-ep", CPUS, One, Flush, 35),
    ("haswell-ep", CPUS, All, Call, 1),
    ("haswell-ep", CPUS, All, Call, 35),
    ("haswell-ep", CPUS, All, Flush, 1),
    ("haswell-ep", CPUS, All, Flush, 35),
    ("large-server", 64, One, Call, 63),
    ("large-server", 64, All, Call, 8),
    ("large-server", 64, All, Call, 63),
    ("large-server", 64, All, Flush, 63),
    ("large-server", 192, All, Flush, 191),
    ("large-server", 256, All, Call, 255),
    ("large-server", 256, All, Flush, 255),
    ("large-server", 512, One, Call, 511),
];

fn main() {
    on_large_stack(|| {
        for row in compared(|_, _| ()) {
            let [placement, operation, peer] = row.name;
            if peer == Peer::Shootdown.name() {
                tell(&format!("xeon-{placement}: {operation}"), row.simulated);
            }
        }
        for volley in VOLLEYS {
            let (preset, cpus, ..) = volley;
            let name = match volley {
                (_, _, One, Call, targets) => format!("one calls {targets}"),
                (_, _, All, Call, targets) => format!("all call {targets}"),
                (_, _, One, Flush, targets) => format!("one flushes {targets}"),
                (_, _, All, Flush, targets) => format!("all flush {targets}"),
            };
            let name = format!("{preset}, {cpus} CPUs: {name}");
            tell(&name, volley_ns(volley, 0, Means::Interrupts));
        }
        let all = ("haswell-ep", CPUS, All, Call, 8);
        tell(
            "haswell-ep, 36 CPUs: all call 8, function of 5 us",
            volley_ns(all, 5_000_000, Means::Interrupts),
        );
        let flush = ("large-server", 64, All, Flush, 15);
        tell(
            "large-server, 64 CPUs: all flush 15, by instruction",
            volley_ns(flush, 0, Means::Broadcasts(Fabric::Parallel)),
        );
        for masks in [Masks::Random, Masks::Identical] {
            tell(
                &format!("haswell-ep, 128 CPUs: 4 call 64 {}, 500 us", masks.name()),
                selected_ns(masks, 4, 64, 500_000_000),
            );
        }
        tell(
            "haswell-ep, 128 CPUs: 16 call 64 random, 500 us",
            selected_ns(Masks::Random, 16, 64, 500_000_000),
        );
        tell(
            "haswell-ep, 128 CPUs: 16 call 16 random",
            selected_ns(Masks::Random, 16, 16, 0),
        );
        for whereabouts in Whereabouts::ALL {
            let costs = costs("haswell-ep");
            tell(
                &format!("haswell-ep: 8 targets {}", whereabouts.name()),
                spared(whereabouts, 8, &costs).time_ps as f64 / 1000.0,
            );
        }
        for (spaces, pages) in [(1, 64), (2, 0), (2, 512), (12, 64)] {
            let costs = costs("skylake-laptop");
            let name = match spaces {
                1 => format!("skylake-laptop: a space and idle in turn, {pages} pages"),
                _ => format!("skylake-laptop: {spaces} spaces in turn, {pages} pages"),
            };
            tell(
                &name,
                Pingpong::new(spaces, pages, Policy::BEST, &costs)
                    .run()
                    .mean_ns(),
            );
        }
        let overcommitted = Overcommit {
            cpus: 16,
            callers: 1,
            telling: Telling::Best,
            costs: costs("kvm-2-to-1"),
            seed: 1,
            span_ps: 100_000_000_000,
        };
        tell(
            "kvm-2-to-1, 16 CPUs: one flushes",
            overcommitted.run().quantile_ns(500),
        );
    });
}

fn tell(name: &str, ns: f64) {
    println!("{name} {ns:.0}");
}

fn costs(preset: &str) -> Costs {
    Preset::named(preset).expect("a preset").costs()
}

/// The median call of one CPU; the whole time where all call.
fn volley_ns(
    (preset, cpus, callers, operation, targets): (&str, usize, Callers, Operation, usize),
    function_ps: u64,
    means: Means,
) -> f64 {
    let mut costs = costs(preset);
    if let Means::Broadcasts(_) = means {
        let parameter = Parameter::named("broadcast_ns").expect("a parameter");
        parameter.set(&mut costs, 1000.0).expect("a time");
    }
    let result = Volley {
        peer: Peer::Shootdown,
        callers,
        operation,
        means,
        targets,
        cpus,
        function_ps,
        calls: CALLS,
        costs,
        seed: 1,
        names_lines: false,
    }
    .run();
    match callers {
        One => result.quantile_ns(500, |called| called.whole_ps),
        All => result.whole_ps as f64 / 1000.0,
    }
}

/// The whole time of so many callers of so many targets each.
fn selected_ns(masks: Masks, initiators: usize, size: usize, function_ps: u64) -> f64 {
    let row = Selected {
        peer: Peer::Shootdown,
        initiators,
        size,
        masks,
        cpus: 128,
        function_ps,
        calls: CALLS,
        costs: costs("haswell-ep"),
        seed: 1,
    };
    row.run().whole_ps as f64 / 1000.0
}
