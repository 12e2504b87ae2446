//! The simulated machine says what real cores took: docs/figures/cores-far.json and cores-near.json are what `./lab bench shoot --machine cores` measured.

use shootdown_sim::workload::on_cores::compared;

/// Those that do not agree; docs/measuring/cores-xeon.md says what is known of each.
const FARTHER: [[&str; 3]; 14] = [
    ["far", "call 1", "xen-before"],
    ["far", "call 1", "xen"],
    ["far", "call 1", "freebsd"],
    ["far", "call 1", "bits"],
    ["far", "call 1", "bits numbered"],
    ["far", "all call all", "freebsd"],
    ["far", "all call all", "bits"],
    ["far", "all call all", "bits numbered"],
    ["far", "all call all", "bits guessed"],
    ["far", "flush 1 page", "freebsd"],
    ["far", "flush 1 page", "engine before"],
    ["far", "flush 1 page", "engine published"],
    ["near", "all call all", "engine before"],
    ["near", "all call all", "engine published"],
];

#[test]
fn medians_are_those_of_real_cores() {
    let rows = compared(|_, _| ());
    let farther = rows.iter().filter(|row| !row.agrees());
    assert_eq!(
        farther.map(|row| row.name).collect::<Vec<_>>(),
        FARTHER,
        "an engine that takes another time needs another record: ./lab figures cores-far cores-instructions"
    );
}
