//! Calls whose data the caller owns, calls that collect results, calls of any CPU, and kicks, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use shootdown::Cpus;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use puppet::*;
use shootdown::calls::{CallData, PostRefused};
use shootdown::*;

#[test]
fn any_number_of_call_data_is_posted_under_a_lock() {
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let (machine, puppet) = with_puppet::<2>();
    puppet.deliver_on_relax.store(false, Relaxed);
    puppet.set_irqs_off(true);
    for number in 0..10 {
        let note = move |me: CpuId| {
            assert_eq!(me, cpu(1));
            ORDER.lock().unwrap().push(number);
        };
        let data = Box::leak(Box::new(CallData::new(note)));
        assert_eq!(machine.post_data(cpu(1), data), Ok(()));
        assert!(data.is_posted());
        assert_eq!(machine.post_data(cpu(1), data), Err(PostRefused::Busy));
    }
    puppet.set_irqs_off(false);
    assert_eq!(puppet.sent.take(), [(0, 1)], "one interrupt for all");
    puppet.as_cpu(1, || assert!(!machine.poll(), "they are functions"));
    assert!(ORDER.lock().unwrap().is_empty());
    assert!(puppet.deliver(1));
    assert!(ORDER.lock().unwrap().iter().copied().eq(0..10));
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 10);
}

/// The function may post its own data again: it runs in the next interrupt.
#[test]
fn call_data_are_free_when_their_function_begins() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    puppet.deliver_on_relax.store(false, Relaxed);
    static AGAIN: CallData<fn(CpuId)> = CallData::new(|me| {
        RUNS.add();
        assert!(!AGAIN.is_posted(), "on {me}");
    });
    let own = Box::leak(Box::new(CallData::new(move |me| {
        RUNS.add();
        if RUNS.get() == 1 {
            machine.post_data(me, &AGAIN).unwrap();
        }
    })));
    machine.post_data(cpu(1), own).unwrap();
    // The responder holds its doorbell, and the data come when it has looked at its list.
    machine.try_post(&mask([1]), |_| ()).unwrap();
    for round in 1..=2 {
        assert!(puppet.deliver(1));
        assert_eq!(RUNS.get(), round);
    }
    assert!(!puppet.deliver(1));
}

/// However many there are, a flush waits for a few only.
#[test]
fn a_flush_does_not_wait_for_a_long_list_of_call_data() {
    static RUNS: Count = Count::new();
    static DONE_AT: AtomicU32 = AtomicU32::new(0);
    let (machine, puppet) = with_puppet::<3>();
    puppet.deliver_on_relax.store(false, Relaxed);
    let kick = &*Box::leak(Box::new(Mutex::new(None)));
    for _ in 0..20 {
        let slow = move |_| {
            RUNS.add();
            puppet.skipped_ns.fetch_add(5000, Relaxed);
            let mut kick = kick.lock().unwrap();
            match &*kick {
                None => *kick = Some(puppet.as_cpu(2, || machine.control().kick(&mask([1])))),
                Some(kick) if kick.is_done() => {
                    let _ = DONE_AT.compare_exchange(0, RUNS.get(), Relaxed, Relaxed);
                }
                Some(_) => {}
            }
        };
        machine
            .post_data(cpu(1), Box::leak(Box::new(CallData::new(slow))))
            .unwrap();
    }
    assert!(puppet.deliver(1));
    assert_eq!((RUNS.get(), DONE_AT.load(Relaxed)), (20, 3));
}

/// A controller that cannot interrupt its own CPU: nothing spins for it with interrupts off, and polls and looks ask again.
#[test]
fn what_a_cpu_posts_to_itself_waits_for_a_poll_if_its_interrupt_is_refused() {
    static RUNS: Count = Count::new();
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| RUNS.add());
    type Again = fn(&'static puppet::Machine<2>);
    let ways: [Again; 3] = [
        |machine| assert!(!machine.poll(), "no flush waits"),
        |machine| machine.watch().look(),
        |machine| machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::No),
    ];
    for again in ways {
        let (machine, puppet) = with_puppet::<2>();
        puppet.set_irqs_off(true);
        *puppet.refuse_to.lock().unwrap() = (0, 2);
        machine.post_data(cpu(0), &DATA).unwrap();
        assert_eq!(machine.watch().stats(cpu(0)).ipis_refused, 1);
        again(machine);
        assert_eq!(machine.watch().stats(cpu(0)).ipis_refused, 2);
        assert!(!puppet.is_interrupted(0));
        again(machine);
        assert!(puppet.is_interrupted(0));
        puppet.set_irqs_off(false);
        assert!(puppet.deliver(0));
        assert_eq!(RUNS.take(), 1);
    }
    // Any interrupt of another CPU's finds it, too.
    let (machine, puppet) = with_puppet::<2>();
    *puppet.refuse_to.lock().unwrap() = (0, 1);
    machine.post_data(cpu(0), &DATA).unwrap();
    puppet.interrupt_now(0);
    assert_eq!(RUNS.get(), 1);
}

