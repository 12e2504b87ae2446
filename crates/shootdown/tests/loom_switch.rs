//! loom models of switching: tags that come back, lazy mode (I2, I3, I4, I5).

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_machine::*;
use shootdown::Cpus;
use shootdown::tags::*;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

/// What one run of a model shares.
struct Scene {
    machine: Arc<Machine<2>>,
    space: Arc<AddressSpace<Cpus<2>>>,
    other: Arc<AddressSpace<Cpus<2>>>,
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
            space: Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER))),
            other: Arc::new(AddressSpace::new(&machine, tables(2))),
            done: Arc::new(AtomicBool::new(false)),
            ready: Arc::new(Event::new()),
            frame: Arc::new(TablePage::new()),
            machine,
        })
    }

    /// CPU 1 serves interrupts until CPU 0 is done.
    fn idle(&self) {
        idle_until(&self.machine, || self.done.load(Ordering::Acquire));
    }

    /// CPU 0 remaps page 0 and flushes.
    fn remap(&self) {
        self.machine.platform().table[0].store(NEW, Ordering::Relaxed);
        self.machine.flush(&*self.space, page(0), FreedTables::No);
    }

    /// The same, and gives its frame away.
    fn remap_and_reuse(&self) {
        self.remap();
        self.frame.reuse();
    }

    /// CPU 0 frees a table that the space's root led to.
    fn free_table(&self) {
        self.machine.flush(&*self.space, page(0), FreedTables::Yes);
        self.machine.platform().table_page.reuse();
    }

    /// CPU 1 has the space loaded, all flushes are over: it must not use the old translation.
    fn check(&self) {
        assert_ne!(cached(0), Some(OLD), "stale translation");
        assert_eq!(walk(&self.machine, 0), NEW, "stale walk");
    }

    /// CPU 1 uses the space, serves to the end, and leaves.
    fn use_to_the_end(&self) {
        walk(&self.machine, 0);
        self.idle();
        self.check();
        self.machine.switch_away(&self.space, NO_USER);
    }
}

/// CPU 1 does its part; as soon as it is ready, CPU 0 makes its change.
fn race(
    preemptions: usize,
    make: fn() -> Arc<Machine<2>>,
    change: fn(&Scene),
    cpu_1: fn(&Machine<2>, &Scene),
) {
    check(preemptions, move || {
        let scene = Scene::new(make());
        let inside = scene.clone();
        let cpu_1 = on_cpu(&scene.machine, 1, move |machine| cpu_1(machine, &inside));
        scene.ready.wait();
        change(&scene);
        scene.done.store(true, Ordering::Release);
        wake(&scene.machine, 1);
        cpu_1.join().unwrap();
    });
}

fn deferring() -> Arc<Machine<2>> {
    let machine = machine();
    machine.set_policy(Policy::BEST.with_deferral(true));
    machine
}

/// A space that comes back to its tag while it is flushed is found, or finds out (I2, I3).
#[test]
fn a_space_that_comes_back_to_its_tag_misses_nothing() {
    race(3, tagged_machine, Scene::remap, |machine, scene| {
        machine.switch_to(None, &scene.space);
        walk(machine, 0);
        scene.ready.set();
        machine.switch_to(Some(&scene.space), &scene.other);
        machine.switch_to(Some(&scene.other), &scene.space);
        scene.use_to_the_end();
    });
}

/// A CPU that ends lazy mode in the space that it stayed in is found, or finds out, although its bit was set all
/// the time (I2).
#[test]
fn a_lazy_cpu_that_wakes_misses_nothing() {
    race(4, machine, Scene::remap, |machine, scene| {
        machine.switch_to(None, &scene.space);
        walk(machine, 0);
        machine.user_memory().enter_lazy(&scene.space, NO_USER);
        scene.ready.set();
        machine.switch_to(Some(&scene.space), &scene.space);
        scene.use_to_the_end();
    });
}

/// The same while it goes from another space, in which it was lazy, to the one that is flushed: the mark must be
/// gone by the time that its bit counts.
#[test]
fn a_cpu_that_was_lazy_elsewhere_misses_nothing() {
    race(4, machine, Scene::remap, |machine, scene| {
        machine.switch_to(None, &scene.other);
        machine.user_memory().enter_lazy(&scene.other, NO_USER);
        scene.ready.set();
        machine.switch_to(Some(&scene.other), &scene.space);
        scene.use_to_the_end();
    });
}

