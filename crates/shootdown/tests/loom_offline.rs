//! loom models of CPUs that come and go: I8.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom_machine::*;
use shootdown::*;

const NEW: u64 = 1;

fn page() -> FlushRange {
    FlushRange::pages(0, 1, PageSize::SIZE_4K)
}

/// A call that finds the CPU online runs there, once, before it is gone; one that does not, says so (I8).
#[test]
fn a_call_to_a_cpu_that_leaves_is_run_or_refused() {
    a_call_meets_a_cpu_that_leaves(online_machine, 4);
}

/// The same for a call that nobody waits for: it is not left behind in the inbox.
#[test]
fn a_post_to_a_cpu_that_leaves_is_run_before_it_is_gone() {
    check(4, || {
        let machine = machine::<2>();
        online_all(&machine, 2);
        let gone = Arc::new(AtomicBool::new(false));
        let runs: Arc<AtomicU64> = Arc::new(AtomicU64::new(0));
        let leaver = departing(&machine, &gone, |_| ());
        let counter = Arc::into_raw(runs).expose_provenance();
        let sent = machine.post(&CpuMask::only(CpuId::new(1)), move |_| {
            let counter = std::ptr::with_exposed_provenance::<AtomicU64>(counter);
            // SAFETY: the model gives it back after the CPU that runs this has ended.
            unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
        });
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
        // SAFETY: from `into_raw` above, and no function is left that uses it.
        let runs =
            unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<AtomicU64>(counter)) };
        assert_eq!(runs.load(Ordering::Relaxed), u64::from(!sent.is_empty()));
    });
}

/// Two CPUs that leave at once wait for each other without hanging.
#[test]
fn two_cpus_leave_at_once() {
    check(4, || {
        let machine = machine::<2>();
        online_all(&machine, 2);
        let gone = Arc::new(AtomicBool::new(false));
        let leaver = departing(&machine, &gone, |_| ());
        machine.offline();
        leaver.join().unwrap();
        assert!(machine.ready_cpus().is_empty());
    });
}

/// A CPU that leaves and comes back is reached by a flush of the kernel's part, or comes back after the change.
#[test]
fn a_cpu_that_comes_back_misses_no_flush() {
    check(3, || {
        let machine = machine::<2>();
        online_all(&machine, 2);
        let gone = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicBool::new(false));
        let leaver = {
            let done = done.clone();
            departing(&machine, &gone, move |machine| {
                walk(machine, 0);
                machine.online();
                idle_until(machine, || done.load(Ordering::Acquire));
                assert_eq!(walk(machine, 0), NEW, "stale translation");
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush_kernel(page());
        done.store(true, Ordering::Release);
        wake(&machine, 1);
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
    });
}
