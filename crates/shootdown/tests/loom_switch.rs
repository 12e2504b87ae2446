//! loom models of switching: tags that come back, lazy mode (I2, I3, I4, I5).

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_machine::*;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

fn page(number: usize) -> FlushRange {
    FlushRange::pages(number * PAGE, 1, PageSize::SIZE_4K)
}

/// What one run of a model shares.
struct Scene {
    machine: Arc<Machine<2>>,
    space: Arc<AddressSpace<2>>,
    other: Arc<AddressSpace<2>>,
    done: Arc<AtomicBool>,
    /// CPU 1 has reached the point where the model begins.
    ready: Arc<Event>,
    frame: Arc<TablePage>,
}

impl Scene {
    /// Both CPUs online; `space` has the root that leads through the table page.
    fn new(machine: Arc<Machine<2>>) -> Arc<Self> {
        online_all(&machine, 2);
        Arc::new(Self {
            space: Arc::new(AddressSpace::new(&machine, TABLE_OWNER)),
            other: Arc::new(AddressSpace::new(&machine, tables(2))),
            done: Arc::new(AtomicBool::new(false)),
            ready: Arc::new(Event::new()),
            frame: Arc::new(TablePage::new()),
            machine,
        })
    }

    /// CPU 1 does `work`.
    fn cpu_1(
        scene: &Arc<Self>,
        work: impl FnOnce(&Scene) + 'static,
    ) -> loom::thread::JoinHandle<()> {
        let inside = scene.clone();
        on_cpu(&scene.machine, 1, move |_| work(&inside))
    }

    /// CPU 1 serves interrupts until CPU 0 is done.
    fn idle(&self) {
        idle_until(&self.machine, || self.done.load(Ordering::Acquire));
    }

    /// CPU 0 is done: CPU 1 may end.
    fn end(&self, cpu_1: loom::thread::JoinHandle<()>) {
        self.done.store(true, Ordering::Release);
        wake(&self.machine, 1);
        cpu_1.join().unwrap();
    }

    /// CPU 0 remaps page 0 and flushes.
    fn remap(&self) {
        self.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        self.machine.flush(&self.space, page(0), FreedTables::No);
    }

    /// CPU 1 has the space loaded, all flushes are over: it must not use the old translation.
    fn check(&self) {
        assert_ne!(cached(0), Some(OLD), "stale translation");
        assert_eq!(walk(&self.machine, 0), NEW, "stale walk");
    }
}

/// A space that comes back to its tag while it is flushed is found, or finds out (I2, I3).
#[test]
fn a_space_that_comes_back_to_its_tag_misses_nothing() {
    check(3, || {
        let scene = Scene::new(tagged_machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            walk(machine, 0);
            scene.ready.set();
            machine.switch_to(Some(&scene.space), &scene.other);
            machine.switch_to(Some(&scene.other), &scene.space);
            walk(machine, 0);
            scene.idle();
            scene.check();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.end(cpu_1);
    });
}

/// A CPU that ends lazy mode in the space that it stayed in is found, or finds out, although its bit was set all
/// the time (I2).
#[test]
fn a_lazy_cpu_that_wakes_misses_nothing() {
    check(4, || {
        let scene = Scene::new(machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            walk(machine, 0);
            machine.enter_lazy(&scene.space, NO_USER);
            scene.ready.set();
            machine.switch_to(Some(&scene.space), &scene.space);
            walk(machine, 0);
            scene.idle();
            scene.check();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.end(cpu_1);
    });
}

/// The same while it goes from another space, in which it was lazy, to the one that is flushed: the mark must be
/// gone by the time that its bit counts.
#[test]
fn a_cpu_that_was_lazy_elsewhere_misses_nothing() {
    check(4, || {
        let scene = Scene::new(machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.other);
            machine.enter_lazy(&scene.other, NO_USER);
            scene.ready.set();
            machine.switch_to(Some(&scene.other), &scene.space);
            walk(machine, 0);
            scene.idle();
            scene.check();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.end(cpu_1);
    });
}

/// Whoever skips a lazy CPU may give the frame away: the CPU's uses of it are over (I5).
#[test]
fn a_lazy_cpu_has_used_its_frames_for_the_last_time() {
    check(4, || {
        let scene = Scene::new(machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            scene.ready.set();
            if walk(machine, 0) == OLD {
                scene.frame.walk();
            }
            machine.enter_lazy(&scene.space, NO_USER);
            scene.idle();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.frame.reuse();
        scene.end(cpu_1);
    });
}

/// A CPU that catches up while others flush is found, or finds out (I2).
#[test]
fn a_deferring_cpu_that_catches_up_misses_nothing() {
    check(4, || {
        let scene = Scene::new(machine());
        scene.machine.set_policy(Policy::BEST.with_deferral(true));
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            walk(machine, 0);
            machine.defer_flushes(&scene.space);
            scene.ready.set();
            machine.catch_up(&scene.space);
            walk(machine, 0);
            scene.idle();
            scene.check();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.end(cpu_1);
    });
}

/// Whoever skips a deferring CPU may give the frame away: the CPU's uses of it are over (I5).
#[test]
fn a_deferring_cpu_has_used_its_frames_for_the_last_time() {
    check(4, || {
        let scene = Scene::new(machine());
        scene.machine.set_policy(Policy::BEST.with_deferral(true));
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            scene.ready.set();
            if walk(machine, 0) == OLD {
                scene.frame.walk();
            }
            machine.defer_flushes(&scene.space);
            scene.idle();
            machine.catch_up(&scene.space);
            scene.check();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        scene.remap();
        scene.frame.reuse();
        scene.end(cpu_1);
    });
}

/// A table is freed after a lazy CPU has let go of it (I4).
#[test]
fn a_table_is_freed_after_a_lazy_cpu_has_let_go() {
    check(4, || {
        let scene = Scene::new(machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            scene.ready.set();
            machine.enter_lazy(&scene.space, NO_USER);
            scene.idle();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        let machine = &scene.machine;
        machine.flush(&scene.space, page(0), FreedTables::Yes);
        machine.platform().table_page.reuse();
        scene.end(cpu_1);
    });
}

/// A CPU that has let go by itself is skipped, and its walks are over (I4).
#[test]
fn a_detached_cpu_has_walked_for_the_last_time() {
    check(4, || {
        let scene = Scene::new(machine());
        let cpu_1 = Scene::cpu_1(&scene, |scene| {
            let machine = &scene.machine;
            machine.switch_to(None, &scene.space);
            machine.enter_lazy(&scene.space, NO_USER);
            scene.ready.set();
            machine.flush(&scene.space, page(1), FreedTables::Yes);
            scene.idle();
            machine.switch_away(&scene.space, NO_USER);
        });
        scene.ready.wait();
        let machine = &scene.machine;
        machine.flush(&scene.space, page(0), FreedTables::Yes);
        machine.platform().table_page.reuse();
        scene.end(cpu_1);
    });
}
