//! What looks of the timer's tick find, and a CPU that cannot interrupt itself. Written by a stranger. On the puppet machine.
#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::calls::{CallData, Wait};
use shootdown::watch::Stall;
use shootdown::watch::*;
use shootdown::*;

/// These CPUs' ticks, for many times as long as a report takes.
fn look_for_long(machine: &'static puppet::Machine<4>, numbers: &[u32]) {
    for _ in 0..100 {
        (numbers.iter()).for_each(|number| look_later(machine, *number, 5000));
    }
}

/// CPU 0 has posted to CPUs 1 and 2, which hear nothing.
fn two_posts_stuck() -> (&'static puppet::Machine<4>, &'static Puppet) {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    puppet.deafen(2);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    machine.try_post(&CpuMask::only(cpu(2)), |_| ()).unwrap();
    (machine, puppet)
}

/// All that have not answered are interrupted again with each report. The CPU whose interrupt was lost is the one that looks.
#[test]
fn a_look_sends_the_lost_interrupt_of_its_own_cpu_again() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    puppet.lose_interrupt(1);
    puppet.hear_again(1);
    // CPU 1's tick is the first that finds it.
    (0..8).for_each(|_| look_later(machine, 1, 1000));
    assert!(!puppet.stalls.take().is_empty(), "it is reported");
    puppet.deliver_all();
    assert_eq!(
        machine.watch().total_stats().functions_run,
        1,
        "the post never runs though it was reported: {:?}",
        puppet.stalls.take()
    );
}

/// A second post behind one that is stuck.
#[test]
fn a_look_finds_the_second_post_too() {
    let (machine, puppet) = two_posts_stuck();
    puppet.lose_interrupt(2);
    puppet.hear_again(2);
    look_for_long(machine, &[0, 2, 3]);
    let stalls = puppet.stalls.take();
    assert!(stalls.iter().any(|stall| stall.target == cpu(1)));
    assert!(
        stalls.iter().any(|stall| stall.target == cpu(2)),
        "CPU 2 hears, lost one interrupt, and nobody says so"
    );
}

/// The same where the request in front is one for which somebody holds a ticket: every CPU's ticks keep to it.
#[test]
fn a_look_is_not_kept_by_a_request_that_is_stuck_for_good() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    let ticket = puppet.as_cpu(2, || machine.control().kick(&CpuMask::only(cpu(1))));
    puppet.as_cpu(3, || {
        machine.try_post(&CpuMask::only(cpu(0)), |_| ()).unwrap()
    });
    puppet.lose_interrupt(0);
    look_for_long(machine, &[0, 2, 3]);
    let _ = ticket;
    let stalls = puppet.stalls.take();
    assert!(
        stalls.iter().any(|stall| stall.target == cpu(0)),
        "{} reports, none of CPU 0, which hears and has lost one",
        stalls.len()
    );
}

/// `post_data` is a post: nobody waits for it either, and a second one sends no interrupt.
#[test]
fn a_look_finds_posted_call_data() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    static MORE: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    machine.post_data(cpu(1), &DATA).unwrap();
    puppet.lose_interrupt(1);
    puppet.hear_again(1);
    machine.post_data(cpu(1), &MORE).unwrap();
    look_for_long(machine, &[0, 1, 2, 3]);
    puppet.deliver_all();
    assert!(
        !puppet.stalls.take().is_empty() || machine.watch().total_stats().functions_run > 0,
        "neither run nor reported, for ever"
    );
}

/// A wait for a slot reports the request that is stuck, gets another slot, and goes.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_look_goes_on_where_a_wait_for_a_slot_has_left() {
    let (machine, puppet) = two_posts_stuck();
    machine.try_post(&CpuMask::only(cpu(2)), |_| ()).unwrap();
    puppet.at_stall(|puppet| puppet.hear_again(2));
    _ = machine.submit(&CpuMask::only(cpu(3)), |_| (), Wait::None);
    puppet.at_stall(|_| ());
    let reported: Vec<Stall> = puppet.stalls.take();
    assert_eq!(reported[0].found_by, FoundBy::Waiter);
    puppet.lose_interrupt(1);
    puppet.hear_again(1);
    look_for_long(machine, &[0, 2, 3]);
    assert!(
        puppet.is_interrupted(1) || machine.watch().stats(cpu(1)).functions_run == 1,
        "nobody waits for it, and its interrupt is never sent again: {:?}",
        puppet.stalls.take()
    );
}

/// The post has run in the next interrupt; nothing is owed.
#[test]
fn a_self_interrupt_that_nobody_needs_any_more_is_no_stall() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    *puppet.refuse_to.lock().unwrap() = (0, usize::MAX);
    machine.try_post(&CpuMask::only(cpu(0)), |_| ()).unwrap();
    puppet.interrupt_now(0);
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 1, "it has run");
    puppet.stalls.take();
    for _ in 0..20 {
        look_later(machine, 0, 5000);
    }
    let stalls = puppet.stalls.take();
    assert!(
        stalls.is_empty(),
        "{} reports, e.g. {}",
        stalls.len(),
        stalls[0]
    );
}

