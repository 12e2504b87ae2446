//! Stories about translations.

use shootdown::{FlushRange, FreedTables, PageSize, Policy, Root};
use shootdown_sim::FailureKind;
use shootdown_sim::machine::context;
use shootdown_sim::mm::Pte;
use shootdown_sim::oracle::FrameKind;

use crate::scene::{FIRST_FRAME, KERNEL_PAGE, Scene, TABLE, explore, explore_with_nmi};

/// Changes that the initiator of a story makes.
const ROUNDS: u16 = 4;
/// How long a page or table stays.
const DWELL: usize = 10;
/// What others do meanwhile, so that they are not done before it.
const VISITS: usize = 12;
const LOADS: usize = 40;

fn page(number: usize) -> FlushRange {
    FlushRange::pages(number << 12, 1, PageSize::SIZE_4K)
}

/// Maps and unmaps a page again and again, each time with another frame.
fn unmaps(scene: &Scene, number: usize) {
    for round in 0..ROUNDS {
        let frame = FIRST_FRAME + round;
        scene.map(number, frame);
        // So that others come to cache it.
        for _ in 0..DWELL {
            context().work(1);
        }
        scene.unmap(number);
        scene
            .engine
            .flush(&scene.space, page(number), FreedTables::No);
        scene.forbid(number, frame);
    }
}

fn comes_and_goes(scene: &Scene) {
    let (engine, space, other) = (&scene.engine, &scene.space, &scene.other);
    let looks = || (0..LOADS / VISITS).for_each(|_| scene.load(0));
    for _ in 0..VISITS / 2 {
        engine.switch_to(None, space);
        looks();
        engine.switch_to(Some(space), other);
        engine.switch_to(Some(other), space);
        looks();
        engine.switch_away(space, Root(0));
    }
}

fn stays(scene: &Scene) {
    scene.engine.switch_to(None, &scene.space);
    for _ in 0..LOADS {
        scene.load(0);
    }
    scene.engine.switch_away(&scene.space, Root(0));
}

fn looks_at_two_pages(scene: &Scene) {
    scene.engine.switch_to(None, &scene.space);
    for _ in 0..LOADS {
        scene.load(0);
        scene.load(1);
    }
    scene.engine.switch_away(&scene.space, Root(0));
}

/// CVE-2016-2069, CVE-2025-40174: a CPU loads the space while another flushes it.
#[test]
fn late_joiner_sees_new_generation() {
    explore(&[
        |scene| {
            scene.online_all(2);
            unmaps(scene, 0);
        },
        |scene| {
            scene.online_all(2);
            comes_and_goes(scene);
        },
    ]);
}

/// Two partial flushes that arrive in the wrong order: the second must not hide the first.
#[test]
fn partial_flushes_may_arrive_out_of_order() {
    explore(&[
        |scene| {
            scene.online_all(3);
            unmaps(scene, 0);
        },
        |scene| {
            scene.online_all(3);
            unmaps(scene, 1);
        },
        |scene| {
            scene.online_all(3);
            looks_at_two_pages(scene);
        },
    ]);
}

/// The same with descriptions passed by pointer and a local flush after the wait.
#[test]
fn initiator_flushes_itself_under_every_policy() {
    explore(&[
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
            scene.engine.switch_away(&scene.space, Root(0));
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
    explore_with_nmi(
        &[
            |scene| {
                scene.online_all(2);
                unmaps(scene, 0);
            },
            |scene| {
                scene.online_all(2);
                looks_at_two_pages(scene);
            },
        ],
        |scene| {
            if scene.engine.user_access_ok() {
                scene.load_now(0);
            }
        },
    );
}

/// A table is unlinked, flushed and becomes data: no walk may go through it then, nor start in it later.
#[test]
fn freed_table_is_walked_by_nobody() {
    explore(&[
        |scene| {
            scene.online_all(3);
            let whole = FlushRange::pages(0, 4, PageSize::SIZE_4K);
            for round in 0..ROUNDS {
                let table = TABLE + round;
                scene.link(Pte::EMPTY);
                scene.engine.flush(&scene.space, whole, FreedTables::Yes);
                let tlbs = scene.hardware.tlbs.borrow();
                let walker = tlbs.iter().position(|tlb| tlb.reaches_table(table));
                drop(tlbs);
                if let Some(walker) = walker {
                    let story = format!("cpu{walker} can still walk table {table}");
                    context().fail(FailureKind::FreedTable, story);
                }
                let mut book = scene.hardware.book.borrow_mut();
                book.release(table);
                book.take(table + 1, FrameKind::Table);
                drop(book);
                scene.link(Pte::to(table + 1, true));
                for _ in 0..DWELL {
                    context().work(1);
                }
            }
        },
        |scene| {
            scene.online_all(3);
            comes_and_goes(scene);
        },
        |scene| {
            scene.online_all(3);
            stays(scene);
        },
    ]);
}

/// Kernel pages are global and used at any time: after the wait no TLB of a CPU that is online has them, and one
/// that comes online has nothing from before.
#[test]
fn kernel_translation_is_gone_everywhere() {
    fn check(scene: &Scene, cpu: usize, frame: u16) {
        if scene.caches(cpu, KERNEL_PAGE, frame) {
            let story = format!("cpu{cpu} still has the kernel's page at frame {frame}");
            context().fail(FailureKind::StaleAccess, story);
        }
    }
    explore(&[
        |scene| {
            scene.online();
            for round in 0..ROUNDS {
                let frame = FIRST_FRAME + round;
                scene.set_kernel(Pte::to(frame, true));
                scene.load(KERNEL_PAGE);
                for _ in 0..DWELL {
                    context().work(1);
                }
                scene.set_kernel(Pte::EMPTY);
                scene.engine.flush_kernel(page(KERNEL_PAGE));
                scene.forbid(KERNEL_PAGE, frame);
                for cpu in 0..3 {
                    check(scene, cpu, frame);
                }
            }
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
