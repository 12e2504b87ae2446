//! Behaviour of CPUs that go offline and come back, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use puppet::{machine, online, tagged};
use shootdown::*;

fn cpu(number: u32) -> CpuId {
    CpuId::new(number)
}

#[test]
fn what_was_sent_before_runs_before_the_cpu_is_gone() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let machine = machine::<4>();
    for _ in 0..2 {
        machine.post(&CpuMask::only(cpu(1)), |_| {
            RUNS.fetch_add(1, Ordering::Relaxed);
        });
    }
    machine.platform().as_cpu(1, || machine.offline());
    assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    assert!(!machine.ready_cpus().contains(cpu(1)));
    assert!(
        machine
            .platform()
            .take_trace()
            .contains(&TraceEvent::Offline { cpu: cpu(1) })
    );
}

#[test]
fn a_cpu_that_is_gone_is_no_target() {
    let machine = machine::<4>();
    machine.platform().as_cpu(1, || machine.offline());
    machine.platform().take_sent();
    let refused = machine.call_one(cpu(1), &|_| unreachable!("it is gone"));
    assert_eq!(refused, Err(NotReady { cpu: cpu(1) }));
    machine.flush_kernel(FlushRange::pages(0, 1, PageSize::SIZE_4K));
    let reached: Vec<u32> = machine
        .platform()
        .take_sent()
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    assert_eq!(reached, [2, 3]);
}

/// All but one go; nobody is left to wait for.
#[test]
fn all_cpus_may_go_one_after_the_other() {
    let machine = machine::<4>();
    for number in 0..4 {
        machine.platform().as_cpu(number, || machine.offline());
    }
    assert!(machine.ready_cpus().is_empty());
}

/// What its tags held belongs to an earlier life.
#[test]
fn a_cpu_that_comes_back_keeps_no_tag() {
    let machine = online(tagged::<1>(8));
    let puppet = machine.platform();
    let space = AddressSpace::new(machine, Root(1));
    puppet.map_in(&space, 0, 10);
    machine.switch_to(None, &space);
    assert_eq!(puppet.access(0, 0), 10);
    machine.switch_away(&space, Root(0));
    machine.offline();
    // The hardware forgets generations, not translations: a flush in between is the host's to remember.
    machine.online();
    machine.switch_to(None, &space);
    let loads = puppet.take_loads();
    assert_eq!(loads.last().map(|load| load.3), Some(TagEntries::Drop));
    assert_eq!(machine.stats(cpu(0)).tags_kept, 0);
    machine.switch_away(&space, Root(0));
}

#[test]
fn a_cpu_that_came_back_is_a_target_again() {
    let machine = machine::<2>();
    let puppet = machine.platform();
    puppet.as_cpu(1, || machine.offline());
    puppet.map(0, 1);
    assert_eq!(puppet.access(1, 0), 1);
    puppet.as_cpu(1, || machine.online());
    puppet.map(0, 2);
    machine.flush_kernel(FlushRange::pages(0, 1, PageSize::SIZE_4K));
    assert_eq!(puppet.access(1, 0), 2);
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
}

/// The only other holder of a space goes offline while the initiator, who has seen it in the set, waits for a slot.
#[test]
fn a_cpu_that_leaves_while_the_initiator_waits_for_a_slot_is_not_waited_for() {
    let machine = machine::<2>();
    let puppet = machine.platform();
    let space: &'static AddressSpace<2> = Box::leak(Box::new(AddressSpace::new(machine, Root(1))));
    puppet.as_cpu(1, || machine.switch_to(None, space));
    let one_page = FlushRange::pages(1, 1, PageSize::SIZE_4K);
    let calls: Vec<_> = (0..3)
        .map(|_| machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::Done))
        .collect();
    let flush = machine.submit_flush(space, one_page, FreedTables::No);
    puppet.at_next_relax(move || {
        puppet.as_cpu(1, || {
            machine.switch_away(space, Root(0));
            machine.offline();
            // It is halted.
            puppet.set_irqs_off(true);
        });
    });
    machine.flush(space, one_page, FreedTables::No);
    assert_eq!(machine.stats(cpu(0)).slots_exhausted, 1);
    assert!(!machine.ready_cpus().contains(cpu(1)));
    assert!(flush.is_done() && calls.iter().all(CallTicket::is_done));
}

fn refuses(offline: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(offline)).is_err()
}

#[test]
fn misuse_is_refused() {
    let machine = machine::<2>();
    let puppet = machine.platform();
    let space = AddressSpace::new(machine, Root(1));
    machine.switch_to(None, &space);
    assert!(refuses(|| machine.offline()), "a space is loaded");
    machine.enter_lazy(&space, Root(0));
    assert!(refuses(|| machine.offline()), "lazily");
    machine.switch_away(&space, Root(0));
    puppet.set_irqs_off(false);
    puppet.as_cpu(1, || machine.offline());
    assert!(refuses(|| puppet.as_cpu(1, || machine.offline())), "twice");
    assert!(
        machine
            .call_one(cpu(0), &|_| assert!(refuses(|| machine.offline())))
            .is_ok(),
        "inside a called function"
    );
}
