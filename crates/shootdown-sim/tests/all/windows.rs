//! Windows of one CPU, as fixed stories: the published flag is unsound, private roots are not.

use shootdown_sim::FailureKind;
use shootdown_sim::fuzz::{Campaign, Case, campaign, exhaust, run, run_with_story};
use shootdown_sim::kernel::Scenario;

/// As many as a TLB has things to do in a scenario.
const ANSWERS: u16 = 12;
/// Schedules within which the flag's flaw must be found.
const SCHEDULES: u64 = 200;

fn explore(scenario: Scenario, runs: u64) -> Option<(Case, shootdown_sim::fuzz::Report)> {
    let plan = Campaign {
        runs,
        scenario: Some(scenario),
        ..Campaign::default()
    };
    campaign(plan, |_| ()).failure
}

/// VM_LOCAL_CPU says that one CPU alone uses a mapping, and flushes it there alone. The TLB of another CPU with the same page tables caches
/// it all the same, of its own accord, and the program there reads a frame that is somebody else's by then.
#[test]
fn the_published_flag_is_unsound() {
    let (case, _) = explore(Scenario::PublishedFlag, SCHEDULES).expect("the flag's flaw is found");
    // One unusual answer is enough, so the first that is found is the shortest story.
    let found = exhaust(&case, 1, ANSWERS, 20_000).failure;
    let (shortest, _) = found.expect("it takes one step of a TLB");
    let told = run_with_story(&shortest);
    println!("./lab sim replay {shortest}\n{}", told.story.join("\n"));
    let failure = told.failure.expect("told again, it fails again");
    println!("{failure}");
    assert_eq!((failure.kind, failure.cpu), (FailureKind::StaleAccess, 1));
    assert!(failure.message.contains("page 16"), "{failure}");
    let has_cached = |line: &String| line.contains("the TLB of cpu1 has cached page 16");
    assert!(told.story.iter().any(has_cached), "by speculation alone");
    // Without a TLB that acts by itself, nothing is wrong.
    let obedient = Case {
        schedule: Some(Default::default()),
        ..shortest
    };
    assert_eq!(run(&obedient).failure, None);
}

#[test]
fn private_roots_are_sound_where_the_flag_is_not() {
    let failure = explore(Scenario::PrivateRoots, 10 * SCHEDULES);
    assert_eq!(
        failure.map(|(case, report)| (case.to_string(), report.failure)),
        None
    );
}

/// Every schedule with one unusual answer, on machines with tags and without.
#[test]
fn no_single_deviation_breaks_a_window() {
    for (scenario, _) in Scenario::NAMES {
        if !scenario.is_sound() {
            continue;
        }
        for seed in [1, 6] {
            let report = exhaust(&Case::of(scenario, seed), 1, ANSWERS, 20_000);
            println!("{scenario}, seed {seed}: {} schedules", report.schedules);
            assert_eq!(report.failure, None, "{scenario}, seed {seed}");
            assert!(
                report.complete,
                "{scenario}, seed {seed}: {}",
                report.schedules
            );
            assert!(report.schedules > 1000, "{scenario}: {}", report.schedules);
        }
    }
}
