//! loom models of CPUs that have stopped for good.

#![cfg(loom)]

mod loom_machine;

use loom::sync::atomic::Ordering;
use loom_machine::*;
use shootdown::*;

/// CPU 2 has loaded a space and stopped. CPU 1 declares it lost while CPU 0 flushes, before the targets are found, or as they answer: nothing comes back that CPU 2 may walk.
#[test]
fn a_flush_gives_nothing_back_that_a_lost_cpu_may_walk() {
    check(3, || {
        let machine = machine::<DEADLY>();
        online_all(&machine, 3);
        // It cannot be dropped.
        let space: &'static _ = Box::leak(Box::new(AddressSpace::new(&machine, tables(2))));
        become_cpu(2);
        machine.switch_to(None, space);
        become_cpu(0);
        let (over, declared) = (flag(), flag());
        let other = on_cpu(&machine, 1, move |machine| {
            // SAFETY: 1. and 3. nobody is CPU 2 any more.
            _ = unsafe { machine.control().declare_lost(&CpuMask::only(cpu(2))) };
            tell(machine, 0, declared);
            idle_until(machine, || over.load(Ordering::Acquire));
        });
        // The first may take CPU 2 out of the set only if it is dead, not lost.
        for _ in 0..2 {
            let flush = machine.submit_flush(space, page(0), FreedTables::Yes);
            let is_held = flush.hold(()).try_wait().is_err();
            assert!(is_held, "given back");
        }
        idle_until(&machine, || declared.load(Ordering::Acquire));
        tell(&machine, 1, over);
        other.join().unwrap();
    });
}

/// CPU 2 has stopped. CPU 1 declares it dead while CPU 0 calls both, before the targets are named, or as they answer: the call returns, and has run on CPU 1. The next one finds
/// its slot free.
#[test]
fn a_call_returns_that_a_dead_cpu_does_not_answer() {
    check(3, || {
        let machine = machine::<DEADLY>();
        online_all(&machine, 3);
        become_cpu(0);
        let (over, declared) = (flag(), flag());
        let other = on_cpu(&machine, 1, move |machine| {
            // SAFETY: 1. to 3. nobody is CPU 2 any more.
            _ = unsafe { machine.control().declare_dead(&CpuMask::only(cpu(2))) };
            tell(machine, 0, declared);
            idle_until(machine, || over.load(Ordering::Acquire));
        });
        let ran = loom::sync::atomic::AtomicUsize::new(0);
        let both: CpuMask<_> = [cpu(1), cpu(2)].into_iter().collect();
        let reached = machine.call_many(&both, &|_| _ = ran.fetch_add(1, Ordering::Relaxed));
        assert_eq!(
            (reached, ran.load(Ordering::Relaxed)),
            (CpuMask::only(cpu(1)), 1)
        );
        idle_until(&machine, || declared.load(Ordering::Acquire));
        assert!(machine.call_one(cpu(2), &|_| ()).is_err());
        assert!(machine.control().is_settled(cpu(2)));
        tell(&machine, 1, over);
        other.join().unwrap();
    });
}

/// CPU 2 has called CPU 0 and stopped, and is declared dead while CPU 0 answers: the function runs once, and nobody uses what CPU 2 has lent when that is said to be settled.
#[test]
fn what_a_dead_cpu_has_asked_for_runs_once() {
    check(3, || {
        let machine = machine::<DEADLY>();
        online_all(&machine, 3);
        let ran: &'static _ = Box::leak(Box::new(loom::sync::atomic::AtomicUsize::new(0)));
        let count = move |_: CpuId| _ = ran.fetch_add(1, Ordering::Relaxed);
        become_cpu(2);
        core::mem::forget(machine.submit(&CpuMask::only(cpu(0)), count, calls::Wait::Done));
        become_cpu(0);
        let declared = flag();
        let other = on_cpu(&machine, 1, move |machine| {
            // SAFETY: 1. to 3. nobody is CPU 2 any more.
            _ = unsafe { machine.control().declare_dead(&CpuMask::only(cpu(2))) };
            while !machine.control().is_settled(cpu(2)) {
                loom::thread::yield_now();
            }
            assert_eq!(ran.load(Ordering::Relaxed), 1);
            tell(machine, 0, declared);
        });
        idle_until(&machine, || declared.load(Ordering::Acquire));
        other.join().unwrap();
    });
}
