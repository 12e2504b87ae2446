//! loom models of listeners, of one flush for many spaces, and of a flush that another task waits for.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom_machine::*;
use shootdown::Cpus;
use shootdown::reclaim::Reclaim;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

type Space = AddressSpace<Cpus<2>>;

fn space(machine: &Machine<2>) -> Arc<Space> {
    Arc::new(AddressSpace::new(machine, tables(1)))
}

/// CPU 0 changes the page and flushes, as `flush` does, while `listen` runs on another one: what a device has kept afterwards is new.
fn change_beside_a_listener(
    flush: fn(&Machine<2>, &Space),
    listen: impl Fn(&Machine<2>, &Space) + Clone + Send + Sync + 'static,
) {
    check(3, move || {
        let machine = online_machine::<2>();
        let space = space(&machine);
        let listener = {
            let (space, listen) = (space.clone(), listen.clone());
            on_cpu(&machine, 1, move |machine| listen(machine, &space))
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        flush(&machine, &space);
        let kept = *machine.platform().device.lock().unwrap();
        assert_ne!(kept, Some(OLD), "a stale entry in a secondary TLB");
        listener.join().unwrap();
        machine.secondary_tlbs().unlisten(&*space);
    });
}

fn flush(machine: &Machine<2>, space: &Space) {
    machine.flush(space, page(0), FreedTables::No);
}

/// What the hardware of a device does at any time once it may.
fn device_walks(machine: &Machine<2>) {
    let mut device = machine.platform().device.lock().unwrap();
    *device = Some(machine.platform().table[0].load(Ordering::Relaxed));
}

/// It walks when it has begun to listen: it is told, or finds the change.
#[test]
fn a_device_that_begins_to_listen_keeps_nothing_old() {
    change_beside_a_listener(flush, |machine, space| {
        machine.secondary_tlbs().listen(space, 1);
        device_walks(machine);
    });
}

#[test]
fn a_device_is_told_of_a_reclaim() {
    let reclaim = |machine: &Machine<2>, space: &Space| {
        let mut reclaim = Reclaim::new(&**machine, ());
        reclaim.add(space);
        reclaim.submit().wait();
    };
    change_beside_a_listener(reclaim, |machine, space| {
        machine.secondary_tlbs().listen(space, 1);
        device_walks(machine);
    });
}

/// Software that makes tables of ours: generation, entry, its own lock, generation again.
#[test]
fn software_installs_nothing_old() {
    change_beside_a_listener(flush, |machine, space| {
        machine.secondary_tlbs().listen(space, 1);
        let generation = space.generation();
        let entry = machine.platform().table[0].load(Ordering::Relaxed);
        let mut tables = machine.platform().device.lock().unwrap();
        if space.generation() == generation {
            *tables = Some(entry);
        }
    });
}

/// CPU 0 flushes while CPU 1 ends a listener, and does `then` behind that.
fn flush_beside_one_that_goes(then: fn(&Machine<2>, &Space)) {
    check(3, move || {
        let machine = online_machine::<2>();
        let space = space(&machine);
        machine.secondary_tlbs().listen(&*space, 1);
        let listener = {
            let space = space.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.secondary_tlbs().unlisten(&*space);
                then(machine, &space);
                wake(machine, 0);
            })
        };
        flush(&machine, &space);
        wake(&machine, 1);
        listener.join().unwrap();
        machine.secondary_tlbs().unlisten(&*space);
    });
}

/// What it is told with is the listener's own, and gone when it does not listen any more.
#[test]
fn nobody_is_told_when_it_listens_no_more() {
    flush_beside_one_that_goes(|machine, _| machine.platform().device_page.reuse());
}

/// An initiator that comes too late for one listener does not keep the next one out.
#[test]
fn another_one_may_listen_at_once() {
    flush_beside_one_that_goes(|machine, space| machine.secondary_tlbs().listen(space, 1));
}

