//! What the engine does in fixed schedules, against what is written down in `conduct.txt`: a change that no other test notices, a flush too
//! many, an interrupt more or less, a counter that is not kept, shows here. So does one that is meant, and its reviewer reads by how much.

use std::fmt::Write as _;
use std::path::Path;

use shootdown_sim::fuzz::{Campaign, campaign};
use shootdown_sim::kernel::Scenario;

/// How many schedules of each kind: as many as a debug build plays in some seconds.
const DRAWN: u64 = 2500;
const WITH_GUESTS: u64 = 500;
const WITH_MANY_CPUS: [(usize, u64); 2] = [(20, 30), (64, 10)];
const OF_A_SCENARIO: u64 = 100;
/// Set, the test writes the file.
const UPDATE: &str = "SHOOTDOWN_UPDATE_CONDUCT";

fn conduct() -> String {
    let mut text = String::new();
    let mut play = |name: &str, plan: Campaign| {
        let report = campaign(plan, |_| ());
        let failure = report.failure.map(|(case, report)| (case, report.failure));
        assert_eq!(failure, None);
        write!(text, "{name}\n{}", report.progress.totals.conduct)
            .expect("a string takes everything");
    };
    let drawn = |runs, cpus| Campaign {
        runs,
        cpus,
        guests: Some(false),
        tracked: Some(false),
        ..Campaign::default()
    };
    play("2 to 6 CPUs", drawn(DRAWN, None));
    for (cpus, runs) in WITH_MANY_CPUS {
        play(&format!("{cpus} CPUs"), drawn(runs, Some(cpus)));
    }
    let sound = Scenario::NAMES
        .into_iter()
        .filter(|(scenario, _)| scenario.is_sound());
    for (scenario, name) in sound {
        let plan = Campaign {
            runs: OF_A_SCENARIO,
            scenario: Some(scenario),
            ..Campaign::default()
        };
        play(name, plan);
    }
    let guests = Campaign {
        guests: Some(true),
        ..drawn(WITH_GUESTS, None)
    };
    play("guests", guests);
    let tracked = Campaign {
        tracked: Some(true),
        ..drawn(WITH_GUESTS, None)
    };
    play("tracked spaces", tracked);
    text
}

#[test]
fn the_engine_does_what_it_did() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conduct.txt");
    let now = conduct();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &now).expect("the source folder can be written");
    }
    let before = std::fs::read_to_string(&path).expect("conduct.txt is part of the source");
    let changed: Vec<_> = before
        .lines()
        .zip(now.lines())
        .filter(|(before, now)| before != now)
        .map(|(before, now)| format!("{} -> {}", before.trim(), now.trim()))
        .collect();
    assert!(
        before == now,
        "the engine does something else than before:\n{}\nIf that is meant, run this test with {UPDATE}=1 and commit conduct.txt",
        changed.join("\n")
    );
}
