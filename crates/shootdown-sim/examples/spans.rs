//! How `preemptoff`'s longest spans without preemption depend on its load and on chance: the figures of `docs/systems/t3.md`.
//!
//! `cargo run --release -p shootdown-sim --example spans [-- --json FILE]`

mod rows;

use serde_json::{Value, json};
use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Load, LoadFigure, Maxima, Preemptoff, System};

const CPUS: usize = 16;
const INTERVALS: usize = 300;
const POLICIES: [&str; 3] = ["before", "published", "best"];

fn main() {
    println!("p99 in us; in parentheses the part in the engine");
    let seeds = [("seed 1", 1), ("seed 2", 2), ("seed 3", 3), ("seed 4", 4)];
    let loads = [
        ("alpha 1 instead of 1.5", "tail_alpha", 1.0),
        ("x_m 100 us instead of 250", "tail_least_us", 100.0),
        ("four threads a CPU instead of two", "workers", 4.0),
        ("up to 16 pages instead of 8", "most_pages", 16.0),
        (
            "spin loops look every 58.3 ns, not 1000",
            "spin_turn_ns",
            58.3,
        ),
    ];
    let mut rows = Vec::new();
    for (case, seed) in seeds {
        rows.extend(row(case, Load::default(), seed));
    }
    for (case, figure, value) in loads {
        rows.extend(row(case, with(figure, value), 1));
    }
    rows::write(rows);
}

/// The load with one figure changed.
fn with(name: &str, value: f64) -> Load {
    let mut load = Load::default();
    let figure = LoadFigure::named(name).expect("a figure of the load");
    figure.set(&mut load, value).expect("a value that it takes");
    load
}

/// Prints a case, and returns its rows, one for each policy.
fn row(case: &str, load: Load, seed: u64) -> [Value; POLICIES.len()] {
    print!("{case:<46}");
    let rows = POLICIES.map(|policy| {
        let measured = Preemptoff {
            cpus: CPUS,
            system: System::named(policy).expect("a policy of the workload"),
            load,
            costs: Preset::named("16-core").expect("a preset").costs(),
            seed,
            intervals: INTERVALS,
        }
        .run();
        let off_ns = measured.quantile_ns(990, |maxima| maxima.all_ps);
        let ipi_ns = measured.quantile_ns(990, Maxima::ipi_ps);
        print!(" {policy} {:.1} ({:.1})", off_ns / 1e3, ipi_ns / 1e3);
        json!({"case": case, "policy": policy, "off_p99_ns": off_ns, "ipi_p99_ns": ipi_ns})
    });
    println!();
    rows
}
