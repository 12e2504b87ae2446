//! Behaviour of barriers on other CPUs, and of functions that they run where they poll. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use puppet::*;
use shootdown::calls::NotReady;
use shootdown::control::{Absent, Rendezvous};
use shootdown::watch::Activity;
use shootdown::*;

fn ask<F: Fn(CpuId) + Sync>(machine: &Machine<4>, target: u32, function: &F) {
    // SAFETY: 1. the functions here count.
    let asked = unsafe { machine.control().ask(cpu(target), function) };
    asked.unwrap();
}

/// Also where a back end would flush them; and not those that issue a barrier before they use the space again.
#[test]
fn a_barrier_reaches_who_runs_the_space() {
    let machine = online(tagged::<4>(4));
    let puppet = machine.platform().0;
    puppet.reaches(EVERYBODY);
    machine.set_policy(Policy::BEST.with_deferral(true));
    let (space, other) = (space_on(machine, 4), Space::new(machine, 2));
    let reached = || {
        puppet.sent.take();
        let ticket = puppet.as_cpu(0, || machine.control().barrier(&space));
        let mut reached: Vec<_> = puppet.sent.take().iter().map(|sent| sent.1).collect();
        reached.sort_unstable();
        puppet.deliver_all();
        assert!(ticket.is_done());
        reached
    };
    assert_eq!(reached(), [1, 2, 3]);
    puppet.as_cpu(1, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    assert_eq!(reached(), [2, 3]);
    puppet.as_cpu(1, || machine.switch_to(Some(&space), &space));
    puppet.as_cpu(2, || machine.switch_to(Some(&space), &other));
    assert_eq!(reached(), [1, 3]);
    // Its thread is in the kernel, and uses memory there.
    assert!(puppet.as_cpu(3, || machine.user_memory().defer_flushes(&space)));
    assert_eq!(reached(), [1, 3]);
    assert!(puppet.asked.take().is_empty());
    let foreign = AddressSpace::new(powered_off::<4>(), tables(1));
    assert!(refuses(|| machine.control().barrier(&foreign)));
}

/// By the interrupt, by a poll, in a wait, and on the initiator itself; a kick asks for none.
#[test]
fn instructions_are_fetched_anew_wherever_a_target_answers() {
    let (machine, puppet) = with_puppet::<4>();
    machine.control().kick(&mask([1]));
    puppet.deliver_all();
    assert!(puppet.synchronised.take().is_empty());
    let ticket = machine.control().serialise(&mask([0, 1, 2, 3]));
    assert_eq!(puppet.synchronised.take(), [0]);
    assert!(puppet.as_cpu(1, || machine.poll()));
    assert!(puppet.deliver(2));
    assert!(!ticket.is_done());
    puppet.as_cpu(3, || {
        machine.control().kick(&mask([1])).wait();
    });
    assert!(ticket.is_done());
    assert_eq!(puppet.synchronised.take(), [1, 2, 3]);
}

/// Under a lock that it spins for, inside a called function, and in a section of a walk: it answers where flushes are answered, and calls wait.
#[test]
fn who_polls_is_asked() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deliver_on_relax.store(false, Relaxed);
    let calls = AtomicU32::new(0);
    let submit = || machine.submit(&mask([1]), |_| (), shootdown::calls::Wait::Done);
    let call = puppet.as_cpu(2, submit);
    let polls = move || puppet.as_cpu(1, || _ = machine.poll());
    puppet.at_next_relax(polls);
    ask(machine, 1, &|cpu| {
        assert_eq!(cpu.as_u32(), 1);
        calls.fetch_add(1, Relaxed);
    });
    assert_eq!(calls.load(Relaxed), 1);
    assert!(!call.is_done(), "a poll runs no function");
    puppet.deliver_all();
    assert!(call.is_done());
    let space = space_on(machine, 2);
    let section = puppet.as_cpu(1, || machine.user_memory().walk(&space));
    puppet.at_next_relax(polls);
    ask(machine, 1, &|_| _ = calls.fetch_add(1, Relaxed));
    assert_eq!(calls.load(Relaxed), 2);
    puppet.as_cpu(1, || drop(section));
}

/// What runs meanwhile goes on as it was, and its name is back.
#[test]
fn a_called_function_is_asked_and_asks() {
    let (machine, puppet) = with_puppet::<4>();
    let calls = AtomicU32::new(0);
    puppet.at_next_relax(move || puppet.as_cpu(1, || machine.handle_ipi()));
    let nested = |_| {
        let count = |_| _ = calls.fetch_add(1, Relaxed);
        ask(machine, 1, &count);
        // Inside a function still: it may not call and wait.
        assert!(refuses(|| machine.call_one(cpu(0), &|_| ())));
        assert!(refuses(|| machine.call_one(cpu(2), &|_| ())));
    };
    machine.call_one(cpu(1), &nested).unwrap();
    assert_eq!(calls.load(Relaxed), 1);
    machine.call_one(cpu(0), &|_| ()).unwrap();
}

