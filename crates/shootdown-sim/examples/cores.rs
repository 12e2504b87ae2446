//! The simulated machine beside the record of real cores: the figure `cores-simulated`.
//!
//! `cargo run --release -p shootdown-sim --example cores -- [--json FILE] [PRESET:NAME=VALUE..]`, where a figure of the presets whose names begin so may be another one

use serde_json::json;
use shootdown_sim::timed::{Costs, Parameter};
use shootdown_sim::workload::on_cores::{Compared, compared};

fn main() {
    let mut file = None;
    let mut changes = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some((name, value)) => {
                let (preset, name) = name.split_once(':').unwrap_or(("", name));
                let parameter = Parameter::named(name).unwrap_or_else(|error| panic!("{error}"));
                let value: f64 = value.parse().expect("a number");
                changes.push((preset.to_owned(), parameter, value));
            }
            None if word == "--json" => file = words.next(),
            None => panic!("{word}? Use --json FILE or [PRESET:]NAME=VALUE"),
        }
    }
    let change = |name: &str, costs: &mut Costs| {
        for (_, parameter, value) in changes.iter().filter(|it| name.starts_with(&it.0)) {
            let set = parameter.set(costs, *value);
            set.unwrap_or_else(|error| panic!("{error}"));
        }
    };
    let mut rows = Vec::new();
    for row in compared(change) {
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
        std::fs::write(&file, result).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}
