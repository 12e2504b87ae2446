//! Stories about translations.

use shootdown::{FlushScope, FreedTables, Platform, Policy, calls::CallData};
use shootdown_sim::kernel::Pte;
use shootdown_sim::machine::context;
use shootdown_sim::{PLATFORM, kernel_root_at};

use crate::moves::{
    LOADS, ROUNDS, UNMAPS_WHILE_ANOTHER_COMES_AND_GOES, comes_and_goes, page, relinks, unmaps,
    unmaps_kernel,
};
use crate::play::{Part, Stage, explore, explore_offline, explore_on};
use crate::scene::{FIRST_FRAME, KERNEL_PAGE, Scene};

fn stays(scene: &Scene) {
    scene.engine.switch_to(None, &scene.space);
    for _ in 0..LOADS {
        scene.load(0);
    }
    scene.engine.switch_away(&scene.space, kernel_root_at(0));
}

fn looks_at_two_pages(scene: &Scene) {
    scene.engine.switch_to(None, &scene.space);
    for _ in 0..LOADS {
        scene.load(0);
        scene.load(1);
    }
    scene.engine.switch_away(&scene.space, kernel_root_at(0));
}

/// CVE-2016-2069, CVE-2025-40174: a CPU loads the space while another flushes it.
#[test]
fn late_joiner_sees_new_generation() {
    explore(&UNMAPS_WHILE_ANOTHER_COMES_AND_GOES);
}

/// Two partial flushes that arrive in the wrong order: the second must not hide the first.
#[test]
fn partial_flushes_may_arrive_out_of_order() {
    explore(&[
        |scene| unmaps(scene, 0),
        |scene| unmaps(scene, 1),
        looks_at_two_pages,
    ]);
}

/// The same with descriptions passed by pointer and a local flush after the wait.
#[test]
fn initiator_flushes_itself_under_every_policy() {
    explore_offline(&[
        |scene| {
            scene.engine.set_policy(Policy::BEFORE);
            scene.online_all(2);
            scene.engine.switch_to(None, &scene.space);
            for round in 0..ROUNDS {
                let frame = FIRST_FRAME + round;
                scene.map(0, frame);
                scene.load(0);
                scene.unmap(0);
                scene.engine.flush(&scene.space, page(0), FreedTables::No);
                scene.forbid(0, frame);
                scene.load(0);
            }
            scene.engine.switch_away(&scene.space, kernel_root_at(0));
        },
        |scene| {
            scene.online_all(2);
            looks_at_two_pages(scene);
        },
    ]);
}

/// Between an early acknowledgement and the flush that it promised, an NMI must leave user memory alone.
#[test]
fn nmi_inside_an_early_acknowledged_flush_sees_nothing_stale() {
    let nmi: Part = |scene| {
        if scene.engine.user_memory().access_ok(scene.space.id()) {
            scene.load_now(0);
        }
    };
    explore_on(
        Stage {
            nmi,
            ..Stage::PLAIN
        },
        &[|scene| unmaps(scene, 0), looks_at_two_pages],
    );
}

/// A table is unlinked, flushed and becomes data: no walk may go through it then, nor start in it later.
#[test]
fn freed_table_is_walked_by_nobody() {
    explore(&[relinks, comes_and_goes, stays]);
}

/// Kernel pages are global and used at any time: after the wait no TLB of a CPU that is online has them, and one
/// that comes online has nothing from before.
#[test]
fn kernel_translation_is_gone_everywhere() {
    explore_offline(&[
        |scene| {
            scene.online();
            unmaps_kernel(scene, 3);
        },
        |scene| {
            scene.online();
            for _ in 0..LOADS / 4 {
                scene.load(KERNEL_PAGE);
            }
        },
        |scene| {
            scene.online();
            for _ in 0..LOADS {
                scene.load(KERNEL_PAGE);
            }
        },
    ]);
}

/// An initiator that finds a CPU gone, although it was in the space's set a moment ago, sends it nothing: its last
/// accesses must be known to be over all the same.
#[test]
fn cpu_that_goes_offline_has_used_its_frames_for_the_last_time() {
    explore_offline(&[
        |scene| {
            scene.map(0, FIRST_FRAME);
            scene.online();
            (0..LOADS / 4).for_each(|_| context().work(1));
            scene.unmap(0);
            scene.engine.flush(&scene.space, page(0), FreedTables::No);
            scene.forbid(0, FIRST_FRAME);
            scene.clear_frame(FIRST_FRAME);
        },
        |scene| {
            scene.online();
            scene.engine.switch_to(None, &scene.space);
            scene.use_frame(0);
            scene.engine.switch_away(&scene.space, kernel_root_at(0));
            let state = PLATFORM.irq_save();
            scene.engine.offline();
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
        },
    ]);
}

/// The same for what its last functions use of the kernel's part.
#[test]
fn cpu_that_goes_offline_has_run_its_functions_for_the_last_time() {
    explore_offline(&[
        |scene| {
            scene.set_kernel(Pte::to(FIRST_FRAME, true));
            scene.online();
            let dwell = || (0..LOADS / 4).for_each(|_| context().work(1));
            dwell();
            // The other leaves, and gets no answer from here any more.
            let state = PLATFORM.irq_save();
            dwell();
            scene.set_kernel(Pte::EMPTY);
            let one_page = page(KERNEL_PAGE);
            scene
                .engine
                .flush(FlushScope::Kernel, one_page, FreedTables::No);
            scene.clear_frame(FIRST_FRAME);
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
        },
        |scene| {
            scene.online();
            let state = PLATFORM.irq_save();
            let lent = (&raw const *scene).expose_provenance();
            let data = Box::leak(Box::new(CallData::new(move |_| {
                // SAFETY: the scene outlives its CPUs' programs, of which this is a part.
                let scene = unsafe { &*std::ptr::with_exposed_provenance::<Scene>(lent) };
                scene.use_frame(KERNEL_PAGE);
            })));
            let posted = scene.engine.post_data(PLATFORM.current_cpu(), data);
            assert_eq!(posted, Ok(()));
            scene.engine.offline();
            // SAFETY: 1. saved above.
            unsafe { PLATFORM.irq_restore(state) };
        },
    ]);
}
