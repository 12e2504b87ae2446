//! Runs to walk through: recording changes nothing, pages are whole, the timed machine's document is in order.

use shootdown_sim::fuzz::{Case, run, run_to_walk, run_with_story};
use shootdown_sim::kernel::Scenario;
use shootdown_sim::trace::scene;
use shootdown_sim::walkthrough::{Axis, ShownStep, Sort, Walkthrough, page};

#[test]
fn recording_changes_no_result() {
    for seed in 0..60 {
        let case = Case::new(2 + seed as usize % 4, seed);
        let (recorded, walk) = run_to_walk(&case);
        assert!(recorded == run_with_story(&case), "seed {seed}");
        let silent = run(&case);
        assert_eq!(recorded.events, silent.events, "seed {seed}");
        assert_eq!(recorded.conduct, silent.conduct, "seed {seed}");
        assert!(walk.steps.len() > 20, "seed {seed}");
    }
}

#[test]
fn the_story_is_among_the_steps_word_for_word() {
    for seed in 100..120 {
        let (report, walk) = run_to_walk(&Case::new(3, seed));
        let told = walk.steps.iter().filter(|step| step.told);
        let told: Vec<String> = told.map(|step| line(&walk, step)).collect();
        let beginning = report.story.len() - told.len();
        assert_eq!(report.story[beginning..], told, "seed {seed}");
        let introduces = |line: &String| line.contains("is the engine's");
        assert!(report.story[..beginning].iter().all(introduces));
    }
}

fn line(walk: &Walkthrough, step: &ShownStep) -> String {
    if step.text.starts_with('(') {
        return format!("{:>6} {}", step.event, step.text);
    }
    let name = &walk.cpus[step.cpu.expect("somebody does it")];
    let index = name.split(' ').next().unwrap_or_default();
    format!("{:>6} {index} {}", step.event, step.text)
}

/// As it was published: fails under some schedule.
fn published_flag() -> Walkthrough {
    let walks = (0..500).map(|seed| run_to_walk(&Case::of(Scenario::PublishedFlag, seed)).1);
    let mut failing = walks.filter(|walk| walk.violation.is_some());
    failing.next().expect("it is unsound")
}

#[test]
fn a_broken_promise_was_cached_then_unmapped_then_withdrawn() {
    let walk = published_flag();
    let violation = walk.violation.expect("it fails");
    let place = |words: &str| {
        let mut causes = violation.causes.iter();
        let cause = causes.find(|it| it.why.contains(words));
        cause
            .unwrap_or_else(|| panic!("no {words:?} in {violation:?}"))
            .step
    };
    let (cached, unmapped) = (
        place("the TLB of cpu1 has page 16"),
        place("entry 0 led to"),
    );
    let withdrawn = place("is promised no longer");
    assert!(cached < withdrawn && unmapped < withdrawn);
    assert!(withdrawn < violation.step);
    assert_eq!(walk.steps[violation.step].sort, Sort::Violation);
}

#[test]
fn a_page_embeds_its_documents_and_cannot_be_left_by_their_text() {
    let mut walk = published_flag();
    walk.title = "</script><script>alert('<')".to_owned();
    let page = page(&[walk.clone()]);
    let (_, rest) = page.split_once("id=\"documents\">").expect("documents");
    let (json, _) = rest.split_once("</script>").expect("their end");
    let found: serde_json::Value = serde_json::from_str(json).expect("JSON");
    assert_eq!(found, serde_json::to_value([walk]).expect("JSON"));
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "the documents' and the script's"
    );
    assert!(
        !page.contains("src=") && !page.contains("href="),
        "nothing is loaded"
    );
}

fn position(walk: &Walkthrough, cpu: usize, label: &str) -> usize {
    let mut steps = walk.steps.iter();
    steps
        .position(|step| step.cpu == Some(cpu) && step.label == label)
        .unwrap_or_else(|| panic!("cpu{cpu} never {label}"))
}

/// Whether a CPU has a translation of the page after a step.
fn is_cached(walk: &Walkthrough, cpu: usize, step: usize) -> bool {
    let steps = walk.steps[..=step].iter().flat_map(|step| &step.changes);
    let changes = walk.start.iter().chain(steps);
    let mut of_page = changes.filter(|it| it.0 == cpu && it.1.starts_with("page 8"));
    of_page.next_back().is_some_and(|it| it.2.is_some())
}

#[test]
fn a_timed_shootdown_drops_the_page_on_every_cpu_in_the_policy_s_order() {
    for (name, policy) in scene::POLICIES {
        let walk = scene::walkthrough(name, policy);
        assert_eq!(walk.axis, Axis::Ns);
        for cpu in 0..scene::CPUS {
            let dropped = position(&walk, cpu, "drops page 8");
            assert!(is_cached(&walk, cpu, dropped - 1), "{name}: cpu{cpu}");
            assert!(!is_cached(&walk, cpu, dropped), "{name}: cpu{cpu}");
        }
        let own = position(&walk, 0, "drops page 8");
        for target in 1..scene::CPUS {
            let acknowledged = position(&walk, target, "acks cpu0");
            let dropped = position(&walk, target, "drops page 8");
            assert_eq!(dropped < acknowledged, name == "before", "{name}");
            assert_eq!(acknowledged < own, name == "before", "{name}");
        }
    }
}

#[test]
fn lines_have_names_and_holders() {
    let (name, policy) = scene::POLICIES[2];
    let walk = scene::walkthrough(name, policy);
    let lines = walk.places.len() - 1;
    let moves = walk.steps.iter().filter(|step| step.sort == Sort::Access);
    let of_inbox = moves.filter(|step| step.text == "writes cpu1: inbox");
    let change = (
        lines,
        "cpu1: inbox".to_owned(),
        Some("modified by 0".to_owned()),
    );
    assert!(
        of_inbox
            .clone()
            .any(|step| step.changes == [change.clone()])
    );
}