#[test]
fn a_cpu_asks_itself_and_nobody_that_is_not_online() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.as_cpu(3, || {
        puppet.set_irqs_off(true);
        machine.offline();
        puppet.set_irqs_off(false);
    });
    puppet.sent.take();
    let calls = AtomicU32::new(0);
    ask(machine, 0, &|_| _ = calls.fetch_add(1, Relaxed));
    for target in [3, 4] {
        let count = |_: CpuId| _ = calls.fetch_add(1, Relaxed);
        // SAFETY: 1. it counts.
        let asked = unsafe { machine.control().ask(cpu(target), &count) };
        assert_eq!(asked, Err(NotReady { cpu: cpu(target) }));
    }
    assert_eq!(calls.load(Relaxed), 1);
    assert!(puppet.sent.take().is_empty());
}

/// All slots for functions are busy with calls that do not begin.
#[test]
fn it_needs_no_slot_of_functions() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deliver_on_relax.store(false, Relaxed);
    let submit = |_| machine.submit(&mask([2]), |_: CpuId| (), shootdown::calls::Wait::Done);
    let busy: Vec<_> = (0..3).map(submit).collect();
    let calls = AtomicU32::new(0);
    puppet.at_next_relax(move || puppet.as_cpu(1, || _ = machine.poll()));
    let for_me = puppet.as_cpu(3, || {
        machine.submit(&mask([0]), |_: CpuId| (), shootdown::calls::Wait::Done)
    });
    ask(machine, 1, &|_| _ = calls.fetch_add(1, Relaxed));
    assert_eq!(calls.load(Relaxed), 1);
    assert!(!for_me.is_done(), "its wait runs no function");
    puppet.deliver_all();
    assert!(busy.iter().all(shootdown::calls::CallTicket::is_done));
}

#[test]
fn a_report_names_the_function() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deliver_on_relax.store(false, Relaxed);
    machine.watch().set_stall_ns(1);
    static ASKED: AtomicBool = AtomicBool::new(false);
    static SEEN: Mutex<Vec<Activity>> = Mutex::new(Vec::new());
    fn asked(_: CpuId) {
        ASKED.store(true, Relaxed);
    }
    puppet.at_stall(|puppet| {
        SEEN.lock().unwrap().push(puppet.stalls.take()[0].wanted);
        puppet.interrupt_now(1);
    });
    ask(machine, 1, &asked);
    assert!(ASKED.load(Relaxed));
    let seen = SEEN.lock().unwrap();
    assert!(
        matches!(seen[..], [Activity::Function(name)] if name.ends_with("asked")),
        "{seen:?}"
    );
}

/// Of all four; how often it ran, and where it went wrong.
fn meet(machine: &Machine<4>, how: Rendezvous) -> (u32, Result<(), Absent<Cpus<4>>>) {
    let ran = AtomicU32::new(0);
    let count = |_: CpuId, _: u32| _ = ran.fetch_add(1, Relaxed);
    // SAFETY: 1. it counts.
    let met = unsafe {
        machine
            .control()
            .rendezvous(how, &mask([0, 1, 2, 3]), &count)
    };
    (ran.into_inner(), met)
}

/// Who comes later finds that it is over, or another one, and goes on.
#[test]
fn a_rendezvous_to_which_not_all_come_is_given_up() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deliver_on_relax.store(false, Relaxed);
    for _ in 0..2 {
        let (ran, met) = meet(machine, Rendezvous::within(100).with_steps(3));
        let absent = Absent {
            cpus: mask([1, 2, 3]),
        };
        assert_eq!((ran, met), (0, Err(absent.clone())));
        assert_eq!(
            absent.to_string(),
            "these CPUs did not come to a rendezvous: {1, 2, 3}"
        );
    }
    // Each time, whoever else has interrupted them.
    assert_eq!(puppet.sent.take().len(), 6);
    puppet.deliver_all();
    puppet.as_cpu(1, || assert!(!machine.control().arrive()));
    machine.call_one(cpu(0), &|_| ()).unwrap();
}

/// Also on a CPU that is not online; others are refused in the wrong places.
#[test]
fn alone_it_runs_each_step_once() {
    let machine = powered_off::<4>();
    assert_eq!(
        meet(machine, Rendezvous::within(0).with_steps(64)),
        (64, Ok(()))
    );
    machine.online();
    assert_eq!(meet(machine, Rendezvous::within(0)), (1, Ok(())));
    assert!(refuses(|| Rendezvous::within(0).with_steps(65)));
    assert!(refuses(|| Rendezvous::within(0).with_steps(0)));
    let inside = |_| assert!(refuses(|| meet(machine, Rendezvous::within(0))));
    machine.call_one(cpu(0), &inside).unwrap();
    let space = Space::new(machine, 1);
    let section = machine.user_memory().walk(&space);
    assert!(refuses(|| meet(machine, Rendezvous::within(0))));
    drop(section);
    assert_eq!(meet(machine, Rendezvous::within(0)), (1, Ok(())));
}

/// Threads come by themselves, and an interrupt brings nobody.
#[test]
fn nobody_is_interrupted_for_a_rendezvous_of_threads() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.at_next_relax(move || {
        puppet.as_cpu(1, || assert!(!machine.poll()));
    });
    let (ran, met) = meet(machine, Rendezvous::within(100).of_threads());
    assert_eq!((ran, met.unwrap_err().cpus), (0, mask([1, 2, 3])));
    assert!(puppet.sent.take().is_empty());
}
