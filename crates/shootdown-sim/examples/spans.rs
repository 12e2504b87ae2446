//! How `preemptoff`'s longest spans without preemption depend on its load and on chance: the figures of `docs/systems/t3.md`.
//!
//! `cargo run --release -p shootdown-sim --example spans [-- --json FILE]`

mod rows;

use serde_json::{Value, json};
use shootdown_sim::timed::Preset;
use shootdown_sim::workload::{Load, Maxima, Preemptoff, System};

const CPUS: usize = 16;
const INTERVALS: usize = 300;
const POLICIES: [&str; 3] = ["before", "published", "best"];

fn main() {
    let load = Load::default();
    let tail_alpha = Load {
        tail_alpha: 1.0,
        ..load
    };
    let tail_least_us = Load {
        tail_least_us: 100.0,
        ..load
    };
    let workers = Load {
        workers: 4.0,
        ..load
    };
    let most_pages = Load {
        most_pages: 16.0,
        ..load
    };
    let spin_turn_ns = Load {
        spin_turn_ns: 58.3,
        ..load
    };
    println!("p99 in us; in parentheses the part in the engine");
    let cases = [
        ("seed 1", load, 1),
        ("seed 2", load, 2),
        ("seed 3", load, 3),
        ("seed 4", load, 4),
        ("alpha 1 instead of 1.5", tail_alpha, 1),
        ("x_m 100 us instead of 250", tail_least_us, 1),
        ("four threads a CPU instead of two", workers, 1),
        ("up to 16 pages instead of 8", most_pages, 1),
        ("spin loops look every 58.3 ns, not 1000", spin_turn_ns, 1),
    ];
    let rows = cases.map(|(case, load, seed)| row(case, load, seed));
    rows::write(rows.concat());
}

/// Prints a case, and returns its rows, one for each policy.
fn row(case: &str, load: Load, seed: u64) -> Vec<Value> {
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
    rows.to_vec()
}
