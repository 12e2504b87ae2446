//! Behaviour of the watchdog, on the puppet machine, whose clock ticks once a turn.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{CallData, Wait};
use shootdown::watch::Stall;
use shootdown::watch::*;
use shootdown::*;

/// A stall is looked for every 256 turns.
const LOOK_NS: u64 = 256;

/// Does `what` when some CPU has relaxed so often.
fn after_turns(puppet: &'static Puppet, turns: u64, what: impl FnOnce() + Send + 'static) {
    puppet.at_next_relax(move || match turns {
        0 => what(),
        _ => after_turns(puppet, turns - 1, what),
    });
}

#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_cpu_with_interrupts_off_is_named() {
    let (machine, puppet) = with_puppet::<4>();
    // What it has done is over.
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::No);
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    puppet.at_stall(|puppet| puppet.hear_again(1));
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 1);
    let stall = stalls[0];
    assert_eq!(
        (stall.initiator, stall.target, stall.others),
        (cpu(0), cpu(1), 0)
    );
    assert_eq!(stall.doing, Activity::None);
    let Activity::Function(name) = stall.wanted else {
        panic!("{:?}", stall.wanted);
    };
    assert!(
        name.contains("a_cpu_with_interrupts_off_is_named"),
        "{name}"
    );
    assert!((1000..1000 + 2 * LOOK_NS).contains(&stall.waited_ns));
    let text = stall.to_string();
    assert!(
        text.starts_with(&format!("cpu0 has waited 1 us for cpu1 to run {name}, "))
            && text.ends_with("(polls run no functions), halted, or an interrupt got lost"),
        "{text}"
    );
    puppet.deafen(1);
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    let text = puppet.stalls.take()[0].to_string();
    assert!(
        text.ends_with(" to flush, which runs nothing for the engine: interrupts off without polling, halted, or an interrupt got lost"),
        "{text}"
    );
}

/// CPU 1 runs a function that goes on and on, which CPU 0 asked for, or which it has posted to itself; CPU 2 has to wait until it looks at its inbox.
#[test]
fn a_function_that_does_not_return_is_named() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.at_stall(|puppet| puppet.interrupt_now(1));
    let stuck = move |_| {
        puppet.as_cpu(2, || {
            machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes)
        })
    };
    assert_eq!(machine.call_one(cpu(1), &stuck), Ok(()));
    puppet.at_stall(|puppet| puppet.interrupt_now(1));
    puppet.as_cpu(1, || {
        machine.try_post(&CpuMask::only(cpu(1)), stuck).unwrap();
    });
    assert!(puppet.as_cpu(3, || puppet.deliver(1)));
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 2);
    for stall in stalls {
        assert_eq!((stall.initiator, stall.target), (cpu(2), cpu(1)));
        assert_eq!(stall.wanted, Activity::Flush);
        let Activity::Function(doing) = stall.doing else {
            panic!("{:?}", stall.doing);
        };
        assert!(
            stall
                .to_string()
                .ends_with(&format!(" to flush, which is running {doing}"))
        );
        assert!(
            doing.contains("a_function_that_does_not_return_is_named"),
            "{doing}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn the_report_counts_the_others() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    puppet.deafen(3);
    puppet.at_stall(|puppet| {
        puppet.hear_again(1);
        puppet.hear_again(3);
    });
    machine.call_many(CallTargets::Online, &|_| ());
    let stalls = puppet.stalls.take();
    assert_eq!((stalls[0].target, stalls[0].others), (cpu(1), 1));
    assert!(
        stalls[0]
            .to_string()
            .contains(" for cpu1 and 1 more to run ")
    );
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn reports_come_less_and_less_often_and_the_wait_goes_on() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    after_turns(puppet, 10_000, || puppet.hear_again(1));
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
    let waited_ns: Vec<u64> = puppet
        .stalls
        .take()
        .iter()
        .map(|stall| stall.waited_ns)
        .collect();
    assert_eq!(waited_ns.len(), 4, "{waited_ns:?}");
    for (report, waited_ns) in waited_ns.into_iter().enumerate() {
        let due_ns = 1000 << report;
        assert!((due_ns..due_ns + 2 * LOOK_NS).contains(&waited_ns));
    }
}

#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_lost_interrupt_is_sent_again_once() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    let ticket = machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::Done);
    puppet.lose_interrupt(1);
    ticket.wait();
    assert_eq!(machine.watch().stats(cpu(0)).ipis_resent, 1);
    assert_eq!(puppet.stalls.take().len(), 1);
}

