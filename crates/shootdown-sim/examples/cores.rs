//! The simulated machine beside a record of real cores: the figure `cores-simulated`.
//!
//! `cargo run --release -p shootdown-sim --example cores -- [--json FILE] [NAME=VALUE..]`, where a figure of both presets may be another one

use serde_json::{Value, json};
use shootdown_sim::timed::{Parameter, Preset};
use shootdown_sim::workload::on_cores::{CONTENDERS, OPERATIONS, PLACEMENTS, cycles};

/// What was measured.
const RECORD: &str = include_str!("../../../docs/figures/cores.json");

fn main() {
    let mut file = None;
    let mut changes = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((name, value)) => {
                changes.push((name.to_owned(), value.parse().expect("a number")))
            }
            None if word == "--json" => file = words.next(),
            None => panic!("{word}? Use --json FILE or NAME=VALUE"),
        }
    }
    let record: Value = serde_json::from_str(RECORD).expect("a record");
    let rows = record["rows"].as_array().expect("rows");
    let mut all = Vec::new();
    for placement in PLACEMENTS {
        let mut costs = Preset::named(placement.1).expect("a preset").costs();
        for (name, value) in &changes {
            let set = Parameter::named(name).and_then(|it| it.set(&mut costs, *value));
            set.unwrap_or_else(|error| panic!("{error}"));
        }
        for operation in OPERATIONS {
            for contender in CONTENDERS {
                let is_row = |row: &&Value| {
                    row["placement"] == placement.0
                        && row["operation"] == operation.0
                        && row["peer"] == contender.0
                };
                let measured = rows.iter().find(is_row).expect("each was measured");
                let measured = measured["median_cycles"].as_f64().expect("a number");
                let simulated = cycles(&costs, contender, operation).round();
                let ratio = simulated / measured;
                println!(
                    "{:<5}{:<14}{:<18}{measured:6.0}{simulated:7.0}{ratio:7.3}",
                    placement.0, operation.0, contender.0
                );
                all.push(json!({
                    "placement": placement.0, "operation": operation.0, "peer": contender.0,
                    "measured_cycles": measured, "simulated_cycles": simulated, "ratio": ratio,
                }));
            }
        }
    }
    if let Some(file) = file {
        let result = json!({ "rows": all }).to_string();
        std::fs::write(&file, result).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