/// A CPU that leaves runs what was posted to it; afterwards nothing is.
#[test]
fn call_data_are_not_left_behind() {
    static RUNS: Count = Count::new();
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| RUNS.add());
    let (machine, puppet) = with_puppet::<2>();
    machine.post_data(cpu(1), &DATA).unwrap();
    puppet.as_cpu(1, || machine.offline());
    assert_eq!(RUNS.get(), 1);
    let refused = machine.post_data(cpu(1), &DATA);
    assert_eq!(refused, Err(PostRefused::NotReady));
    assert_eq!(
        machine.post_data(cpu(2), &DATA),
        Err(PostRefused::NotReady),
        "there is no such CPU"
    );
    assert!(!DATA.is_posted());
    // One that has left, or is not online yet, posts as well.
    puppet
        .as_cpu(1, || machine.post_data(cpu(0), &DATA))
        .unwrap();
    puppet.as_cpu(1, || puppet.deliver(0));
    assert_eq!(RUNS.get(), 2);
}

#[test]
fn an_idle_cpu_that_polls_finds_call_data() {
    static RUNS: Count = Count::new();
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| RUNS.add());
    let (machine, puppet) = with_puppet::<2>();
    puppet.as_cpu(1, || {
        machine.poll_idle(|idle| {
            assert!(!idle.has_work());
            puppet
                .as_cpu(0, || machine.post_data(cpu(1), &DATA))
                .unwrap();
            assert!(idle.has_work());
        });
    });
    assert_eq!(RUNS.get(), 1);
    // It may wait for an interrupt, or a write to its doorbell, which the data are not.
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
}

#[test]
fn each_cpu_returns_a_result() {
    let machine = machine::<128>();
    let mut results = [const { None }; 101];
    let ran = machine.call_collect(
        &mask([0, 63, 64, 100, 101]),
        &|me| me.as_u32(),
        &mut results,
    );
    assert_eq!(
        ran,
        mask([0, 63, 64, 100]),
        "101 has no place for its result"
    );
    for (index, result) in results.into_iter().enumerate() {
        let is_called = ran.contains(cpu(index as u32));
        assert_eq!(result, is_called.then_some(index as u32));
    }
}

#[test]
fn any_cpu_is_this_one_or_the_next() {
    let machine = powered_off::<128>();
    let puppet = machine.platform().0;
    for number in [1, 60, 64, 90] {
        puppet.as_cpu(number, || machine.online());
    }
    let nearest = |me: u32, targets: CpuMask<Cpus<128>>| {
        let ran = Mutex::new(None);
        let chosen = puppet.as_cpu(me, || {
            machine.call_many(CallTargets::AnyOf(&targets), &|me| {
                *ran.lock().unwrap() = Some(me);
            })
        });
        assert!(chosen.iter().eq(*ran.lock().unwrap()));
        chosen.iter().next().map(CpuId::as_u32)
    };
    let all = CpuMask::first(128);
    let from = [1, 60, 64, 90].map(|me| nearest(me, all));
    assert_eq!(from, [1, 60, 64, 90].map(Some));
    assert_eq!(nearest(60, mask([1, 61, 64])), Some(64), "61 is not online");
    assert_eq!(nearest(90, mask([1, 64])), Some(1));
    assert_eq!(nearest(64, mask([60])), Some(60));
    assert_eq!(nearest(90, mask([64])), Some(64), "round, in its own word");
    assert_eq!(nearest(64, mask([2, 63])), None);
}

/// A kick is answered where flushes are: in the interrupt, by polling, inside a called function.
#[test]
fn a_kicked_cpu_passes_through_the_engine() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deliver_on_relax.store(false, Relaxed);
    let kick = machine.control().kick(&mask([0, 1, 2]));
    assert!(!kick.is_done());
    assert!(puppet.deliver(1));
    assert!(!kick.is_done(), "CPU 2 has not answered");
    puppet.as_cpu(2, || assert!(machine.poll()));
    assert!(kick.is_done());
    kick.wait();
    let to_nobody = machine.control().kick(&mask([0]));
    assert!(to_nobody.is_done(), "this CPU needs none");
    to_nobody.wait();
    let stats = machine.watch().total_stats();
    assert_eq!((stats.functions_run, stats.full_flushes), (0, 0));
    assert_eq!(stats.remote_flushes, 0, "there is nothing to flush");
    puppet.deliver_on_relax.store(true, Relaxed);
    machine
        .call_one(cpu(1), &|_| machine.control().kick(&mask([2])).wait())
        .unwrap();
}
