//! How fast the timed machine is on this host: events a second, and one shootdown to 4095 targets.
//!
//! `cargo run --release -p shootdown-sim --example speed`

use std::time::Instant;

use shootdown::Policy;
use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Madvise, on_large_stack, shoot};

fn main() {
    let haswell = Preset::named("haswell-ep").expect("a preset").costs();
    for threads in [2, 4] {
        let row = Madvise {
            threads,
            pages: 1,
            policy: Policy::BEST,
            costs: haswell.clone(),
            seed: 1,
            iterations: 100_000,
        };
        let started = Instant::now();
        let measured = row.run();
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "madvise, {threads} threads: {:.1} million events a second",
            measured.events as f64 / seconds / 1e6
        );
    }
    let large = Preset::named("large-server").expect("a preset").costs();
    for targets in [1, 16, 64, 256, 1024, 4095] {
        let shot = on_large_stack(|| shoot(targets, Policy::BEST, &large));
        println!(
            "one shootdown to {targets} targets: {:.1} us virtual, {} lines, {} events in {:.1} ms of this host",
            shot.time_ps as f64 / 1e6,
            shot.lines,
            shot.events,
            shot.wall.as_secs_f64() * 1e3,
        );
    }
}
