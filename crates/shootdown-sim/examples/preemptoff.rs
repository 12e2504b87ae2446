//! Table T3 on the simulated machine, and what it hangs on: the figures of `docs/measuring.md`.
//!
//! `cargo run --release -p shootdown-sim --example preemptoff [INTERVALS [SEED [NAME=VALUE ...]]]`

use std::time::Instant;

use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{
    Findings, LOAD_FIGURES, Load, LoadFigure, PUBLISHED_PREEMPTOFF, Preemptoff, System,
};

fn main() {
    let mut words = std::env::args().skip(1);
    let intervals = words.next().map_or(300, |word| number(&word) as usize);
    let seed = words.next().map_or(1, |word| number(&word) as u64);
    let mut load = Load::default();
    for word in words {
        let (name, value) = word.split_once('=').expect("NAME=VALUE");
        let figure = LoadFigure::named(name).unwrap_or_else(|error| panic!("{error}"));
        figure
            .set(&mut load, number(value))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    for figure in LOAD_FIGURES {
        println!(
            "{:<22} {:>10}  {}  ({})",
            figure.name,
            figure.get(&load),
            figure.about,
            figure.origin
        );
    }
    println!("p99 of the maxima of {intervals} intervals on 16 CPUs, us; then medians of CPUs");
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}",
        "system",
        "all",
        "paper",
        "ipi",
        "initiator",
        "calldata",
        "lock",
        "handler",
        "p50 min",
        "p50 max",
        "wake p99",
        "wake max"
    );
    for name in ["before", "published", "best"] {
        row(name, load, intervals, seed);
    }
}

fn number(word: &str) -> f64 {
    word.parse()
        .unwrap_or_else(|_| panic!("`{word}` is no number"))
}

fn row(name: &str, load: Load, intervals: usize, seed: u64) {
    let started = Instant::now();
    let findings: Findings = Preemptoff {
        cpus: 16,
        system: System::named(name).expect("a system"),
        load,
        costs: Preset::named("16-core").expect("a preset").costs(),
        seed,
        intervals,
    }
    .run();
    let us = |ns: f64| format!("{:.1}", ns / 1000.0);
    let published = PUBLISHED_PREEMPTOFF.iter().find(|row| row.0 == name);
    let medians = findings.medians_ns(|maxima| maxima.all_ps);
    println!(
        "{name:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>9}",
        us(findings.quantile_ns(990, |maxima| maxima.all_ps)),
        published.map_or("-".into(), |row| us(row.1)),
        us(findings.quantile_ns(990, |maxima| maxima.ipi_ps())),
        us(findings.quantile_ns(990, |maxima| maxima.initiator_ps)),
        us(findings.quantile_ns(990, |maxima| maxima.call_data_ps)),
        us(findings.quantile_ns(990, |maxima| maxima.lock_ps)),
        us(findings.quantile_ns(990, |maxima| maxima.handler_ps)),
        us(medians.iter().copied().fold(f64::MAX, f64::min)),
        us(medians.iter().copied().fold(0.0, f64::max)),
        us(findings.wake_quantile_ns(990)),
        us(findings.wake_quantile_ns(1000)),
    );
    println!(
        "           {:?}\n           {} events in {:.1} s",
        findings.counts,
        findings.events,
        started.elapsed().as_secs_f64()
    );
}
