//! The simulated machine says what real cores took: docs/figures/cores.json is what `./lab bench shoot --machine cores` measured.

use serde_json::Value;
use shootdown_sim::timed::Preset;
use shootdown_sim::workload::on_cores::{CONTENDERS, OPERATIONS, PLACEMENTS, cycles};

const RECORD: &str = include_str!("../../../docs/figures/cores.json");
/// How far a median may be off.
const TOLERANCE: f64 = 0.1;
/// Those that are farther off than that, and than what was measured varies; docs/measuring/cores.md says what is known of each.
const FARTHER: [(&str, &str, &str); 19] = [
    ("far", "call 1", "freebsd"),
    ("far", "call 1", "bits"),
    ("far", "call 1", "bits guessed"),
    ("far", "all call all", "freebsd"),
    ("far", "all call all", "bits"),
    ("far", "all call all", "bits numbered"),
    ("far", "all call all", "bits guessed"),
    ("far", "all call all", "best"),
    ("near", "call 1", "xen-before"),
    ("near", "call 1", "linux"),
    ("near", "call 1", "bits"),
    ("near", "call 1", "bits guessed"),
    ("near", "all call all", "bits"),
    ("near", "all call all", "bits guessed"),
    ("near", "flush 1 page", "bits"),
    ("near", "flush 1 page", "bits guessed"),
    ("near", "flush 1 page", "engine before"),
    ("near", "flush 1 page", "engine published"),
    ("near", "flush 1 page", "best"),
];

#[test]
fn medians_are_those_of_real_cores() {
    let record: Value = serde_json::from_str(RECORD).expect("a record");
    let rows = record["rows"].as_array().expect("rows");
    let mut farther = Vec::new();
    for placement in PLACEMENTS {
        let costs = Preset::named(placement.1).expect("a preset").costs();
        for operation in OPERATIONS {
            for contender in CONTENDERS {
                let name = (placement.0, operation.0, contender.0);
                let is_row = |row: &&Value| {
                    let is = |key: &str, word| row[key] == word;
                    is("placement", name.0) && is("operation", name.1) && is("peer", name.2)
                };
                let row = rows.iter().find(is_row).expect("each was measured");
                let of = |key: &str| row[key].as_f64().expect("a number");
                let least = of("low_cycles").min(of("median_cycles") * (1.0 - TOLERANCE));
                let most = of("high_cycles").max(of("median_cycles") * (1.0 + TOLERANCE));
                if !(least..=most).contains(&cycles(&costs, contender, operation)) {
                    farther.push(name);
                }
            }
        }
    }
    assert_eq!(farther, FARTHER);
}
