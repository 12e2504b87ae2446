//! What a task holds while it waits (T3): nothing. It may be preempted, others on its CPU may call meanwhile, and it may
//! go on elsewhere.

mod puppet;

use shootdown::Cpus;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use puppet::*;
use shootdown::calls::Wait;
use shootdown::*;

/// Every operation that waits for CPU 1, which must be asked before it answers.
const WAITS: [fn(&'static Machine<4>, &AddressSpace<Cpus<4>>); 6] = [
    |machine, _| machine.call_one(cpu(1), &|_| ()).unwrap(),
    |machine, _| drop(machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::Done)),
    |machine, space| machine.flush(space, pages(1, 1), FreedTables::No),
    |machine, space| machine.flush(space, pages(1, 1), FreedTables::Yes),
    |machine, _| {
        machine.flush(
            FlushScope::Kernel,
            pages(puppet::GLOBAL, 1),
            FreedTables::Yes,
        )
    },
    |machine, space| {
        let mut batch = FlushBatch::<u32, 1>::new(space);
        batch.page(puppet::PAGE, PageSize::SIZE_4K, 7).unwrap();
        assert!(machine.submit_batch(space, batch).wait().eq([7]));
    },
];

/// How many of the waits the host could have preempted, at their first turn.
fn preemptible_waits(policy: Policy) -> usize {
    static SEEN: Count = Count::new();
    static PREEMPTIBLE: AtomicUsize = AtomicUsize::new(0);
    let machine = machine::<4>();
    machine.set_policy(policy);
    let space = space_on(machine, 2);
    let puppet = machine.platform().0;
    SEEN.take();
    PREEMPTIBLE.store(0, Relaxed);
    for wait in WAITS {
        puppet.at_next_relax(move || {
            SEEN.add();
            PREEMPTIBLE.fetch_add(usize::from(puppet.is_preemptible()), Relaxed);
        });
        wait(machine, &space);
        assert!(puppet.is_preemptible(), "something is held afterwards");
    }
    assert_eq!(SEEN.get() as usize, WAITS.len(), "each of them waited");
    PREEMPTIBLE.load(Relaxed)
}

#[test]
fn who_waits_may_be_preempted_where_the_policy_says() {
    // In one test, because the counts are shared.
    assert_eq!(preemptible_waits(Policy::PUBLISHED), WAITS.len());
    assert_eq!(preemptible_waits(Policy::BEST), WAITS.len());
    // Tickets of calls are their holder's affair.
    assert_eq!(preemptible_waits(Policy::BEFORE), 1);
    // Its flushes of this CPU come after the wait, so only calls may be preempted.
    let calls = Policy::BEFORE.with_preemptible_waits(true);
    assert_eq!(preemptible_waits(calls), 2);
    let pinned = Policy::BEST.with_preemptible_waits(false);
    assert_eq!(preemptible_waits(pinned), 1);
}

#[test]
fn a_waiter_goes_on_on_another_cpu() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    let puppet = machine.platform().0;
    for wait in WAITS {
        puppet.at_next_relax(move || puppet.migrate(3));
        wait(machine, &space);
        assert_eq!(Seat::<4>(puppet).current_cpu(), cpu(3));
        puppet.migrate(0);
    }
    let [here, there] = [0, 3].map(|number| machine.watch().stats(cpu(number)));
    assert_eq!(here.waits_finished, 0);
    assert_eq!(there.waits_finished, WAITS.len() as u64);
}

/// A task may be moved just after it has asked where it is: each CPU flushes all the same.
#[test]
fn a_task_that_is_moved_flushes_where_it_was_too() {
    let (machine, puppet) = with_puppet::<4>();
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        machine.set_policy(policy);
        let space = Space::new(machine, 1);
        puppet.map_in(space.root(), 0, 10);
        for number in [0, 3] {
            puppet.as_cpu(number, || machine.switch_to(None, &space));
            puppet.access(number, 0);
        }
        for (frame, freed) in [(11, FreedTables::No), (12, FreedTables::Yes)] {
            puppet.map_in(space.root(), 0, frame);
            *puppet.moves_to.lock().unwrap() = Some(3);
            machine.flush(&space, pages(0, 1), freed);
            *puppet.moves_to.lock().unwrap() = None;
            let seen = [0, 3].map(|number| puppet.access(number, 0));
            assert_eq!(seen, [frame; 2], "{policy:?}");
            puppet.migrate(0);
        }
        for number in [0, 3] {
            puppet.as_cpu(number, || machine.switch_away(&space, kernel_tables(0)));
        }
    }
}

#[test]
fn no_task_waits_for_the_call_of_another_on_its_cpu() {
    let machine = machine::<4>();
    let space = space_on(machine, 3);
    let puppet = machine.platform().0;
    puppet.deafen(3);
    let first = machine.submit(&CpuMask::only(cpu(3)), |_| (), Wait::Done);
    // That task is preempted; another one calls and flushes CPUs that answer.
    for _ in 0..10 {
        machine.call_one(cpu(1), &|_| ()).unwrap();
        machine.flush(&space, pages(1, 1), FreedTables::No);
        machine.flush(&space, pages(1, 1), FreedTables::Yes);
    }
    assert!(!first.is_done());
    assert_eq!(machine.watch().stats(cpu(0)).waits_finished, 30);
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 0);
    puppet.hear_again(3);
    drop(first);
}

#[test]
fn a_task_that_finds_all_slots_taken_may_leave_for_a_cpu_that_has_one() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(1);
    while machine.try_post(&CpuMask::only(cpu(1)), |_| ()).is_ok() {}
    puppet.at_next_relax(move || puppet.migrate(3));
    machine.call_one(cpu(2), &|_| ()).unwrap();
    assert_eq!(Seat::<4>(puppet).current_cpu(), cpu(3));
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 1);
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 0);
    puppet.migrate(0);
    puppet.hear_again(1);
    puppet.deliver_all();
}
