//! The engine on this host's own processors, under the whole mix: counted steps, not time.

mod support;

use shootdown_hosted::Config;
use shootdown_torture::{Operation, Torture};
use support::run;

const STEPS: usize = if cfg!(tsan) { 10_000 } else { 20_000 };

#[test]
fn the_engine_keeps_its_promises_on_this_silicon() {
    static TORTURE: Torture<4> = Torture::new();
    let summary = run(Config::new(4), STEPS, &TORTURE);
    assert_eq!(summary.violations(), 0, "{summary}");
    for operation in Operation::ALL {
        assert!(summary.done(*operation) > 0, "{operation:?} was not done");
    }
    let stats = summary.stats();
    for (what, count) in [
        ("ipis_received", stats.ipis_received),
        ("remote_flushes", stats.remote_flushes),
        ("early_acks", stats.early_acks),
        ("tags_dropped", stats.tags_dropped),
        ("lazy_skipped", stats.lazy_skipped),
        ("lazy_detached", stats.lazy_detached),
        ("slots_exhausted", stats.slots_exhausted),
        ("regions_taken", stats.regions_taken),
    ] {
        assert!(
            count > 0,
            "this run has shown nothing about {what}\n{summary}"
        );
    }
}