/// It has read the tables, and what they lead to, for the last time: an initiator that finds it gone comes after that.
#[test]
fn a_flush_comes_after_the_last_use_of_one_that_listens_no_more() {
    check(3, || {
        let machine = online_machine::<2>();
        let (space, used) = (space(&machine), Arc::new(TablePage::new()));
        machine.secondary_tlbs().listen(&*space, 1);
        let listener = {
            let (space, used) = (space.clone(), used.clone());
            on_cpu(&machine, 1, move |machine| {
                let device = machine.platform().device.lock().unwrap();
                if machine.platform().table[0].load(Ordering::Relaxed) == OLD {
                    used.walk();
                }
                drop(device);
                machine.secondary_tlbs().unlisten(&*space);
                wake(machine, 0);
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        flush(&machine, &space);
        used.reuse();
        wake(&machine, 1);
        listener.join().unwrap();
    });
}

/// A CPU that loads one of two spaces while another reclaims a page of both is either found, or sees the new tables (I1, I2).
#[test]
fn a_reclaim_finds_who_joins() {
    check(3, || {
        let machine = online_machine::<2>();
        let (first, second) = (space(&machine), space(&machine));
        let done = flag();
        let joiner = {
            let (first, second) = (first.clone(), second.clone());
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &first);
                walk(machine, 0);
                machine.switch_to(Some(&first), &second);
                walk(machine, 0);
                idle_until(machine, || done.load(Ordering::Acquire));
                assert_ne!(cached(0), Some(OLD), "stale translation");
                machine.switch_away(&second, NO_USER);
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        let mut reclaim = Reclaim::new(&**machine, ());
        reclaim.add(&first);
        reclaim.add(&second);
        reclaim.submit().wait();
        tell(&machine, 1, done);
        joiner.join().unwrap();
    });
}

/// A CPU that uses a page of one of two spaces and leaves: what was mapped is reused after that.
#[test]
fn a_reclaim_comes_after_the_last_use_of_who_has_left() {
    check(3, || {
        let machine = online_machine::<2>();
        let (first, second) = (space(&machine), space(&machine));
        let done = flag();
        let user = {
            let first = first.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &first);
                if walk(machine, 0) == OLD {
                    machine.platform().device_page.walk();
                }
                machine.switch_away(&first, NO_USER);
                idle_until(machine, || done.load(Ordering::Acquire));
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        let mut reclaim = Reclaim::new(&**machine, ());
        // Last: no barrier follows.
        reclaim.add(&second);
        reclaim.add(&first);
        reclaim.submit().wait();
        machine.platform().device_page.reuse();
        tell(&machine, 1, done);
        user.join().unwrap();
    });
}

/// What one CPU has flushed another one frees: the last use comes before.
#[test]
fn who_waits_for_another_cpus_flush_comes_after_the_last_use() {
    check(2, || {
        let machine = online_machine::<3>();
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        let (done, joined) = (flag(), Arc::new(Event::new()));
        let user = {
            let (space, joined) = (space.clone(), joined.clone());
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &space);
                joined.set();
                if walk(machine, 0) == OLD {
                    machine.platform().device_page.walk();
                }
                idle_until(machine, || done.load(Ordering::Acquire));
                machine.switch_away(&space, NO_USER);
            })
        };
        joined.wait();
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        let pending = (machine.submit_flush(&*space, page(0), FreedTables::No)).hand_over();
        // SAFETY: it is waited for before the machine goes.
        let pending: reclaim::PendingFlush<'static, Model<3>> =
            unsafe { std::mem::transmute(pending) };
        let reaper = on_cpu(&machine, 2, move |machine| {
            pending.wait();
            machine.platform().device_page.reuse();
        });
        // The answer wakes whoever waits on this CPU.
        machine.platform().relax();
        wake(&machine, 2);
        reaper.join().unwrap();
        tell(&machine, 1, done);
        user.join().unwrap();
    });
}
