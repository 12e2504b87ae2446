//! loom models of windows: copies of top-level entries are gone before the table is that they led to (I4, I13).

#![cfg(loom)]

mod loom_machine;

use shootdown::Cpus;
use std::cell::RefCell;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom_machine::*;
use shootdown::windows::*;
use shootdown::*;

/// CPU 1 has the private root of a space; the others change the space.
struct Scene<const N: usize>
where
    Cpus<N>: Capacity,
{
    machine: Arc<Machine<N>>,
    space: Arc<AddressSpace<Cpus<N>>>,
    /// CPU 1's, until it retires it.
    windows: RefCell<Option<WindowRoot>>,
    /// CPUs that are not done with their changes.
    busy: AtomicU64,
    /// CPU 1 has reached the point where the model begins.
    entered: Event,
}

impl<const N: usize> Scene<N>
where
    Cpus<N>: Capacity,
{
    fn new(policy: Policy) -> Arc<Self> {
        Self::with_root(policy, tables(2))
    }

    fn with_root(policy: Policy, shared: Root) -> Arc<Self> {
        let machine = online_machine::<N>();
        machine.set_policy(policy);
        let space = Arc::new(AddressSpace::new(&machine, shared));
        let windows = WindowRoot::new(&machine, &space, cpu(1), tables(PRIVATE));
        Arc::new(Self {
            machine,
            space,
            windows: RefCell::new(Some(windows)),
            busy: AtomicU64::new(N as u64 - 1),
            entered: Event::new(),
        })
    }

    /// CPU `cpu` does `work`.
    fn on(
        scene: &Arc<Self>,
        cpu: u32,
        work: impl FnOnce(&Self) + 'static,
    ) -> loom::thread::JoinHandle<()> {
        let inside = scene.clone();
        on_cpu(&scene.machine, cpu, move |_| work(&inside))
    }

    fn enter(&self, previous: Option<&AddressSpace<Cpus<N>>>) {
        let windows = self.windows.borrow();
        let windows = windows.as_ref().expect("not retired");
        self.machine
            .windows()
            .switch_to(previous, &self.space, windows);
    }

    /// CPU 1 serves until all changes are made, and would use the table to the end.
    fn idle_and_leave(&self) {
        idle_until(&self.machine, || self.busy.load(Ordering::Acquire) == 0);
        speculate(&self.machine.platform().table_page);
        self.machine.switch_away(&self.space, NO_USER);
        self.retire();
    }

    fn retire(&self) {
        let windows = self.windows.take().expect("not retired");
        self.machine.windows().retire(&self.space, windows);
    }

    /// Unlinks the table and gives it to somebody else.
    fn unlink(&self) {
        let model = self.machine.platform();
        model.shared_top.store(false, Ordering::Relaxed);
        self.space.top_changed();
        self.flush(FreedTables::Yes);
        model.table_page.reuse();
        self.done();
    }

    fn flush(&self, freed: FreedTables) {
        let page = page(0);
        self.machine.flush(&*self.space, page, freed);
    }

    fn done(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
        wake(&self.machine, 1);
    }
}

/// The table is unlinked while CPU 1 loads its private root: it is found in the set, or finds the entry gone.
#[test]
fn a_removal_reaches_a_private_root_that_is_being_loaded() {
    check(4, move || {
        let scene = Scene::<2>::new(Policy::BEST);
        let cpu_1 = Scene::on(&scene, 1, |scene| {
            scene.enter(None);
            scene.idle_and_leave();
        });
        scene.unlink();
        cpu_1.join().unwrap();
    });
}

/// CPU 1 comes back to its private root from the shared one, all the time in the set.
#[test]
fn a_removal_reaches_a_private_root_that_is_loaded_again() {
    check(3, || {
        let scene = Scene::<2>::new(Policy::BEST);
        let cpu_1 = Scene::on(&scene, 1, |scene| {
            scene.enter(None);
            scene.machine.switch_to(Some(&scene.space), &scene.space);
            scene.enter(Some(&scene.space));
            scene.idle_and_leave();
        });
        scene.unlink();
        cpu_1.join().unwrap();
    });
}

/// CPU 0 unlinks the table as soon as CPU 1, in its part, says so.
fn unlink_meanwhile(
    make: fn() -> Arc<Scene<2>>,
    cpu_1: impl Fn(&Scene<2>) + Copy + Send + Sync + 'static,
) {
    check(3, move || {
        let scene = make();
        let cpu_1 = Scene::on(&scene, 1, cpu_1);
        scene.entered.wait();
        scene.unlink();
        cpu_1.join().unwrap();
    });
}