#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_wait_for_a_slot_is_watched_too() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    puppet.at_stall(|puppet| puppet.hear_again(1));
    for _ in 0..4 {
        _ = machine.submit(&CpuMask::only(cpu(1)), |_| (), Wait::None);
    }
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 1);
    assert_eq!((stalls[0].initiator, stalls[0].target), (cpu(0), cpu(1)));
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn at_the_start_nothing_is_reported() {
    let (machine, puppet) = with_puppet::<2>();
    puppet.deafen(1);
    after_turns(puppet, 10_000, || puppet.hear_again(1));
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
    assert!(puppet.stalls.take().is_empty());
    assert_eq!(machine.watch().stats(cpu(0)).ipis_resent, 0);
}

/// A platform that goes on refusing an interrupt is reported as well; the interrupt is sent in the end.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn an_interrupt_that_is_refused_again_and_again_is_reported() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    puppet.refuse.store(2000, Relaxed);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    let stalls = puppet.stalls.take();
    assert_eq!((stalls[0].initiator, stalls[0].target), (cpu(0), cpu(1)));
    assert_eq!(
        machine.watch().stats(cpu(0)).ipis_refused,
        1999,
        "one was the watchdog's"
    );
    assert_eq!(puppet.sent.take(), [(0, 1)]);
}

/// A platform that refuses an interrupt for call data again and again.
#[test]
fn a_refused_interrupt_for_call_data_is_reported() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    puppet.refuse.store(2000, Relaxed);
    machine.post_data(cpu(1), &DATA).unwrap();
    let stall = puppet.stalls.take()[0];
    assert_eq!((stall.initiator, stall.target), (cpu(0), cpu(1)));
    assert_eq!(stall.wanted, Activity::None);
    assert_eq!(puppet.sent.take(), [(0, 1)]);
}

/// An interrupt to the CPU itself is not waited for: looks ask again, and report it.
#[test]
fn a_refused_interrupt_to_itself_is_reported() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(1000);
    puppet.skipped_ns.store(5000, Relaxed);
    // An interrupt that came while its own part ran has left a function alone.
    let own = move |_| {
        let me = CpuMask::only(cpu(0));
        puppet.as_cpu(1, || machine.try_post(&me, |_| ()).unwrap());
        puppet.interrupt_now(0);
        *puppet.refuse_to.lock().unwrap() = (0, 5);
    };
    machine.call_one(cpu(0), &own).unwrap();
    for looks in 1..=4 {
        puppet.skipped_ns.fetch_add(500, Relaxed);
        machine.watch().look();
        assert_eq!(machine.watch().stats(cpu(0)).ipis_refused, looks + 1);
    }
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 2, "each 1000 ns");
    let text = stalls[0].to_string();
    assert_eq!(stalls[0].found_by, FoundBy::Look);
    assert!(
        text.contains("from cpu0, whose interrupt the platform refuses to send"),
        "{text}"
    );
    puppet.lose_interrupt(0);
    machine.watch().look();
    assert!(puppet.deliver(0), "sent in the end");
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 2);
}

#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn without_a_limit_nothing_is_reported() {
    let (machine, puppet) = with_puppet::<2>();
    machine.watch().set_stall_ns(0);
    puppet.deafen(1);
    after_turns(puppet, 2 * LOOK_NS, move || {
        let long = 2 * DEFAULT_STALL_NS as usize;
        puppet.skipped_ns.fetch_add(long, Relaxed);
        after_turns(puppet, 2 * LOOK_NS, || puppet.hear_again(1));
    });
    assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
    assert!(puppet.stalls.take().is_empty());
}

/// Sets of more than 64 CPUs have several words.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn the_lowest_of_all_words_is_named() {
    let (machine, puppet) = with_puppet::<192>();
    machine.watch().set_stall_ns(1000);
    for number in [70, 140] {
        puppet.deafen(number);
    }
    puppet.at_stall(|puppet| {
        [70, 140]
            .into_iter()
            .for_each(|number| puppet.hear_again(number))
    });
    machine.call_many(&mask([3, 70, 140]), &|_| ());
    let stall = puppet.stalls.take()[0];
    assert_eq!((stall.target, stall.others), (cpu(70), 1));
}

