//! loom models of barriers on other CPUs, and of functions that they run where they poll.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom_machine::*;
use shootdown::Cpus;
use shootdown::*;

type Space = AddressSpace<Cpus<2>>;

fn load(machine: &Machine<2>, space: &Space) {
    machine.switch_to(None, space);
}

fn stay_out(_: &Machine<2>, _: &Space) {}

/// A thread of the space on CPU 1 writes one word and reads another, without a barrier; one on CPU 0 does the converse with one on each side. CPU 1 may take
/// interrupts anywhere, and does before, between and behind what it is told to; `come` when CPU 0 may have begun.
fn one_of_two_threads_needs_no_barrier(
    make: fn() -> Arc<Machine<2>>,
    before: fn(&Machine<2>, &Space),
    come: fn(&Machine<2>, &Space),
    between: fn(&Machine<2>, &Space),
    resume: fn(&Machine<2>, &Space),
    leave: fn(&Machine<2>, &Space),
) {
    check(3, move || {
        let machine = make();
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER + 1)));
        let (quick, slow, done, ready) = (counter(), counter(), flag(), Arc::new(Event::new()));
        let thread = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 1, move |machine| {
                before(machine, &space);
                ready.set();
                take_interrupt(machine);
                come(machine, &space);
                quick.store(1, Ordering::Relaxed);
                between(machine, &space);
                take_interrupt(machine);
                resume(machine, &space);
                let seen = slow.load(Ordering::Relaxed);
                idle_until(machine, || done.load(Ordering::Acquire));
                leave(machine, &space);
                seen
            })
        };
        ready.wait();
        slow.store(1, Ordering::Relaxed);
        machine.control().barrier(&space).wait();
        let seen = quick.load(Ordering::Relaxed);
        tell(&machine, 1, done);
        assert!(
            thread.join().unwrap() + seen > 0,
            "each has missed the other"
        );
    });
}

fn leave(machine: &Machine<2>, space: &Space) {
    machine.switch_away(space, NO_USER);
}

#[test]
fn a_barrier_is_one_for_a_cpu_that_runs_the_space() {
    one_of_two_threads_needs_no_barrier(online_machine, load, stay_out, stay_out, stay_out, leave);
}

/// It comes to the space while it is looked for.
#[test]
fn a_barrier_is_one_for_a_cpu_that_comes() {
    one_of_two_threads_needs_no_barrier(online_machine, stay_out, load, stay_out, stay_out, leave);
}

#[test]
fn a_barrier_is_one_for_a_cpu_that_a_back_end_would_take() {
    let make = || guest(Hypervisor::TakesByCall);
    one_of_two_threads_needs_no_barrier(make, load, stay_out, stay_out, stay_out, leave);
}

#[test]
fn a_barrier_is_one_for_a_cpu_that_has_been_lazy() {
    let resume = |machine: &Machine<2>, space: &Space| machine.switch_to(Some(space), space);
    let be_lazy_again =
        |machine: &Machine<2>, space: &Space| machine.user_memory().enter_lazy(space, NO_USER);
    one_of_two_threads_needs_no_barrier(
        online_machine,
        load,
        stay_out,
        be_lazy_again,
        resume,
        leave,
    );
}

#[test]
fn a_barrier_is_one_for_a_cpu_that_has_been_elsewhere() {
    one_of_two_threads_needs_no_barrier(online_machine, load, stay_out, leave, load, leave);
}

/// Who has polled has issued its barrier, against a third CPU, too.
#[test]
fn an_answer_is_a_barrier_for_others() {
    check(2, || {
        let machine = online_machine::<3>();
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER + 1)));
        let (mine, its, done, ready) = (counter(), counter(), flag(), Arc::new(Event::new()));
        let third = on_cpu(&machine, 2, move |_| {
            its.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            mine.load(Ordering::Relaxed)
        });
        let thread = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &space);
                ready.set();
                mine.store(1, Ordering::Relaxed);
                let seen = machine.poll().then(|| its.load(Ordering::Relaxed));
                idle_until(machine, || done.load(Ordering::Acquire));
                machine.switch_away(&space, NO_USER);
                seen
            })
        };
        ready.wait();
        machine.control().barrier(&space).wait();
        tell(&machine, 1, done);
        let (seen, by_third) = (thread.join().unwrap(), third.join().unwrap());
        assert!(
            seen != Some(0) || by_third == 1,
            "each has missed the other"
        );
    });
}

/// The initiator goes on when the target has done it.
#[test]
fn instructions_are_fetched_anew_before_the_wait_is_over() {
    check(3, || {
        let machine = online_machine::<2>();
        let done = flag();
        let target = idler(&machine, 1, move || done.load(Ordering::Acquire));
        let all: CpuMask<Cpus<2>> = [cpu(0), cpu(1)].into_iter().collect();
        machine.control().serialise(&all).wait();
        let synchronised = &machine.platform().synchronised;
        for cpu in synchronised {
            assert_eq!(cpu.load(Ordering::Relaxed), 1);
        }
        tell(&machine, 1, done);
        target.join().unwrap();
    });
}

/// Each asks the other, which waits itself; what is lent is read before the wait is over.
#[test]
fn two_that_ask_each_other_are_answered() {
    two_wait_for_each_other(online_machine, |machine, target| {
        let lent = TablePage::new();
        // SAFETY: 1. it reads memory.
        unsafe { machine.control().ask(target, &|_| lent.walk()) }.unwrap();
        lent.reuse();
    });
}
