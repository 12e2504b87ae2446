//! Stories to walk through: what the document of one says, and in which order.

use std::collections::BTreeMap;

use shootdown_sim::FailureKind;
use shootdown_sim::kernel::Pte;
use shootdown_sim::machine::context;
use shootdown_sim::walkthrough::{Sort, Walkthrough, page};

use crate::moves::{LOADS, unmaps};
use crate::play::{Part, Stage, walk};
use crate::scene::{FIRST_FRAME, Scene, TABLE};

const CACHED: &str = "the TLB of cpu1 has page 0";
const UNMAPPED: &str = "table 3, entry 0 led to frame 4";

/// Unmaps a page and tells nobody.
fn forgets_the_flush(scene: &Scene) {
    scene.map(0, FIRST_FRAME);
    (0..LOADS / 2).for_each(|_| context().work(1));
    scene.unmap(0);
    scene.forbid(0, FIRST_FRAME);
}

fn loads(scene: &Scene) {
    scene.engine.switch_to(None, &scene.space);
    (0..LOADS).for_each(|_| scene.load(0));
    scene
        .engine
        .switch_away(&scene.space, shootdown_sim::kernel_root_at(0));
}

/// The first of the story's schedules that fails.
fn failing() -> Walkthrough {
    let parts: [Part; 2] = [forgets_the_flush, loads];
    let mut walks = (0..1000).map(|seed| walk(Stage::PLAIN, &parts, seed));
    walks
        .find(|walk| walk.violation.is_some())
        .expect("one of them loads what it has cached")
}

/// What a place holds after a step.
fn held(walk: &Walkthrough, place: &str, step: usize) -> BTreeMap<String, String> {
    let place = walk.places.iter().position(|name| name == place);
    let place = place.expect("a place of the run");
    let steps = walk.steps[..=step].iter().flat_map(|step| &step.changes);
    let mut held = BTreeMap::new();
    for (_, key, value) in walk.start.iter().chain(steps).filter(|it| it.0 == place) {
        match value {
            Some(value) => held.insert(key.clone(), value.clone()),
            None => held.remove(key),
        };
    }
    held
}

/// The step that has to do with it.
fn cause(walk: &Walkthrough, why: &str) -> usize {
    let causes = &walk.violation.as_ref().expect("it fails").causes;
    let cause = causes.iter().find(|it| it.why.starts_with(why));
    cause
        .unwrap_or_else(|| panic!("no {why:?} in {causes:?}"))
        .step
}

#[test]
fn steps_that_led_to_a_violation_are_named_in_order() {
    let walk = failing();
    let violation = walk.violation.as_ref().expect("it fails");
    assert_eq!(violation.kind, FailureKind::StaleAccess.to_string());
    assert_eq!(walk.steps[violation.step].sort, Sort::Violation);
    assert_eq!(violation.step, walk.steps.len() - 1);
    assert!(cause(&walk, CACHED) < violation.step && cause(&walk, UNMAPPED) < violation.step);
    assert!(violation.causes.is_sorted_by_key(|cause| cause.step));
}

#[test]
fn what_broke_a_promise_is_in_the_state_of_its_step() {
    let walk = failing();
    let last = walk.steps.len() - 1;
    let leads = |step| {
        let tlb = held(&walk, "TLB of cpu1", step);
        tlb.values().any(|to| to == "frame 4, writable")
    };
    let cached = cause(&walk, CACHED);
    assert!(!leads(cached - 1) && leads(cached) && leads(last));
    let maps = |step| held(&walk, "page tables", step).contains_key("table 3, entry 0");
    let unmapped = cause(&walk, UNMAPPED);
    assert!(maps(unmapped - 1) && !maps(unmapped) && !maps(last));
}

#[test]
fn a_table_that_can_still_be_walked_was_loaded_and_unlinked() {
    let parts: [Part; 2] = [
        |scene| {
            (0..LOADS / 2).for_each(|_| context().work(1));
            scene.link(Pte::EMPTY);
            scene.insist_unreachable(TABLE);
        },
        loads,
    ];
    let mut walks = (0..1000).map(|seed| walk(Stage::PLAIN, &parts, seed));
    let failing = walks.find(|walk| walk.violation.is_some());
    let failing = failing.expect("nobody has flushed");
    let last = failing.steps.len() - 1;
    assert!(cause(&failing, "the TLB of cpu1 has root's entry 0") < last);
    assert!(cause(&failing, "table 2, entry 0 led to frame 3") < last);
}

#[test]
fn a_cpu_has_no_page_after_it_has_dropped_it() {
    let parts: [Part; 2] = [|scene| unmaps(scene, 0), loads];
    let mut drops = 0;
    for seed in 0..200 {
        let walk = walk(Stage::PLAIN, &parts, seed);
        assert_eq!(walk.violation, None);
        for (index, step) in walk.steps.iter().enumerate() {
            if step.label == "drops page 0" {
                let tlb = format!("TLB of cpu{}", step.cpu.expect("a CPU drops it"));
                assert_eq!(held(&walk, &tlb, index).get("page 0"), None);
                drops += 1;
            }
        }
    }
    assert!(drops > 0, "it is dropped page by page now and then");
}

#[test]
fn an_interrupt_is_sent_before_it_is_taken_and_answered() {
    let parts: [Part; 2] = [|scene| unmaps(scene, 0), loads];
    let mut count = 0;
    for seed in 0..20 {
        let walk = walk(Stage::PLAIN, &parts, seed);
        let answered = walk.arrows.iter().filter(|arrow| arrow.answer.is_some());
        for arrow in answered {
            let (acknowledged, seen) = arrow.answer.expect("filtered");
            assert!(
                arrow.sent.1 < acknowledged && acknowledged < seen,
                "{arrow:?}"
            );
            let step = &walk.steps[arrow.sent.1 as usize];
            assert_eq!(step.label, format!("interrupts cpu{}", arrow.taken.0));
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn the_same_schedule_gives_the_same_page() {
    assert_eq!(page(&[failing()]), page(&[failing()]));
}