/// CPU 0 has announced another request in the ring, which only CPU 5 has still to serve.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn the_report_is_about_the_own_announcement() {
    let (machine, puppet) = with_puppet::<16>();
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    machine.watch().set_stall_ns(1000);
    puppet.deafen(5);
    puppet.deafen(6);
    puppet.at_stall(|puppet| {
        [5, 6]
            .into_iter()
            .for_each(|number| puppet.hear_again(number))
    });
    let other = machine.submit(&mask([5]), |_| (), Wait::Done);
    puppet.as_cpu(1, || machine.call_many(&mask([5, 6]), &|_| ()));
    let stall = puppet.stalls.take()[0];
    assert_eq!(
        (stall.initiator, stall.target, stall.others),
        (cpu(1), cpu(5), 1)
    );
    other.wait();
}

/// All that have not answered are interrupted again, and with each report.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn every_lost_interrupt_is_sent_again_with_each_report() {
    for broadcasts_from in [0, 1] {
        let (machine, puppet) = with_puppet::<128>();
        machine.set_policy(Policy::BEST.with_broadcast_from(broadcasts_from));
        machine.watch().set_stall_ns(1000);
        let targets = mask([1, 2, 70]);
        let ticket = machine.submit(&targets, |_| (), Wait::Done);
        targets
            .iter()
            .for_each(|cpu| puppet.lose_interrupt(cpu.as_u32()));
        // The second one to CPU 2 gets lost as well.
        puppet.at_stall(|puppet| puppet.lose_interrupt(2));
        after_turns(puppet, 1500, || puppet.at_stall(|_| ()));
        ticket.wait();
        assert_eq!(machine.watch().stats(cpu(0)).ipis_resent, 4);
        let stalls = puppet.stalls.take();
        let named = |stall: &Stall| (stall.target.as_u32(), stall.others);
        assert!(stalls.iter().map(named).eq([(1, 2), (2, 0)]), "{stalls:?}");
    }
}

/// Its initiator has posted, or does not come back from the platform's `send_ipi`: nobody waits for it in the engine.
#[test]
fn a_request_that_nobody_waits_for_is_reported_by_looks() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    machine.try_post(&CpuMask::only(cpu(1)), |_| ()).unwrap();
    puppet.lose_interrupt(1);
    // From CPU 1 on, one at a time.
    (0..4).for_each(|_| look_later(machine, 2, 100));
    look_later(machine, 2, 1500);
    assert!(puppet.stalls.take().is_empty(), "its waiter had the time");
    look_later(machine, 2, 1000);
    let stall = puppet.stalls.take()[0];
    assert_eq!((stall.initiator, stall.target), (cpu(0), cpu(1)));
    assert_eq!(
        (stall.found_by, stall.doing),
        (FoundBy::Look, Activity::None)
    );
    let text = stall.to_string();
    assert!(
        text.starts_with("cpu0 waits nowhere in the engine (it has gone on, or is inside send_ipi or on_stall), and has had no answer for 2 us from cpu1 to run "),
        "{text}"
    );
    assert!(puppet.is_interrupted(1), "a lost interrupt is sent again");
    look_later(machine, 2, 1000);
    assert!(puppet.stalls.take().is_empty(), "after twice as long");
    // It goes on, and all three look: one of them reports it, each time.
    for _ in 0..30 {
        look_later(machine, 0, 1000);
        look_later(machine, 2, 0);
        look_later(machine, 3, 0);
    }
    assert_eq!(puppet.stalls.take().len(), 6);
    puppet.hear_again(1);
    assert!(puppet.deliver(1));
    (0..8).for_each(|_| look_later(machine, 2, 5000));
    assert!(puppet.stalls.take().is_empty(), "it is complete");
}

/// A wait looks after its request itself.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_request_that_somebody_waits_for_is_left_to_the_wait() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    fn look_often(machine: &'static puppet::Machine<4>, left: u32) {
        let puppet = machine.platform().0;
        puppet.at_next_relax(move || {
            look_later(machine, 2, 0);
            match left {
                0 => puppet.hear_again(1),
                _ => look_often(machine, left - 1),
            }
        });
    }
    look_often(machine, 20_000);
    machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 5);
    let is_of_the_wait = |stall: &Stall| stall.found_by == FoundBy::Waiter;
    assert!(stalls.iter().all(is_of_the_wait), "{stalls:?}");
}

