//! The virtual kernel under exploration: the engine keeps its promises, runs repeat, and failures shrink.

use shootdown_sim::explore::Schedule;
use shootdown_sim::fuzz::{Campaign, Case, campaign, exhaust, run, run_with_story, shrink};
use shootdown_sim::{Failure, FailureKind};

#[test]
fn the_engine_keeps_its_promises() {
    let sizes = [
        (None, 600),
        (Some(1), 300),
        (Some(8), 200),
        (Some(20), 20),
        (Some(Case::MOST_CPUS), 8),
    ];
    for (cpus, runs) in sizes {
        let plan = Campaign {
            runs,
            seed: 10_000,
            cpus,
            ..Campaign::default()
        };
        let report = campaign(plan, |_| ());
        let failure = report
            .failure
            .map(|(case, report)| (case.to_string(), report.failure));
        assert_eq!(failure, None);
        assert_eq!(report.progress.runs, runs);
    }
}

#[test]
fn guests_run_on_what_they_were_promised() {
    for (cpus, runs) in [(None, 500), (Some(1), 100), (Some(9), 50)] {
        let plan = Campaign {
            runs,
            seed: 20_000,
            cpus,
            guests: Some(true),
            ..Campaign::default()
        };
        let report = campaign(plan, |_| ());
        let failure = report
            .failure
            .map(|(case, report)| (case.to_string(), report.failure));
        assert_eq!(failure, None);
    }
}

#[test]
fn fixed_seeds_come_upon_all_that_there_is_to_find() {
    let plan = Campaign {
        // The rarest comes once in 700.
        runs: 4500,
        ..Campaign::default()
    };
    let sightings = campaign(plan, |_| ()).progress.totals.sightings;
    assert_eq!(sightings.missing(), [], "{}", sightings.summary());
}

#[test]
fn a_case_is_the_same_run_every_time_and_its_schedule_replays_it() {
    for seed in 1..40 {
        let case = Case::new(3, seed);
        let first = run_with_story(&case);
        assert!(!first.story.is_empty());
        assert_eq!(run_with_story(&case), first, "seed {seed}");
        let replay = Case {
            schedule: Some(first.schedule.clone()),
            ..case
        };
        assert_eq!(run_with_story(&replay), first, "replay of seed {seed}");
    }
}

/// CPU 1, which never came online, looks which CPUs are, and sees CPU 3 as it was before it left; then it kicks, and sees that CPU 3 has left, but
/// not that it is back. (The schedule is of one version of the engine: with another it leads elsewhere.)
#[test]
fn a_cpu_seen_online_only_before_it_left_need_not_be_kicked() {
    let case = Case {
        schedule: Some("1:3,216:2,285:2,320:2,327:1".parse().unwrap()),
        ..Case::new(4, 640_002_926_388)
    };
    assert_eq!(run(&case).failure, None);
}

#[test]
fn telling_the_story_changes_nothing() {
    let case = Case::new(4, 17);
    let (silent, told) = (run(&case), run_with_story(&case));
    assert_eq!(
        (silent.events, silent.schedule),
        (told.events, told.schedule)
    );
}

#[test]
fn seeds_differ() {
    let events: std::collections::BTreeSet<u64> = (0..50)
        .map(|seed| run(&Case::new(3, seed)).events)
        .collect();
    assert!(events.len() > 40, "{events:?}");
}

/// Every schedule of two CPUs with at most one unusual answer, for a few small programs.
#[test]
fn no_single_deviation_breaks_a_small_program() {
    for seed in [3, 8, 21] {
        let case = Case {
            operations: 3,
            ..Case::new(2, seed)
        };
        let report = exhaust(&case, 1, 3, 20_000);
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(
            report.complete,
            "seed {seed}: {} schedules",
            report.schedules
        );
        assert!(report.schedules > 100, "seed {seed}: {}", report.schedules);
    }
}

/// There is no failing run of the real engine to shrink, so the report claims one: nothing that fails in that way is
/// found, and the schedule stays whole.
#[test]
fn what_does_not_fail_without_an_answer_keeps_it() {
    let case = Case::new(2, 5);
    let mut report = run(&case);
    report.schedule = Schedule(report.schedule.0[..2].to_vec());
    report.failure = Some(Failure {
        kind: FailureKind::StaleAccess,
        cpu: 0,
        event: 0,
        message: String::new(),
    });
    assert_eq!(shrink(&case, &report).schedule, Some(report.schedule));
}

/// Cases of all sizes.
fn cases() -> impl Iterator<Item = Case> {
    (0..24).map(|seed| Case::new(1 + seed as usize % 8, seed))
}

#[test]
fn a_case_is_the_same_run_on_every_thread() {
    let here: Vec<_> = cases().map(|case| run(&case)).collect();
    // Other threads, which have run something else before: other stacks, other addresses.
    let others = [1, 2].map(|before| {
        std::thread::spawn(move || {
            cases().take(before).for_each(|case| drop(run(&case)));
            cases().map(|case| run(&case)).collect::<Vec<_>>()
        })
    });
    for other in others {
        assert!(other.join().expect("no panic outside runs") == here);
    }
}

#[test]
fn what_is_printed_as_a_case_parses() {
    for case in cases() {
        let case = Case {
            schedule: Some(run(&case).schedule),
            ..case
        };
        assert_eq!(case.to_string().parse(), Ok(case));
    }
}

#[test]
fn a_campaign_does_not_depend_on_its_threads() {
    let of = |threads| {
        let plan = Campaign {
            runs: 60,
            seed: 900,
            threads,
            ..Campaign::default()
        };
        let report = campaign(plan, |_| ());
        let (runs, totals) = (report.progress.runs, report.progress.totals);
        (report.failure, runs, totals.events, totals.conduct)
    };
    assert_eq!(of(1), of(2));
}
