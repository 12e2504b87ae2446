//! loom models of quiet CPUs: what passes them by, and how they make it good.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom_machine::*;
use shootdown::calls::CallData;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

type Pair = Machine<2>;

/// The running CPU leaves the kernel.
fn enter_quiet(machine: &Pair) {
    // SAFETY: 1. and 2. the model uses nothing of the kernel until it has come back.
    unsafe { machine.control().enter_quiet() };
}

/// Takes interrupts as a CPU in user mode, until CPU 0 is done.
fn idle(machine: &Pair, done: &AtomicBool) {
    idle_until(machine, || done.load(Ordering::Acquire));
}

/// CPU 0 makes its change as soon as CPU 1 is ready, which serves interrupts to the end when it has done its part.
fn race(
    change: fn(&Pair),
    cpu_1: impl Fn(&Pair, &Event, &AtomicBool) + Copy + Send + Sync + 'static,
) {
    check(4, move || {
        let machine = online_machine::<2>();
        let shared = Arc::new((Event::new(), AtomicBool::new(false)));
        let inside = shared.clone();
        let other = on_cpu(&machine, 1, move |machine| {
            cpu_1(machine, &inside.0, &inside.1)
        });
        shared.0.wait();
        change(&machine);
        tell(&machine, 1, &shared.1);
        other.join().unwrap();
    });
}

/// CPU 0 maps another frame at a page of the kernel.
fn remap(machine: &Pair) {
    machine.platform().table[0].store(NEW, Ordering::Relaxed);
    machine.flush(FlushScope::Kernel, page(0), FreedTables::No);
}

/// CPU 0 changes text.
fn patch(machine: &Pair) {
    machine.platform().table[0].store(NEW, Ordering::Relaxed);
    machine.control().serialise(&CpuMask::only(cpu(1))).wait();
}

/// Either the initiator finds it in the kernel, or it finds the count, and then the change.
#[test]
fn a_quiet_cpu_that_comes_back_misses_no_flush() {
    race(remap, |machine, ready, done| {
        walk(machine, 0);
        enter_quiet(machine);
        ready.set();
        assert!(machine.control().leave_quiet());
        let is_done = done.load(Ordering::Acquire);
        assert!(!is_done || walk(machine, 0) == NEW, "stale on the way in");
        idle(machine, done);
        assert_eq!(walk(machine, 0), NEW, "stale");
    });
}

/// One that finds the count early, and is quiet again before the initiator looks, has found the change as well: what it caches from then on is new.
#[test]
fn a_quiet_cpu_that_finds_the_count_finds_the_change() {
    race(remap, |machine, ready, done| {
        enter_quiet(machine);
        ready.set();
        machine.control().leave_quiet();
        enter_quiet(machine);
        // On speculation.
        walk(machine, 0);
        idle(machine, done);
        machine.control().leave_quiet();
        assert_eq!(walk(machine, 0), NEW, "stale");
    });
}

/// One that is passed by has used the frame for the last time (I5).
#[test]
fn a_quiet_cpu_has_used_the_kernel_for_the_last_time() {
    let change = |machine: &Pair| {
        remap(machine);
        machine.platform().table_page.reuse();
    };
    race(change, |machine, ready, done| {
        enter_quiet(machine);
        machine.control().leave_quiet();
        ready.set();
        if walk(machine, 0) == OLD {
            machine.platform().table_page.walk();
        }
        enter_quiet(machine);
        idle(machine, done);
        machine.control().leave_quiet();
        assert_eq!(walk(machine, 0), NEW, "stale");
    });
}

/// Text that was changed is fetched anew, and seen.
#[test]
fn a_quiet_cpu_that_comes_back_fetches_what_was_changed() {
    race(patch, |machine, ready, done| {
        enter_quiet(machine);
        ready.set();
        machine.control().leave_quiet();
        let fetched = || machine.platform().synchronised[1].load(Ordering::Relaxed);
        idle(machine, done);
        assert!(fetched() >= 1, "not fetched");
        assert_eq!(walk(machine, 0), NEW, "fetched too early");
    });
}

/// The same for one that finds the count early, and is quiet again before the initiator looks.
#[test]
fn a_quiet_cpu_that_finds_the_count_fetches_the_change() {
    race(patch, |machine, ready, done| {
        let fetched = || machine.platform().synchronised[1].load(Ordering::Relaxed);
        let before = fetched();
        enter_quiet(machine);
        ready.set();
        machine.control().leave_quiet();
        if fetched() > before {
            assert_eq!(walk(machine, 0), NEW, "fetched too early");
        }
        enter_quiet(machine);
        idle(machine, done);
    });
}

/// Data that were posted without an interrupt run when it is in the kernel again.
#[test]
fn a_quiet_cpu_that_comes_back_runs_what_was_posted() {
    check(4, || {
        let machine = online_machine::<2>();
        let (ready, ran) = (Arc::new(Event::new()), counter());
        let data: &'static _ = Box::leak(Box::new(CallData::new(move |_: CpuId| {
            ran.fetch_add(1, Ordering::Relaxed);
        })));
        let inside = ready.clone();
        let other = on_cpu(&machine, 1, move |machine| {
            enter_quiet(machine);
            inside.set();
            machine.control().leave_quiet();
            idle_until(machine, || ran.load(Ordering::Relaxed) == 1);
        });
        ready.wait();
        assert_eq!(machine.control().post_deferrable(cpu(1), data), Ok(()));
        // It may have been about to look.
        wake(&machine, 1);
        other.join().unwrap();
    });
}

/// A kick that passes it by: what it did before is seen, and it sees what was written before.
#[test]
fn a_kick_passes_a_quiet_cpu_that_has_passed() {
    check(4, || {
        let machine = online_machine::<2>();
        let words: &'static [AtomicU64; 2] =
            Box::leak(Box::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let (ready, done) = (Arc::new(Event::new()), flag());
        let inside = ready.clone();
        let other = on_cpu(&machine, 1, move |machine| {
            enter_quiet(machine);
            machine.control().leave_quiet();
            inside.set();
            // A stretch with interrupts off.
            let seen = words[0].load(Ordering::Relaxed);
            words[1].store(1 + seen, Ordering::Relaxed);
            enter_quiet(machine);
            machine.control().leave_quiet();
            // The next one.
            let seen = words[0].load(Ordering::Relaxed);
            words[1].store(3 + seen, Ordering::Relaxed);
            idle_until(machine, || done.load(Ordering::Acquire));
        });
        ready.wait();
        words[0].store(1, Ordering::Relaxed);
        machine.control().kick(&CpuMask::only(cpu(1))).wait();
        let found = words[1].load(Ordering::Relaxed);
        assert!(found != 0, "its stretch is not over");
        tell(&machine, 1, done);
        other.join().unwrap();
        assert!(words[1].load(Ordering::Relaxed) >= 3);
        // Where the first stretch was seen only, the second has seen the word.
        assert!(
            found >= 3 || words[1].load(Ordering::Relaxed) == 4,
            "{found}"
        );
    });
}