/// Two flushes, of which only one unlinks a table, are served in any order: whoever makes up for a gap copies, because the other
/// one is covered then.
#[test]
fn a_removal_is_not_hidden_by_a_flush_that_overtakes_it() {
    check(2, || {
        let scene = Scene::<3>::new(Policy::BEST);
        let cpu_1 = Scene::on(&scene, 1, |scene| {
            scene.enter(None);
            scene.entered.set();
            scene.idle_and_leave();
        });
        scene.entered.wait();
        let cpu_2 = Scene::on(&scene, 2, |scene| {
            scene.flush(FreedTables::No);
            scene.done();
        });
        scene.unlink();
        cpu_2.join().unwrap();
        cpu_1.join().unwrap();
    });
}

/// A CPU in the kernel, passed by, catches up while a table is unlinked: what it drops whole makes it look up to date, so it copies
/// before.
#[test]
fn a_cpu_that_catches_up_takes_the_removal_over() {
    unlink_meanwhile(
        || Scene::<2>::new(Policy::BEST.with_deferral(true)),
        |scene| {
            scene.enter(None);
            scene.machine.user_memory().defer_flushes(&scene.space);
            scene.entered.set();
            scene.machine.user_memory().catch_up(&scene.space);
            scene.idle_and_leave();
        },
    );
}

/// An entry is added while CPU 1 loads its private root: it has it at once, or takes it over at the fault.
#[test]
fn an_addition_is_found_at_the_fault() {
    check(4, || {
        let scene = Scene::<2>::new(Policy::BEST);
        let model = scene.machine.platform();
        model.shared_top.store(false, Ordering::Relaxed);
        let cpu_1 = Scene::on(&scene, 1, |scene| {
            scene.enter(None);
            idle_until(&scene.machine, || scene.busy.load(Ordering::Acquire) == 0);
            if !has_copy() {
                let windows = scene.windows.borrow();
                let windows = windows.as_ref().expect("not retired");
                assert!(
                    scene.machine.windows().refresh(&scene.space, windows),
                    "a fault for nothing"
                );
            }
            assert!(has_copy(), "the entry is not there");
            scene.machine.switch_away(&scene.space, NO_USER);
            scene.retire();
        });
        model.shared_top.store(true, Ordering::Relaxed);
        scene.space.top_changed();
        scene.done();
        cpu_1.join().unwrap();
    });
}

/// A resident leaves, is perhaps left alone, and comes back, all without touching the set: either its mark is seen, or the removal
/// (I2); and who leaves it alone may reuse the table (I4).
fn a_resident_comes_and_goes(elsewhere: bool) {
    unlink_meanwhile(
        || Scene::<2>::new(Policy::BEST),
        move |scene| {
            let other = AddressSpace::new(&scene.machine, tables(3));
            let others = WindowRoot::new(&scene.machine, &other, cpu(1), tables(4));
            scene.enter(None);
            scene.entered.set();
            if elsewhere {
                let machine = &scene.machine;
                machine
                    .windows()
                    .switch_to(Some(&scene.space), &other, &others);
                scene.enter(Some(&other));
            } else {
                scene.machine.switch_away(&scene.space, NO_USER);
                scene.enter(None);
            }
            scene.idle_and_leave();
            scene.machine.windows().retire(&other, others);
        },
    );
}

#[test]
fn a_resident_that_comes_back_is_found_or_finds_out() {
    a_resident_comes_and_goes(false);
}

#[test]
fn a_resident_of_two_spaces_is_found_or_finds_out() {
    a_resident_comes_and_goes(true);
}

/// A CPU becomes a resident of the space that it has loaded: who sees that it is one sees that it is there, and does not leave
/// alone what still walks the shared tables.
#[test]
fn a_cpu_that_becomes_a_resident_where_it_is_is_not_left_alone() {
    unlink_meanwhile(
        || Scene::<2>::with_root(Policy::BEST, tables(TABLE_OWNER)),
        |scene| {
            scene.machine.switch_to(None, &scene.space);
            scene.entered.set();
            scene.enter(Some(&scene.space));
            scene.idle_and_leave();
        },
    );
}