/// CPU 1 answers nothing, and the interrupt to CPU 2 is lost: whose request ends first nobody knows.
#[test]
fn a_wait_for_a_slot_interrupts_the_targets_of_all_requests_again() {
    static REPORTS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    let held: Vec<_> = [1, 1, 1, 2]
        .map(|target| machine.control().kick(&CpuMask::only(cpu(target))))
        .into();
    puppet.lose_interrupt(2);
    puppet.at_stall(|puppet| {
        REPORTS.add();
        if REPORTS.get() == 8 {
            puppet.hear_again(1);
        }
    });
    machine.control().kick(&CpuMask::only(cpu(3))).wait();
    assert_eq!(REPORTS.get(), 1);
    assert!(held[3].is_done() && !held[0].is_done());
    assert_eq!(puppet.stalls.take()[0].target, cpu(1));
    puppet.hear_again(1);
}

/// CPU 0 polls inside a function, for so many ns.
fn poll_for(machine: &'static puppet::Machine<4>, turns: u64) {
    for _ in 0..turns {
        machine.poll();
        machine.platform().skipped_ns.fetch_add(1, Relaxed);
    }
}

/// Every CPU is inside a function that waits for another: nobody waits in the engine.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_function_that_polls_for_long_is_named() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    let spin = |_: CpuId| poll_for(machine, 9000);
    machine.call_one(cpu(0), &spin).unwrap();
    let stalls = puppet.stalls.take();
    let waited: Vec<_> = stalls.iter().map(|stall| stall.waited_ns).collect();
    assert_eq!(
        waited.len(),
        4,
        "after 1000, 2000, 4000, 8000 ns: {waited:?}"
    );
    for (waited_ns, due_ns) in waited.into_iter().zip([1000, 2000, 4000, 8000]) {
        assert!((due_ns..due_ns + LOOK_NS).contains(&waited_ns));
    }
    let stall = stalls[0];
    assert_eq!((stall.initiator, stall.target), (cpu(0), cpu(0)));
    assert_eq!(stall.found_by, FoundBy::Inside);
    let Activity::Function(name) = stall.doing else {
        panic!("{:?}", stall.doing);
    };
    assert!(name.contains("a_function_that_polls_for_long_is_named"));
    let text = stall.to_string();
    assert_eq!(
        text,
        format!(
            "cpu0 has been inside {name} for 1 us, and polls or takes interrupts: what it waits for does not come"
        )
    );
}

/// Whatever the order of functions, and also where one is called again and again.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn functions_that_end_are_not_named() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    let spin = |_: CpuId| poll_for(machine, 900);
    let other = |_: CpuId| poll_for(machine, 700);
    for _ in 0..20 {
        machine.call_one(cpu(0), &spin).unwrap();
        machine.call_one(cpu(0), &spin).unwrap();
        machine.call_one(cpu(0), &other).unwrap();
        // Outside a function nothing is looked for.
        poll_for(machine, 3000);
    }
    assert!(puppet.stalls.take().is_empty());
}

/// It has interrupts on, and does not poll.
#[test]
fn a_function_is_named_by_the_tick_that_interrupts_it() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    let spin = |_: CpuId| {
        for _ in 0..10 {
            look_later(machine, 0, 500);
        }
    };
    machine.call_one(cpu(0), &spin).unwrap();
    let stalls = puppet.stalls.take();
    let is_inside = |stall: &Stall| stall.found_by == FoundBy::Inside && stall.target == cpu(0);
    assert_eq!(stalls.len(), 3, "after 1000, 2000 and 4000 ns");
    assert!(stalls.iter().all(is_inside), "{stalls:?}");
    for _ in 0..10 {
        look_later(machine, 0, 500);
    }
    assert!(puppet.stalls.take().is_empty(), "it has ended");
}

/// The wait says so, and the function does not say it again.
#[test]
#[cfg_attr(miri, ignore = "many turns, nothing unsafe")]
fn a_function_that_waits_for_a_flush_is_named_once() {
    let (machine, puppet) = with_puppet::<4>();
    machine.watch().set_stall_ns(1000);
    puppet.deafen(1);
    puppet.at_stall(|puppet| puppet.hear_again(1));
    let flush = |_: CpuId| machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::Yes);
    machine.call_one(cpu(0), &flush).unwrap();
    let stalls = puppet.stalls.take();
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    assert_eq!(stalls[0].found_by, FoundBy::Waiter);
}
