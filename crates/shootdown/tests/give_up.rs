//! Behaviour of calls that are given up, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{CallTicket, SlotsBusy, SubmitRefused, Wait};
use shootdown::control::Unserved;
use shootdown::*;

fn give_up<const N: usize>(ticket: CallTicket<'_, Seat<N>>)
where
    Cpus<N>: Capacity,
{
    assert!(ticket.give_up().is_ok(), "it has begun");
}

fn not_given_up<const N: usize>(ticket: CallTicket<'_, Seat<N>>) -> CallTicket<'_, Seat<N>>
where
    Cpus<N>: Capacity,
{
    ticket.give_up().expect_err("it has begun")
}

/// Three slots for functions, on a CPU whose target keeps interrupts off.
#[test]
fn three_forgotten_tickets_stop_no_later_call() {
    static RUNS: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
    fn run<const NUMBER: usize>(_: CpuId) {
        RUNS[NUMBER].fetch_add(1, Relaxed);
    }
    let (machine, puppet) = with_puppet::<4>();
    let control = machine.control();
    puppet.deafen(1);
    let tickets = [run::<0>, run::<1>, run::<2>].map(|run| control.try_submit(cpu(1), run));
    assert_eq!(
        control.try_submit(cpu(1), run::<3>).map(drop),
        Err(SubmitRefused::Busy)
    );
    assert_eq!(machine.try_post(&mask([2]), |_| ()), Err(SlotsBusy));
    for ticket in tickets {
        let ticket = ticket.unwrap();
        assert!(!ticket.is_done());
        assert_eq!(ticket.targets(), mask([1]));
        give_up(ticket);
    }
    machine.call_one(cpu(2), &|_| ()).unwrap();
    let ticket = control.try_submit(cpu(1), run::<3>).unwrap();
    puppet.hear_again(1);
    assert!(puppet.deliver(1));
    assert!(ticket.is_done());
    ticket.wait();
    assert_eq!(RUNS.each_ref().map(|runs| runs.load(Relaxed)), [0, 0, 0, 1]);
}

/// On a CPU whose bit is in another word than the caller's, and never by a ring.
#[test]
fn a_call_to_a_cpu_of_another_group_is_given_up() {
    let (machine, puppet) = with_puppet::<128>();
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    puppet.deafen(100);
    for _ in 0..8 {
        let ticket = machine
            .control()
            .try_submit(cpu(100), |_| panic!("given up"));
        give_up(ticket.unwrap());
    }
    assert_eq!(machine.watch().total_stats().broadcasts_published, 0);
    puppet.hear_again(100);
    puppet.deliver_all();
    let ticket = machine.control().try_submit(cpu(100), |_| ()).unwrap();
    puppet.deliver_all();
    assert!(ticket.is_done());
}

#[test]
fn one_that_has_begun_is_waited_for() {
    static TICKET: Mutex<Option<CallTicket<'static, Seat<4>>>> = Mutex::new(None);
    static KEPT: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    let ticket = machine.control().try_submit(cpu(1), |_| {
        let ticket = TICKET.lock().unwrap().take().unwrap();
        let kept = not_given_up(ticket);
        *TICKET.lock().unwrap() = Some(kept);
        KEPT.add();
    });
    *TICKET.lock().unwrap() = Some(ticket.unwrap());
    assert!(puppet.deliver(1));
    assert_eq!(KEPT.get(), 1);
    let ticket = TICKET.lock().unwrap().take().unwrap();
    let ticket = not_given_up(ticket);
    assert!(ticket.is_done());
    // Its slot is another one's.
    let later = machine.control().try_submit(cpu(1), |_| ()).unwrap();
    let ticket = not_given_up(ticket);
    assert_eq!(ticket.wait(), mask([1]));
    assert!(!later.is_done());
    give_up(later);
}

#[test]
fn what_was_not_submitted_so_is_not_given_up() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(1);
    for wait in [Wait::Received, Wait::Done] {
        let ticket = machine.submit(&mask([1]), |_| (), wait);
        let ticket = not_given_up(ticket);
        puppet.hear_again(1);
        ticket.wait();
        puppet.deafen(1);
    }
    let posted = machine.submit(&mask([1]), |_| (), Wait::None);
    assert!(posted.give_up().is_err(), "there is nothing to wait for");
    let nobody = machine.submit(&CpuMask::EMPTY, |_| (), Wait::Done);
    assert!(nobody.give_up().is_err(), "it is done");
}

#[test]
fn who_is_refused_is_told_why() {
    let (machine, puppet) = with_puppet::<4>();
    let control = machine.control();
    let refused = |target| {
        let refused = control.try_submit(cpu(target), |_| ()).map(drop);
        refused.unwrap_err()
    };
    assert_eq!(refused(0), SubmitRefused::ThisCpu);
    assert_eq!(refused(400), SubmitRefused::NotReady);
    puppet.as_cpu(3, || machine.offline());
    assert_eq!(refused(3), SubmitRefused::NotReady);
    puppet.deafen(1);
    let tickets = [(); 3].map(|()| control.try_submit(cpu(1), |_| ()).unwrap());
    assert_eq!(refused(2), SubmitRefused::Busy);
    assert_eq!(refused(0), SubmitRefused::ThisCpu);
    for ticket in tickets {
        give_up(ticket);
    }
}

/// It may be sent where nothing may wait, and is waited for elsewhere.
#[test]
fn a_called_function_submits_and_gives_up() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(2);
    machine
        .call_one(cpu(1), &|_| {
            let ticket = machine.control().try_submit(cpu(2), |_| RUNS.add());
            give_up(ticket.unwrap());
            let ticket = machine.control().try_submit(cpu(2), |_| RUNS.add());
            std::mem::forget(ticket);
        })
        .unwrap();
    puppet.hear_again(2);
    puppet.deliver_all();
    assert_eq!(RUNS.get(), 1);
}

