//! The simulated machine beside the record of real cores: the figure `cores-simulated`.
//!
//! `cargo run --release -p shootdown-sim --example cores -- [--json FILE] [PRESET:NAME=VALUE..]`, where a figure of the presets whose names begin so may be another one.
//! `--search` tries others for the four that are fitted to two cores, and prints which bring most rows to agree; it takes some minutes.

use serde_json::json;
use shootdown_sim::timed::{Costs, Parameter};
use shootdown_sim::workload::on_cores::{Compared, compared};

fn main() {
    let mut file = None;
    let mut changes = Vec::new();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((name, value)) => {
                let (preset, name) = name.split_once(':').unwrap_or(("", name));
                changes.push((preset, name, value.parse().expect("a number")));
            }
            None if word == "--json" => file = words.next(),
            None if word == "--search" => return search(),
            None => panic!("{word}? Use --search, --json FILE or [PRESET:]NAME=VALUE"),
        }
    }
    let mut rows = Vec::new();
    for row in compared(|preset, costs| set(&changes, preset, costs)) {
        let Compared {
            name,
            measured,
            simulated,
            ..
        } = row;
        let [placement, operation, peer] = name;
        let simulated = simulated.round();
        let ratio = simulated / measured;
        println!("{placement:<5}{operation:<14}{peer:<18}{measured:6.0}{simulated:7.0}{ratio:7.3}");
        rows.push(json!({
            "placement": placement, "operation": operation, "peer": peer,
            "measured_cycles": measured, "simulated_cycles": simulated, "ratio": ratio,
        }));
    }
    if let Some(file) = file {
        let result = json!({ "rows": rows }).to_string();
        std::fs::write(file, result).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

/// Of a preset: the value of each figure that is named for presets whose names begin so.
fn set(changes: &[(&str, &str, f64)], preset: &str, costs: &mut Costs) {
    for (_, name, value) in changes.iter().filter(|it| preset.starts_with(it.0)) {
        let parameter = Parameter::named(name).unwrap_or_else(|error| panic!("{error}"));
        let set = parameter.set(costs, *value);
        set.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Figures that are fitted, of the presets whose names begin so, and what else they might be.
const FITTED: [(&str, &str, [f64; 5]); 4] = [
    (
        "xeon-far",
        "instruction_ns",
        [0.12, 0.14, 0.168, 0.19, 0.21],
    ),
    (
        "xeon-far",
        "transfer_socket_ns",
        [42.0, 44.0, 46.0, 48.0, 50.0],
    ),
    ("xeon-far", "entry_ns", [8.0, 12.0, 16.0, 24.0, 32.0]),
    (
        "xeon-far",
        "flush_page_ns",
        [180.0, 210.0, 240.0, 270.0, 300.0],
    ),
];

fn search() {
    let choices = 5_usize.pow(4);
    let mut found: Vec<(usize, [f64; 4])> = (0..choices)
        .map(|choice| {
            let values: [f64; 4] =
                std::array::from_fn(|at| FITTED[at].2[choice / 5_usize.pow(at as u32) % 5]);
            let changes: [_; 4] =
                std::array::from_fn(|at| (FITTED[at].0, FITTED[at].1, values[at]));
            let rows = compared(|preset, costs| set(&changes, preset, costs));
            (rows.iter().filter(|row| row.agrees()).count(), values)
        })
        .collect();
    found.sort_by_key(|(agree, _)| std::cmp::Reverse(*agree));
    println!("rows that agree; {}", FITTED.map(|it| it.1).join(", "));
    for (agree, values) in found.iter().take(5) {
        println!("{agree:3} {values:?}");
    }
    println!("{choices} choices");
}
