//! The torture with many more CPUs than this host has cores, in several words and leaves. A program of its own: the other torture's
//! CPUs are to be idle at times.

mod support;

use shootdown_hosted::Config;
use shootdown_torture::{Operation, Summary, Torture};
use support::run;

/// Of each task.
const STEPS: usize = 100;

/// What a run with many CPUs must show: no violation, broadcasts, and frames enough for changes.
fn check_many(summary: &Summary) {
    assert_eq!(summary.violations(), 0, "{summary}");
    assert!(summary.stats().broadcasts_published > 0, "{summary}");
    let changes = [Operation::Change, Operation::ChangeTable];
    let [pages, tables] = changes.map(|operation| summary.done(operation));
    assert!(pages > tables, "{summary}");
}

/// Their acknowledgements lie in three leaves.
#[test]
fn twenty_cpus_keep_every_promise() {
    static TORTURE: Torture<20> = Torture::new();
    let summary = run(Config::new(20), STEPS, &TORTURE);
    check_many(&summary);
}

/// CPUs 0 to 11 and 60 to 67: two words of each set, two rings, and leaves that are nearly empty.
#[test]
fn cpus_whose_numbers_lie_apart_keep_every_promise() {
    static TORTURE: Torture<128> = Torture::new();
    let config = Config {
        unused: 12..60,
        ..Config::new(20)
    };
    let summary = run(config, STEPS, &TORTURE);
    check_many(&summary);
}
