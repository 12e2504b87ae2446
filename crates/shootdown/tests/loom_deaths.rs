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