/// The CPU whose look has reported a post leaves; the others say nothing, and send nothing, for ever.
#[test]
fn a_look_goes_on_where_the_one_that_reported_has_left() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    while puppet.stalls.take().is_empty() {
        look_later(machine, 3, 1000);
    }
    // The interrupt that this report has sent again is lost too, and CPU 3 goes offline.
    puppet.lose_interrupt(1);
    puppet.hear_again(1);
    puppet.as_cpu(3, || {
        puppet.set_irqs_off(true);
        // CPU 1 answers the kicks of the departure by polls, as in a spin loop.
        fn poll_often(machine: &'static puppet::Machine<4>, left: u32) {
            let puppet = machine.platform().0;
            puppet.at_next_relax(move || {
                puppet.lose_interrupt(1);
                puppet.as_cpu(1, || machine.poll());
                if left > 0 {
                    poll_often(machine, left - 1);
                }
            });
        }
        poll_often(machine, 20);
        puppet.deafen(1);
        machine.offline();
        puppet.hear_again(1);
    });
    puppet.at_next_relax(|| ());
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 0);
    puppet.stalls.take();
    puppet.lose_interrupt(1);
    look_for_long(machine, &[0, 2]);
    let ran = machine.watch().stats(cpu(1)).functions_run;
    assert!(
        ran == 1 || puppet.is_interrupted(1) || !puppet.stalls.take().is_empty(),
        "silent for ever"
    );
}

/// What runs posts to its own CPU again, into the place that it came from.
#[test]
fn what_is_posted_to_oneself_runs_once_and_in_order() {
    static ORDER: std::sync::Mutex<Vec<u32>> = std::sync::Mutex::new(Vec::new());
    let (machine, puppet) = with_puppet::<2>();
    puppet.set_irqs_off(true);
    let note = |number| ORDER.lock().unwrap().push(number);
    let me = CpuMask::only(cpu(0));
    machine
        .try_post(&me, move |_| {
            note(1);
            let sent = machine.try_post(&CpuMask::only(cpu(0)), move |_| note(4));
            assert!(sent.is_ok());
        })
        .unwrap();
    machine.try_post(&me, move |_| note(2)).unwrap();
    machine.try_post(&me, move |_| note(3)).unwrap();
    puppet.set_irqs_off(false);
    while puppet.deliver(0) {}
    assert_eq!(*ORDER.lock().unwrap(), [1, 2, 3, 4]);
}

/// Each poll asks for the interrupt that was refused, also behind one that has served another CPU.
#[test]
fn a_refused_interrupt_to_oneself_is_asked_for_by_every_poll() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.set_irqs_off(true);
    as_one_that_cannot_interrupt_itself(puppet, || {
        machine.try_post(&CpuMask::only(cpu(0)), |_| ()).unwrap();
    });
    let flush = puppet.as_cpu(1, || {
        machine.submit_flush(FlushScope::Kernel, pages(0, 1), FreedTables::No)
    });
    as_one_that_cannot_interrupt_itself(puppet, || assert!(machine.poll()));
    assert!(flush.is_done());
    puppet.lose_interrupt(0);
    machine.poll();
    assert!(puppet.is_interrupted(0), "it is asked for once more");
    puppet.set_irqs_off(false);
    assert!(puppet.deliver(0));
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 1);
}

/// A function posted to oneself inside `poll_idle` is work.
#[test]
fn an_own_post_in_poll_idle_is_work_and_runs() {
    let (machine, puppet) = with_puppet::<2>();
    *puppet.refuse_to.lock().unwrap() = (0, usize::MAX);
    machine.poll_idle(|polls| {
        machine.try_post(&CpuMask::only(cpu(0)), |_| ()).unwrap();
        assert!(polls.has_work());
    });
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 1);
}

/// CPU 0's controller cannot interrupt CPU 0: while it acts itself, and not while others do.
fn as_one_that_cannot_interrupt_itself<R>(puppet: &'static Puppet, body: impl FnOnce() -> R) -> R {
    *puppet.refuse_to.lock().unwrap() = (0, usize::MAX);
    let result = body();
    *puppet.refuse_to.lock().unwrap() = (0, 0);
    result
}

/// On CPU 0 interrupts are on, and its timer ticks look; no other interrupt comes.
fn tick_often(machine: &'static puppet::Machine<2>) {
    let puppet = machine.platform().0;
    as_one_that_cannot_interrupt_itself(puppet, || {
        for _ in 0..100 {
            machine.watch().look();
            machine.poll();
            puppet.deliver(0);
        }
    });
}

/// A controller that cannot interrupt its own CPU. What CPU 0 has posted to itself waits for the next interrupt, and that is CPU 1's: if it sends one.
#[test]
fn another_cpus_post_is_interrupted_for_behind_an_own_one() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<2>();
    as_one_that_cannot_interrupt_itself(puppet, || {
        machine.try_post(&CpuMask::only(cpu(0)), |_| ()).unwrap();
    });
    puppet
        .as_cpu(1, || machine.post_data(cpu(0), &DATA))
        .unwrap();
    tick_often(machine);
    assert_eq!(
        puppet.sent.take(),
        [(1, 0)],
        "an interrupt for CPU 1's data"
    );
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 2);
}

/// The same, `post_data` to oneself first.
#[test]
fn another_cpus_post_is_interrupted_for_behind_own_call_data() {
    static OWN: CallData<fn(CpuId)> = CallData::new(|_| ());
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<2>();
    as_one_that_cannot_interrupt_itself(puppet, || machine.post_data(cpu(0), &OWN).unwrap());
    puppet
        .as_cpu(1, || machine.post_data(cpu(0), &DATA))
        .unwrap();
    tick_often(machine);
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 2);
}
