//! What several stories have in common.

use shootdown::{FlushRange, FlushScope, FreedTables, PageSize};
use shootdown_sim::kernel::Pte;
use shootdown_sim::machine::context;
use shootdown_sim::oracle::FrameKind;
use shootdown_sim::{FailureKind, kernel_root_at};

use crate::play::Part;
use crate::scene::{FIRST_FRAME, KERNEL_PAGE, Scene, TABLE};

/// Changes that the initiator of a story makes.
pub const ROUNDS: u16 = 4;
/// How long a page or table stays.
pub const DWELL: usize = 10;
/// What others do meanwhile, so that they are not done before it.
pub const VISITS: usize = 12;
pub const LOADS: usize = 40;

pub fn page(number: usize) -> FlushRange {
    FlushRange::pages(number << 12, 1, PageSize::SIZE_4K)
}

/// Maps and unmaps a page again and again, each time with another frame.
pub fn unmaps(scene: &Scene, number: usize) {
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

/// Puts another table in the place of the space's first again and again; each becomes free at once.
pub fn relinks(scene: &Scene) {
    let whole = FlushRange::pages(0, 4, PageSize::SIZE_4K);
    for round in 0..ROUNDS {
        let table = TABLE + round;
        scene.link(Pte::EMPTY);
        scene.engine.flush(&scene.space, whole, FreedTables::Yes);
        scene.insist_unreachable(table);
        let mut book = scene.hardware.book.borrow_mut();
        book.release(table);
        book.take(table + 1, FrameKind::Table);
        drop(book);
        scene.link(Pte::to(table + 1, true));
        for _ in 0..DWELL {
            context().work(1);
        }
    }
}

/// Loads the space, leaves it for another one, comes back, and leaves it for none, again and again.
pub fn comes_and_goes(scene: &Scene) {
    let (engine, space, other) = (&scene.engine, &scene.space, &scene.others[0]);
    let looks = || (0..LOADS / VISITS).for_each(|_| scene.load(0));
    for _ in 0..VISITS / 2 {
        engine.switch_to(None, space);
        looks();
        engine.switch_to(Some(space), other);
        engine.switch_to(Some(other), space);
        looks();
        engine.switch_away(space, kernel_root_at(0));
    }
}

/// One CPU unmaps a page while another comes and goes.
pub const UNMAPS_WHILE_ANOTHER_COMES_AND_GOES: [Part; 2] =
    [|scene| unmaps(scene, 0), comes_and_goes];

/// Maps and unmaps a kernel page, after which none of `cpus` CPUs may have it.
pub fn unmaps_kernel(scene: &Scene, cpus: usize) {
    for round in 0..ROUNDS {
        let frame = FIRST_FRAME + round;
        scene.set_kernel(Pte::to(frame, true));
        scene.load(KERNEL_PAGE);
        for _ in 0..DWELL {
            context().work(1);
        }
        scene.set_kernel(Pte::EMPTY);
        scene
            .engine
            .flush(FlushScope::Kernel, page(KERNEL_PAGE), FreedTables::No);
        scene.forbid(KERNEL_PAGE, frame);
        for cpu in 0..cpus {
            if scene.caches(cpu, KERNEL_PAGE, frame) {
                let story = format!("cpu{cpu} still has the kernel's page at frame {frame}");
                context().fail(FailureKind::StaleAccess, story);
            }
        }
    }
}