/// Where functions are slow they wait for their turn, and are given up there; those of the same initiator behind them run.
#[test]
fn one_that_waits_for_its_turn_is_given_up() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    let slow = move |_: CpuId| _ = puppet.skipped_ns.fetch_add(100_000, Relaxed);
    puppet.as_cpu(2, || machine.try_post(&mask([1]), slow).unwrap());
    puppet.deliver(1);
    // Now functions wait for their turn. That of CPU 3 is the oldest, and as it runs CPU 0 gives up.
    let given_up = &*Box::leak(Box::new(Mutex::new(None)));
    let gives_up = move |_: CpuId| {
        let ticket: CallTicket<'static, Seat<4>> = given_up.lock().unwrap().take().unwrap();
        puppet.as_cpu(0, || give_up(ticket));
    };
    puppet.as_cpu(3, || machine.try_post(&mask([1]), gives_up).unwrap());
    puppet.skipped_ns.fetch_add(100, Relaxed);
    let ticket = machine.control().try_submit(cpu(1), |_| panic!("given up"));
    *given_up.lock().unwrap() = Some(ticket.unwrap());
    puppet.skipped_ns.fetch_add(100, Relaxed);
    let later = machine
        .control()
        .try_submit(cpu(1), |_| RUNS.add())
        .unwrap();
    puppet.deliver(1);
    puppet.deliver(1);
    assert!(later.is_done());
    assert_eq!(RUNS.get(), 1);
}

/// Its target dies: the wait ends, nothing has run, and there is nothing to give up.
#[test]
fn a_call_to_a_cpu_that_dies_is_over() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(3);
    let submit = || machine.control().try_submit(cpu(3), |_| ()).unwrap();
    let (waited_for, given_up) = (submit(), submit());
    give_up(given_up);
    // SAFETY: 1. to 3. the puppet does not go on as this CPU.
    let unserved = unsafe { machine.control().declare_dead(&mask([3])) };
    assert_eq!(unserved, Unserved { calls: 1, data: 0 });
    let ticket = not_given_up(waited_for);
    assert!(ticket.is_done());
    ticket.wait();
}

/// The ticket is on another CPU, and its initiator dies: the call goes on, or is given up.
#[test]
fn a_call_of_a_cpu_that_dies_is_given_up() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(1);
    let submit = || {
        machine
            .control()
            .try_submit(cpu(1), |_| RUNS.add())
            .unwrap()
    };
    let (goes_on, given_up) = puppet.as_cpu(3, || (submit(), submit()));
    puppet.as_cpu(2, || give_up(given_up));
    puppet.hear_again(1);
    // SAFETY: 1. to 3. as above.
    unsafe { machine.control().declare_dead(&mask([3])) };
    puppet.deliver_all();
    assert!(goes_on.is_done());
    assert_eq!(RUNS.get(), 1);
    assert!(machine.control().is_settled(cpu(3)));
}
