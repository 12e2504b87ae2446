//! loom models of CPUs that come and go: I8.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom_machine::*;
use shootdown::calls::{CallData, Wait};
use shootdown::*;

const NEW: u64 = 1;

type Leaver = loom::thread::JoinHandle<()>;

/// A machine whose CPU 1 goes offline; the model is CPU `me`, which is not online.
fn cpu_1_leaves<const N: usize>(me: u32) -> (Arc<Machine<N>>, Arc<AtomicBool>, Leaver)
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    become_cpu(1);
    machine.online();
    become_cpu(me);
    let gone = Arc::new(AtomicBool::new(false));
    let leaver = departing(&machine, &gone, move |machine| wake(machine, me));
    (machine, gone, leaver)
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
        let machine = online_machine::<2>();
        let gone = Arc::new(AtomicBool::new(false));
        let runs: Arc<AtomicU64> = Arc::new(AtomicU64::new(0));
        let leaver = departing(&machine, &gone, |_| ());
        let counter = Arc::into_raw(runs).expose_provenance();
        let sent = machine
            .submit(
                &CpuMask::only(cpu(1)),
                move |_| {
                    let counter = std::ptr::with_exposed_provenance::<AtomicU64>(counter);
                    // SAFETY: the model gives it back after the CPU that runs this has ended.
                    unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
                },
                Wait::None,
            )
            .targets();
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
        // SAFETY: from `into_raw` above, and no function is left that uses it.
        let runs =
            unsafe { Arc::from_raw(std::ptr::with_exposed_provenance::<AtomicU64>(counter)) };
        assert_eq!(runs.load(Ordering::Relaxed), u64::from(!sent.is_empty()));
    });
}

/// An initiator that is not online, because it comes up or has left, is not asked to answer by a CPU that leaves: its call is run
/// or refused all the same.
#[test]
fn a_call_of_a_cpu_that_is_not_online_is_run_or_refused() {
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    check(4, || {
        let (machine, _, leaver) = cpu_1_leaves::<2>(0);
        RUNS.store(0, std::sync::atomic::Ordering::Relaxed);
        let count = |_| {
            RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let ticket = machine.submit(&CpuMask::only(cpu(1)), count, Wait::Done);
        // It may be waiting until we have published.
        wake(&machine, 1);
        let sent = ticket.wait().len() as u64;
        assert_eq!(RUNS.load(std::sync::atomic::Ordering::Relaxed), sent);
        leaver.join().unwrap();
    });
}

/// The same for one that comes online meanwhile and is in another group: one of the two finds the other.
#[test]
fn a_call_of_a_cpu_that_comes_online_is_run_or_refused() {
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    check(3, || {
        let (machine, gone, leaver) = cpu_1_leaves::<5>(2);
        RUNS.store(0, std::sync::atomic::Ordering::Relaxed);
        machine.online();
        let sent = machine
            .submit(
                &CpuMask::only(cpu(1)),
                |_| {
                    RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                },
                Wait::None,
            )
            .targets();
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
        let runs = RUNS.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(runs, sent.len() as u64);
    });
}

/// Two CPUs that leave at once wait for each other without hanging.
#[test]
fn two_cpus_leave_at_once() {
    check(4, || {
        let machine = online_machine::<2>();
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
        let machine = online_machine::<2>();
        let gone = Arc::new(AtomicBool::new(false));
        let done = flag();
        let leaver = departing(&machine, &gone, move |machine| {
            walk(machine, 0);
            machine.online();
            idle_until(machine, || done.load(Ordering::Acquire));
            assert_eq!(walk(machine, 0), NEW, "stale translation");
        });
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(FlushScope::Kernel, page(0), FreedTables::Yes);
        tell(&machine, 1, done);
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
    });
}

/// What runs on a CPU that leaves reads the kernel's part as it is, also where the CPU runs it last of all.
#[test]
fn a_function_on_a_cpu_that_leaves_misses_no_flush() {
    check(3, || {
        let machine = online_machine::<2>();
        let gone = Arc::new(AtomicBool::new(false));
        let is_flushed = flag();
        let leaver = on_cpu(&machine, 1, {
            let gone = gone.clone();
            move |machine| {
                walk(machine, 0);
                machine.offline();
                tell(machine, 0, &gone);
            }
        });
        let lent = (&raw const *machine).expose_provenance();
        _ = machine.submit(
            &CpuMask::only(cpu(1)),
            move |_| {
                // SAFETY: the model keeps it until the CPU that runs this has ended.
                let machine = unsafe { &*std::ptr::with_exposed_provenance::<Machine<2>>(lent) };
                if is_flushed.load(Ordering::Acquire) {
                    assert_eq!(walk(machine, 0), NEW, "stale translation");
                }
            },
            Wait::None,
        );
        // It may answer the one that leaves before it flushes.
        machine.poll();
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(FlushScope::Kernel, page(0), FreedTables::No);
        is_flushed.store(true, Ordering::Release);
        idle_until(&machine, || gone.load(Ordering::Acquire));
        leaver.join().unwrap();
    });
}

/// The same for call data.
#[test]
fn data_of_a_cpu_that_is_not_online_run_or_are_refused() {
    check(4, || {
        let (machine, _, leaver) = cpu_1_leaves::<2>(0);
        let runs = counter();
        let data = Box::leak(Box::new(CallData::new(move |_| {
            runs.fetch_add(1, Ordering::Relaxed);
        })));
        let is_posted = machine.post_data(cpu(1), data).is_ok();
        wake(&machine, 1);
        leaver.join().unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), u64::from(is_posted));
    });
}

/// The same for a flush: its targets are those that are online when others cannot leave any more.
#[test]
fn a_flush_of_a_cpu_that_is_not_online_waits_for_no_cpu_that_is_gone() {
    check(4, || {
        let (machine, _, leaver) = cpu_1_leaves::<2>(0);
        let ticket = machine.submit_flush(FlushScope::Kernel, page(0), FreedTables::Yes);
        wake(&machine, 1);
        ticket.wait();
        leaver.join().unwrap();
    });
}
