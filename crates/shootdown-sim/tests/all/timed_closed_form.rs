//! The timed machine against a formula: where nothing contends they agree.

use shootdown::Policy;
use shootdown_sim::timed::{ClosedForm, Costs, Parameter, Preset};
use shootdown_sim::workload::shoot;

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];

/// The preset as the formula knows it: each store waits for its line, instructions cost nothing, and spin loops have no granularity, which is a
/// wait for nothing, of random length.
fn costs(preset: &Preset) -> Costs {
    let mut costs = preset.costs();
    for (name, value) in [
        ("buffered_stores", 0.0),
        ("instructions_ns", 0.0),
        ("relax_ns", 1.0),
    ] {
        let parameter = Parameter::named(name).unwrap();
        parameter.set(&mut costs, value).unwrap();
    }
    costs
}

/// The formula knows interrupts that take their time by themselves.
fn has_interrupts(preset: &&Preset) -> bool {
    preset.costs().flags == 0
}

#[track_caller]
fn assert_within_5_percent(what: &str, machine_ps: u64, formula_ps: u64) {
    let ratio = machine_ps as f64 / formula_ps as f64;
    assert!(
        (ratio - 1.0).abs() <= 0.05,
        "{what}: machine {machine_ps} ps, formula {formula_ps} ps"
    );
}

#[test]
fn one_flush_to_one_target_takes_what_the_formula_says() {
    let own = |preset: &&Preset| !preset.costs().hosting.shares();
    for preset in Preset::ALL.iter().filter(own).filter(has_interrupts) {
        let costs = costs(preset);
        for policy in POLICIES {
            let what = format!("{} {}", preset.name, policy.name());
            let formula = ClosedForm::new(&costs, policy, 1);
            let shot = shoot(1, policy, &costs);
            assert_within_5_percent(&what, shot.time_ps, formula.total_ps());
        }
    }
}

#[test]
fn sending_takes_what_the_formula_says_for_any_number_of_targets() {
    for preset in Preset::ALL
        .iter()
        .filter(has_interrupts)
        .filter(|p| p.costs().topology.threads_per_core == 1)
    {
        let costs = costs(preset);
        for targets in [1, 2, 4, 8, 15] {
            let what = format!("{}, {targets} targets", preset.name);
            let formula = ClosedForm::new(&costs, Policy::BEFORE, targets);
            let shot = shoot(targets as usize, Policy::BEFORE, &costs);
            assert_within_5_percent(&what, shot.submit_ps, formula.send_ps);
        }
    }
}
