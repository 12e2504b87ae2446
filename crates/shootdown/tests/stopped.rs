//! CPUs that stop between two accesses of the engine, as a hypervisor or an SMI can stop them anywhere: found by a review from
//! outside. Needs feature `sim`, whose hook sees every access.

#![cfg(all(not(loom), feature = "sim"))]

mod puppet;

use shootdown::Cpus;
use std::sync::atomic::{AtomicU64 as CoreU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use puppet::*;
use shootdown::sim::{self, Memory, Operation, Plain};
use shootdown::*;

type When = fn(usize, Operation, Ordering) -> bool;
type Hook = Box<dyn FnOnce() + Send>;

/// What happens before the first access that the function names.
static HOOK: Mutex<Option<(When, Hook)>> = Mutex::new(None);
/// The word of groups outside of their rings in the slot that was published last with several groups.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);
static WATCHED: AtomicUsize = AtomicUsize::new(0);
static ONE: Mutex<()> = Mutex::new(());
static MEMORY: Memory = Memory {
    access,
    fence: std::sync::atomic::fence,
    plain: |_: usize, _: Plain| (),
};

fn access(cell: &CoreU64, operation: Operation, order: Ordering) -> u64 {
    let address = std::ptr::from_ref(cell).addr();
    if operation == Operation::Store(0) && order == Ordering::Release {
        OUTSIDE.store(address, Ordering::Relaxed);
    }
    let mut hook = HOOK.lock().unwrap();
    let is_due = |(when, _): &mut (When, Hook)| when(address, operation, order);
    let due = hook.take_if(is_due);
    drop(hook);
    if let Some((_, hook)) = due {
        hook();
    }
    operation.apply(cell, order)
}

/// The hook is used by one test at a time.
fn begin() -> MutexGuard<'static, ()> {
    let guard = ONE.lock().unwrap_or_else(|broken| broken.into_inner());
    sim::install(&MEMORY);
    *HOOK.lock().unwrap() = None;
    guard
}

fn stop_at(when: When, hook: impl FnOnce() + Send + 'static) {
    *HOOK.lock().unwrap() = Some((when, Box::new(hook)));
}

fn was_reached() -> bool {
    HOOK.lock().unwrap().is_none()
}

const LOUD: Policy = Policy::BEST.with_broadcast_from(1);
const QUIET: Policy = Policy::BEST.with_broadcast_from(0);

/// CPU 1 has acknowledged the request in slot 0 of CPU 0, but its bit is in the pending set still: CPU 2 of the same leaf has not.
/// It comes for another slot of CPU 0 and is stopped between two reads of slot 0, in which meanwhile `next` publishes a request
/// for CPU 2, which finds the ring full.
fn stop_in_slot_0(
    machine: &'static Machine<128>,
    puppet: &'static Puppet,
    next: impl FnOnce() + Send + 'static,
) {
    WATCHED.store(OUTSIDE.load(Ordering::Relaxed), Ordering::Relaxed);
    assert!(puppet.deliver(1), "CPU 1 acknowledges in its leaf");
    machine.set_policy(QUIET);
    puppet.as_cpu(0, || machine.try_post(&mask([1]), |_| ()).unwrap());
    puppet.flushes.take();
    let is_watched = |address, operation, _| {
        operation == Operation::Load && address == WATCHED.load(Ordering::Relaxed)
    };
    stop_at(is_watched, move || {
        machine.set_policy(LOUD);
        assert!(puppet.deliver(2), "the leaf is complete");
        for initiator in [10, 11, 12] {
            puppet.as_cpu(initiator, || {
                for _ in 0..3 {
                    machine.try_post(&mask([3]), |_| ()).unwrap();
                }
            });
        }
        puppet.as_cpu(0, next);
    });
    assert!(puppet.deliver(1));
    assert!(was_reached());
}

#[test]
fn a_cpu_that_is_not_named_runs_no_function() {
    static RAN_ON: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    let _one = begin();
    let (machine, puppet) = with_puppet::<128>();
    puppet.deliver_on_relax.store(false, Ordering::Relaxed);
    machine.set_policy(LOUD);
    puppet.as_cpu(0, || machine.try_post(&mask([1, 2]), |_| ()).unwrap());
    stop_in_slot_0(machine, puppet, move || {
        machine
            .try_post(&mask([2]), |me| RAN_ON.lock().unwrap().push(me.as_u32()))
            .unwrap();
    });
    while puppet.deliver(2) {}
    assert_eq!(*RAN_ON.lock().unwrap(), [2]);
}

/// The same with a flush first and a call second.
#[test]
fn what_a_function_captured_is_not_taken_for_a_flush() {
    let _one = begin();
    let (machine, puppet) = with_puppet::<128>();
    puppet.deliver_on_relax.store(false, Ordering::Relaxed);
    let space: &'static AddressSpace<Cpus<128>> = Box::leak(Box::new(space_on(machine, 3)));
    machine.set_policy(LOUD);
    let page = pages(0, 1);
    puppet.as_cpu(0, || {
        std::mem::forget(machine.submit_flush(space, page, FreedTables::Yes));
    });
    stop_in_slot_0(machine, puppet, move || {
        // As a request, it names a kernel page.
        let captured = [0u64, 0, 1 << 52 | 0x1234, 0, 0];
        machine
            .try_post(&mask([2]), move |_| {
                std::hint::black_box(captured);
            })
            .unwrap();
    });
    let flushes = puppet.flushes.take();
    assert!(flushes.iter().all(|(cpu, _)| *cpu != 1), "{flushes:?}");
}
