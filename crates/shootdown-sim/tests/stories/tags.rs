//! Stories about hardware tags: what a CPU may keep of a space that it does not have loaded.

use shootdown::{AddressSpace, Cpus, Policy, tags::Tags};
use shootdown_sim::kernel::KernelPages;
use shootdown_sim::machine::context;
use shootdown_sim::{FailureKind, kernel_root_at};

use crate::moves::{
    LOADS, UNMAPS_WHILE_ANOTHER_COMES_AND_GOES, VISITS, comes_and_goes, relinks, unmaps_kernel,
};
use crate::play::{Stage, explore_on};
use crate::scene::{KERNEL_PAGE, Scene};

/// Rounds through several spaces.
const ROUNDS: usize = 4;

/// Runs each of the first `spaces` other spaces in turn and looks at what it has; tells how many loads of a root
/// that were.
fn go_round(scene: &Scene, spaces: usize) -> u64 {
    let mut loaded: Option<&AddressSpace<Cpus<4>>> = None;
    for turn in 0..ROUNDS * spaces {
        let index = turn % spaces;
        let next = &scene.others[index];
        scene.engine.switch_to(loaded.replace(next), next);
        scene.load_other(index);
    }
    if let Some(last) = loaded {
        scene.engine.switch_away(last, kernel_root_at(0));
    }
    (ROUNDS * spaces) as u64
}

/// So many loads found their tag as they had left it, and so many took one from nobody or another space.
fn insist_loads(scene: &Scene, kept: u64, taken: u64) {
    let stats = scene.engine.watch().total_stats();
    let loads = (stats.tags_kept, stats.tags_taken);
    if loads != (kept, taken) {
        let story = format!("tags kept and taken: {loads:?}, not {:?}", (kept, taken));
        context().fail(FailureKind::WrongCall, story);
    }
}

/// Nobody interrupts a CPU that has left the space; what its tag still has must not come back with it.
#[test]
fn space_comes_back_without_the_page_that_was_unmapped_meanwhile() {
    explore_on(Stage::TAGGED, &UNMAPS_WHILE_ANOTHER_COMES_AND_GOES);
}

/// Its entries are useful only if they are kept when nothing was flushed.
#[test]
fn space_comes_back_with_what_it_had() {
    explore_on(
        Stage::TAGGED,
        &[|scene| {
            comes_and_goes(scene);
            let loads = VISITS as u64 / 2 * 3;
            insist_loads(scene, loads - 2, 2);
        }],
    );
}

/// A table is freed while a tag that is not loaded has entries that lead to it: nobody need interrupt that CPU,
/// if it never walks them again.
#[test]
fn table_freed_behind_a_tag_is_walked_by_nobody() {
    explore_on(Stage::TAGGED, &[relinks, comes_and_goes]);
}

/// One tag for all: whoever takes it finds nothing of the space before.
#[test]
fn tag_taken_by_another_space_is_empty() {
    explore_on(
        Stage {
            asid_slots: 1,
            ..Stage::PLAIN
        },
        &[|scene| {
            let loads = go_round(scene, 3);
            insist_loads(scene, 0, loads);
        }],
    );
}

/// T4 as published: six spaces keep their tags, seven in turn lose all of them, and none sees another's pages.
#[test]
fn six_slots_hold_six_spaces_and_not_seven() {
    const SIX: Policy = Policy::BEST.with_tags(Tags::Six);
    let stage = Stage {
        asid_slots: 16,
        ..Stage::OFFLINE
    };
    explore_on(
        stage,
        &[|scene| {
            scene.engine.set_policy(SIX);
            scene.online_all(1);
            let loads = go_round(scene, 6);
            insist_loads(scene, loads - 6, 6);
        }],
    );
    explore_on(
        stage,
        &[|scene| {
            scene.engine.set_policy(SIX);
            scene.online_all(1);
            let loads = go_round(scene, 7);
            insist_loads(scene, 0, loads);
        }],
    );
}

/// Kernel pages that are not global stay under tags too. A flush of them drops those of the loaded tag; the others
/// must drop theirs before they are used again.
#[test]
fn kernel_flush_reaches_tags_that_are_not_loaded() {
    explore_on(
        Stage {
            kernel_pages: KernelPages::Tagged,
            ..Stage::TAGGED
        },
        &[
            |scene| unmaps_kernel(scene, 2),
            |scene| {
                let (engine, space, other) = (&scene.engine, &scene.space, &scene.others[0]);
                for _ in 0..LOADS / 8 {
                    engine.switch_to(None, space);
                    scene.load(KERNEL_PAGE);
                    engine.switch_to(Some(space), other);
                    scene.load(KERNEL_PAGE);
                    engine.switch_to(Some(other), space);
                    scene.load(KERNEL_PAGE);
                    engine.switch_away(space, kernel_root_at(0));
                    scene.load(KERNEL_PAGE);
                }
            },
        ],
    );
}