/// Whoever skips a lazy CPU may give the frame away: the CPU's uses of it are over (I5).
#[test]
fn a_lazy_cpu_has_used_its_frames_for_the_last_time() {
    race(4, machine, Scene::remap_and_reuse, |machine, scene| {
        machine.switch_to(None, &scene.space);
        scene.ready.set();
        if walk(machine, 0) == OLD {
            scene.frame.walk();
        }
        machine.user_memory().enter_lazy(&scene.space, NO_USER);
        scene.idle();
        machine.switch_away(&scene.space, NO_USER);
    });
}

/// A CPU that catches up while others flush is found, or finds out (I2).
#[test]
fn a_deferring_cpu_that_catches_up_misses_nothing() {
    race(4, deferring, Scene::remap, |machine, scene| {
        machine.switch_to(None, &scene.space);
        walk(machine, 0);
        machine.user_memory().defer_flushes(&scene.space);
        scene.ready.set();
        machine.user_memory().catch_up(&scene.space);
        scene.use_to_the_end();
    });
}

/// Whoever skips a deferring CPU may give the frame away: the CPU's uses of it are over (I5).
#[test]
fn a_deferring_cpu_has_used_its_frames_for_the_last_time() {
    race(4, deferring, Scene::remap_and_reuse, |machine, scene| {
        machine.switch_to(None, &scene.space);
        scene.ready.set();
        if walk(machine, 0) == OLD {
            scene.frame.walk();
        }
        machine.user_memory().defer_flushes(&scene.space);
        scene.idle();
        machine.user_memory().catch_up(&scene.space);
        scene.check();
        machine.switch_away(&scene.space, NO_USER);
    });
}

/// A table is freed after a lazy CPU has let go of it (I4).
#[test]
fn a_table_is_freed_after_a_lazy_cpu_has_let_go() {
    race(4, machine, Scene::free_table, |machine, scene| {
        machine.switch_to(None, &scene.space);
        scene.ready.set();
        machine.user_memory().enter_lazy(&scene.space, NO_USER);
        scene.idle();
        machine.switch_away(&scene.space, NO_USER);
    });
}

/// A CPU that has let go by itself is skipped, and its walks are over (I4).
#[test]
fn a_detached_cpu_has_walked_for_the_last_time() {
    race(4, machine, Scene::free_table, |machine, scene| {
        machine.switch_to(None, &scene.space);
        machine.user_memory().enter_lazy(&scene.space, NO_USER);
        scene.ready.set();
        machine.flush(&*scene.space, page(1), FreedTables::Yes);
        scene.idle();
        machine.switch_away(&scene.space, NO_USER);
    });
}

/// CPU 1 switches as a host that loads roots itself.
fn switch_in_halves(
    machine: &Machine<2>,
    previous: Option<&AddressSpace<Cpus<2>>>,
    next: Option<&AddressSpace<Cpus<2>>>,
) {
    let irq = machine.platform().irq_save();
    if machine.host_roots().begin_switch(previous, next) {
        let root = next.map_or(NO_USER.as_u64(), AddressSpace::root);
        let platform = machine.platform();
        // SAFETY: 1. roots are numbers; the halves belong together.
        unsafe { platform.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
        // SAFETY: 1. loaded just now.
        unsafe { machine.host_roots().end_switch(previous, next) };
    }
    // SAFETY: 1. saved above.
    unsafe { machine.platform().irq_restore(irq) };
}

/// A CPU whose host loads the root is found by a flush, or finds out (I2, I3).
#[test]
fn a_host_that_loads_the_root_misses_nothing() {
    race(4, machine, Scene::remap, |machine, scene| {
        scene.ready.set();
        switch_in_halves(machine, None, Some(&scene.space));
        scene.use_to_the_end();
    });
}

/// It is in the set of the space that it leaves until the root is gone: its walks are over when a table is freed (I4).
#[test]
fn a_host_that_loads_another_root_has_walked_for_the_last_time() {
    race(4, machine, Scene::free_table, |machine, scene| {
        machine.switch_to(None, &scene.space);
        scene.ready.set();
        switch_in_halves(machine, Some(&scene.space), None);
        scene.idle();
    });
}

/// The same while it was lazy there.
#[test]
fn a_lazy_host_that_loads_another_root_has_walked_for_the_last_time() {
    race(3, machine, Scene::free_table, |machine, scene| {
        machine.switch_to(None, &scene.space);
        machine.user_memory().enter_lazy(&scene.space, NO_USER);
        scene.ready.set();
        switch_in_halves(machine, Some(&scene.space), Some(&scene.other));
        scene.idle();
        machine.switch_away(&scene.other, NO_USER);
    });
}
