//! The simulated machine says what real cores took: docs/figures/cores.json is what `./lab bench shoot --machine cores` measured.

use shootdown_sim::workload::on_cores::{Compared, compared};

/// How far a median may be off.
const TOLERANCE: f64 = 0.1;
/// Those that are farther off than that, and than what was measured varies; docs/measuring/cores.md says what is known of each.
const FARTHER: [[&str; 3]; 10] = [
    ["far", "call 1", "freebsd"],
    ["far", "call 1", "bits guessed"],
    ["far", "all call all", "freebsd"],
    ["far", "all call all", "bits"],
    ["far", "all call all", "bits numbered"],
    ["far", "all call all", "bits guessed"],
    ["far", "all call all", "best"],
    ["near", "call 1", "linux"],
    ["near", "all call all", "engine before"],
    ["near", "all call all", "engine published"],
];

#[test]
fn medians_are_those_of_real_cores() {
    let is_near = |row: &Compared| {
        let [low, high] = row.between;
        let least = low.min(row.measured * (1.0 - TOLERANCE));
        let most = high.max(row.measured * (1.0 + TOLERANCE));
        (least..=most).contains(&row.simulated)
    };
    let rows = compared(|_, _| ());
    let farther = rows.iter().filter(|row| !is_near(row));
    assert_eq!(
        farther.map(|row| row.name).collect::<Vec<_>>(),
        FARTHER,
        "an engine that takes another time needs another record: ./lab figures cores cores-instructions"
    );
}
