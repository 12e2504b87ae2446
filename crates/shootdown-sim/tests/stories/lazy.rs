//! Stories about CPUs that run no user code and keep their space loaded.

use shootdown::FreedTables;
use shootdown_sim::kernel_root_at;
use shootdown_sim::machine::context;

use crate::moves::{LOADS, ROUNDS, VISITS, page, relinks, unmaps};
use crate::play::{Part, Stage, explore, explore_on};
use crate::scene::{FIRST_FRAME, Scene};

/// Runs in the space, is lazy in it for a while, and runs in it again.
fn dozes(scene: &Scene) {
    let (engine, space) = (&scene.engine, &scene.space);
    engine.switch_to(None, space);
    for visit in 0..VISITS {
        (0..LOADS / VISITS).for_each(|_| scene.load(0));
        engine.user_memory().enter_lazy(space, kernel_root_at(0));
        (0..visit % 4 * 2).for_each(|_| context().work(1));
        engine.switch_to(Some(space), space);
    }
    scene.load(0);
    engine.switch_away(space, kernel_root_at(0));
}

/// The same, but after every rest another space comes first, or none.
fn dozes_and_leaves(scene: &Scene) {
    let (engine, space, other) = (&scene.engine, &scene.space, &scene.others[0]);
    for visit in 0..VISITS {
        engine.switch_to(None, space);
        (0..LOADS / VISITS).for_each(|_| scene.load(0));
        engine.user_memory().enter_lazy(space, kernel_root_at(0));
        (0..visit % 4 * 2).for_each(|_| context().work(1));
        if visit % 2 == 0 {
            engine.switch_to(Some(space), other);
            scene.load_other(0);
            engine.user_memory().enter_lazy(other, kernel_root_at(0));
            engine.switch_away(other, kernel_root_at(0));
        } else {
            engine.switch_away(space, kernel_root_at(0));
        }
    }
}

const UNMAPS: Part = |scene| unmaps(scene, 0);

/// Flushes pass it by; when it runs in the space again it makes up for them.
#[test]
fn lazy_cpu_that_was_passed_by_wakes_in_the_same_space() {
    explore(&[UNMAPS, dozes]);
    explore_on(Stage::TAGGED, &[UNMAPS, dozes]);
}

/// The same with another space in between: what its tag recorded is what it had when it was left, no more.
#[test]
fn lazy_cpu_that_was_passed_by_comes_back_later() {
    explore(&[UNMAPS, dozes_and_leaves]);
    explore_on(Stage::TAGGED, &[UNMAPS, dozes_and_leaves]);
}

/// A processor walks tables whether or not a program runs: a lazy CPU must let go of a space whose tables are freed.
#[test]
fn table_freed_under_a_lazy_cpu_is_walked_by_nobody() {
    explore(&[relinks, dozes]);
    explore_on(Stage::TAGGED, &[relinks, dozes]);
    explore_on(Stage::TAGGED, &[relinks, dozes_and_leaves]);
}

/// A kernel thread that changes the space it borrows: nobody else runs it, and it wakes up in it.
#[test]
fn lazy_cpu_flushes_the_space_that_it_keeps() {
    explore_on(
        Stage::TAGGED,
        &[|scene| {
            let (engine, space) = (&scene.engine, &scene.space);
            engine.switch_to(None, space);
            for round in 0..ROUNDS {
                let frame = FIRST_FRAME + round;
                scene.map(0, frame);
                scene.load(0);
                engine.user_memory().enter_lazy(space, kernel_root_at(0));
                scene.unmap(0);
                let freed = match round % 2 {
                    0 => FreedTables::No,
                    _ => FreedTables::Yes,
                };
                engine.flush(space, page(0), freed);
                scene.forbid(0, frame);
                engine.switch_to(Some(space), space);
                scene.load(0);
            }
            engine.switch_away(space, kernel_root_at(0));
        }],
    );
}

/// An NMI that comes when a waking CPU has not made up for what passed it by: user memory is out of bounds still.
#[test]
fn nmi_of_a_waking_cpu_sees_nothing_stale() {
    let nmi: Part = |scene| {
        if scene.engine.user_memory().access_ok(scene.space.id()) {
            scene.load_now(0);
        }
    };
    for stage in [Stage::PLAIN, Stage::TAGGED] {
        explore_on(Stage { nmi, ..stage }, &[UNMAPS, dozes]);
    }
}
