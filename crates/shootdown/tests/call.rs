//! Behaviour of cross-CPU calls, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use shootdown::Cpus;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use puppet::*;
use shootdown::calls::{CallData, NotReady, PAYLOAD_BYTES, SlotsBusy, Wait};
use shootdown::control::KickTicket;
use shootdown::watch::*;
use shootdown::*;

/// Every call on a machine of `N` CPUs reaches exactly the CPUs it names, once each.
fn calls_reach_exactly_their_targets<const N: usize>()
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    let runs: Vec<Count> = (0..N).map(|_| Count::new()).collect();
    let count = |me: CpuId| {
        assert_eq!(me, machine.platform().current_cpu());
        runs[me.index()].add();
    };
    let take = || runs.iter().map(|runs| runs.take()).collect::<Vec<_>>();
    let expect =
        |chosen: &dyn Fn(usize) -> bool| (0..N).map(|n| u32::from(chosen(n))).collect::<Vec<_>>();

    let last = N - 1;
    machine.call_one(cpu(last as u32), &count).unwrap();
    assert_eq!(take(), expect(&|n| n == last));

    let odd: CpuMask<Cpus<N>> = (0..N as u32).filter(|n| n % 2 == 1).map(cpu).collect();
    assert_eq!(machine.call_many(&odd, &count), odd);
    assert_eq!(take(), expect(&|n| n % 2 == 1));

    assert_eq!(
        machine.call_many(CallTargets::Online, &count),
        CpuMask::first(N)
    );
    assert_eq!(take(), expect(&|_| true));

    let online = machine.ready_cpus();
    let upper = online.iter().filter(|cpu| cpu.index() * 2 >= N);
    let upper = machine.call_many(&upper.collect::<CpuMask<Cpus<N>>>(), &count);
    assert_eq!(take(), expect(&|n| n * 2 >= N));
    assert_eq!(upper.len(), N - N.div_ceil(2));

    assert!(machine.call_many(&CpuMask::EMPTY, &count).is_empty());
    for beyond in [cpu(N as u32), cpu(u32::MAX)] {
        let refused = Err(NotReady { cpu: beyond });
        assert_eq!(machine.call_one(beyond, &count), refused);
    }
    assert_eq!(take(), expect(&|_| false));
    assert_eq!(take(), expect(&|_| false));
    let stats = machine.watch().total_stats();
    assert_eq!(
        stats.functions_run,
        1 + odd.len() as u64 + N as u64 + upper.len() as u64
    );
}

#[test]
fn calls_reach_exactly_their_targets_on_1_cpu() {
    calls_reach_exactly_their_targets::<1>();
}

#[test]
fn calls_reach_exactly_their_targets_on_4_cpus() {
    calls_reach_exactly_their_targets::<4>();
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn calls_reach_exactly_their_targets_on_64_cpus() {
    calls_reach_exactly_their_targets::<64>();
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn calls_reach_exactly_their_targets_on_256_cpus() {
    calls_reach_exactly_their_targets::<256>();
}

#[test]
fn a_cpu_is_no_target_before_it_is_online() {
    let machine = powered_off::<4>();
    machine.online();
    assert_eq!(
        machine.call_one(cpu(2), &|_| unreachable!()),
        Err(NotReady { cpu: cpu(2) })
    );
    assert_eq!(
        machine.call_one(cpu(9), &|_| unreachable!()),
        Err(NotReady { cpu: cpu(9) })
    );
    assert_eq!(
        machine.call_many(CallTargets::Online, &|me| assert_eq!(me, cpu(0))),
        mask([0])
    );
    machine.platform().as_cpu(2, || machine.online());
    assert_eq!(
        machine.call_many(CallTargets::Online, &|_| ()),
        mask([0, 2])
    );
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
}

#[test]
fn coming_online_twice_is_refused() {
    let machine = machine::<2>();
    assert!(catch_unwind(AssertUnwindSafe(|| machine.online())).is_err());
}

#[test]
fn overlap_runs_after_the_interrupts_and_before_the_wait() {
    let machine = machine::<2>();
    let ran = Count::new();
    let (_, seen) = machine.call_many_with(&mask([0, 1]), &|_| ran.add(), || {
        assert!(
            machine.platform().is_interrupted(1),
            "the target was not interrupted yet"
        );
        ran.get()
    });
    assert_eq!(
        seen, 1,
        "the own part runs before the overlap, the target's when it is delivered"
    );
    assert_eq!(ran.get(), 2);
}

#[test]
fn a_call_is_waited_for_even_when_its_overlap_unwinds() {
    let machine = machine::<2>();
    let ran = Count::new();
    let function = |_: CpuId| ran.add();
    let result = catch_unwind(AssertUnwindSafe(|| {
        machine.call_many_with(&mask([1]), &function, || panic!("on purpose"))
    }));
    assert!(result.is_err());
    assert_eq!(ran.get(), 1);
}

#[test]
fn a_post_is_copied_and_not_waited_for() {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let machine = machine::<4>();
    let payload = [1u64, 20, 300, 4000, 50000];
    assert_eq!(size_of_val(&payload), PAYLOAD_BYTES);
    machine
        .try_post(&mask([1, 3]), move |_| {
            SUM.fetch_add(payload.iter().sum(), Relaxed);
        })
        .unwrap();
    assert_eq!(SUM.load(Relaxed), 0, "the post waited");
    machine.platform().deliver_all();
    assert_eq!(SUM.load(Relaxed), 2 * 54321);
}

/// Where the acknowledgement of CPU 1 stands relative to its function.
fn acknowledged_before_run(wait: Wait) -> bool {
    let (machine, puppet) = with_puppet::<2>();
    machine.submit(&mask([1]), |_| (), wait).wait();
    puppet.deliver_all();
    let trace = puppet.trace.take();
    let position = |wanted: TraceEvent| trace.iter().position(|event| *event == wanted).unwrap();
    position(TraceEvent::Acknowledged {
        cpu: cpu(1),
        initiator: cpu(0),
    }) < position(TraceEvent::FunctionStarted {
        cpu: cpu(1),
        initiator: cpu(0),
    })
}

#[test]
fn wait_levels_end_where_they_say() {
    assert!(acknowledged_before_run(Wait::None));
    assert!(acknowledged_before_run(Wait::Received));
    assert!(!acknowledged_before_run(Wait::Done));
    let machine = machine::<2>();
    let none = machine.submit(&mask([1]), |_| (), Wait::None);
    assert!(none.is_done(), "nothing to wait for");
    for wait in [Wait::Received, Wait::Done] {
        let ticket = machine.submit(&mask([1]), |_| (), wait);
        assert!(!ticket.is_done(), "{wait:?}");
        machine.platform().deliver(1);
        assert!(ticket.is_done(), "{wait:?}");
        assert_eq!(ticket.wait(), mask([1]));
    }
}

#[test]
fn a_ticket_may_be_waited_for_on_another_cpu() {
    let machine = machine::<3>();
    let ticket = machine.submit(&mask([1]), |_| (), Wait::Done);
    machine.platform().as_cpu(2, || {
        assert!(!ticket.is_done(), "it looks at somebody else's request");
        assert_eq!(ticket.wait(), mask([1]));
    });
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 1);
}

#[test]
fn a_ticket_tracks_its_own_request_only() {
    let machine = machine::<3>();
    let first = machine.submit(&mask([1]), |_| (), Wait::Done);
    machine.platform().deliver(1);
    // The slot is free again; later requests that nobody serves must not make the first one look undone.
    let later: Vec<_> = (0..3)
        .map(|_| machine.submit(&mask([2]), |_| (), Wait::Done))
        .collect();
    assert!(first.is_done());
    assert!(later.iter().all(|ticket| !ticket.is_done()));
    drop(first);
    drop(later);
}

#[test]
fn dropping_a_ticket_waits() {
    static RUNS: Count = Count::new();
    let machine = machine::<2>();
    let count = |_: CpuId| RUNS.add();
    drop(machine.submit(&mask([1]), count, Wait::Done));
    assert_eq!(RUNS.get(), 1);
}

#[test]
fn a_forgotten_ticket_costs_no_slot() {
    static RUNS: Count = Count::new();
    let machine = machine::<2>();
    for _ in 0..100 {
        let ticket = machine.submit(&mask([1]), |_| RUNS.add(), Wait::Done);
        std::mem::forget(ticket);
    }
    machine.platform().deliver_all();
    assert_eq!(RUNS.get(), 100);
}

#[test]
fn no_call_is_lost_when_every_slot_is_busy() {
    static RUNS: Count = Count::new();
    let machine = machine::<2>();
    let count = |_: CpuId| RUNS.add();
    let mut accepted = 0;
    while machine.try_post(&mask([1]), count).is_ok() {
        accepted += 1;
    }
    assert_eq!(accepted, 3, "three slots are for functions");
    assert_eq!(RUNS.get(), 0);
    _ = machine.submit(&mask([1]), count, Wait::None); // waits for a slot, which delivers
    machine.platform().deliver_all();
    assert_eq!(RUNS.get(), 4);
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 1);
}

#[test]
fn an_interrupt_on_its_way_is_not_sent_twice() {
    let machine = machine::<2>();
    machine.try_post(&mask([1]), |_| ()).unwrap();
    machine.try_post(&mask([1]), |_| ()).unwrap();
    let sent = machine.watch().stats(cpu(0));
    assert_eq!((sent.ipis_sent, sent.ipis_avoided), (1, 1));
    machine.platform().deliver_all();
    let received = machine.watch().stats(cpu(1));
    assert_eq!((received.ipis_received, received.functions_run), (1, 2));
}

fn an_interrupt_on_its_way_serves_all_wide<const N: usize>()
where
    Cpus<N>: Capacity,
{
    static RUNS: Count = Count::new();
    RUNS.take();
    let (machine, puppet) = with_puppet::<N>();
    for number in 1..N as u32 {
        puppet.as_cpu(number, || {
            machine.try_post(&mask([0]), |_| RUNS.add()).unwrap();
        });
    }
    assert_eq!(machine.watch().total_stats().ipis_sent, 1);
    puppet.as_cpu(1, || puppet.deliver(0));
    assert_eq!(RUNS.get(), N as u32 - 1);
}

#[test]
fn one_interrupt_serves_every_initiator() {
    an_interrupt_on_its_way_serves_all_wide::<64>();
    #[cfg(not(miri))]
    an_interrupt_on_its_way_serves_all_wide::<256>();
}

#[test]
fn a_refused_interrupt_is_sent_again() {
    let machine = machine::<4>();
    machine.platform().refuse.store(5, Relaxed);
    assert_eq!(
        machine.call_many(CallTargets::Online, &|_| ()),
        CpuMask::first(4)
    );
    assert_eq!(machine.watch().stats(cpu(0)).ipis_refused, 5);
}

/// The platform says that it refused, and not whom: who was interrupted already is once more.
#[test]
fn after_a_refusal_each_target_is_interrupted_until_it_was_accepted() {
    let (machine, puppet) = with_puppet::<4>();
    *puppet.refuse_to.lock().unwrap() = (2, 3);
    machine.call_many(CallTargets::Online, &|_| ());
    assert_eq!(
        puppet.sent.take(),
        [(0, 1), (0, 1), (0, 3), (0, 2)],
        "the first by the multicast, then each once"
    );
    assert_eq!(machine.watch().stats(cpu(0)).ipis_refused, 3);
}

#[test]
fn several_targets_are_interrupted_by_one_multicast() {
    let (machine, puppet) = with_puppet::<4>();
    machine.call_many(CallTargets::Online, &|_| ());
    assert_eq!(puppet.multicasts.take(), [vec![1, 2, 3]]);
    machine.call_one(cpu(1), &|_| ()).unwrap();
    let none: [Vec<u32>; 0] = [];
    assert_eq!(puppet.multicasts.take(), none, "one target");
}

#[test]
#[cfg_attr(miri, ignore = "many CPUs, nothing unsafe")]
fn lines_are_asked_for_ahead_where_the_policy_says() {
    let (machine, puppet) = with_puppet::<64>();
    machine.set_policy(Policy::BEST.with_broadcast_from(0));
    machine.call_many(CallTargets::Online, &|_| ());
    let hints = puppet.prefetches.take();
    let mine: Vec<_> = hints.iter().filter(|hint| hint.0 == 0).collect();
    let lines: BTreeSet<_> = mine.iter().collect();
    assert_eq!(
        (mine.len(), lines.len()),
        (9, 9),
        "the initiator: its slot and the first eight inboxes, each once"
    );
    let slot = hints[0].1;
    for target in 1..64 {
        let own: Vec<_> = hints.iter().filter(|hint| hint.0 == target).collect();
        let inbox = own[0].1;
        assert!(
            inbox != slot && hints.contains(&(0, inbox)) == (target <= 8),
            "cpu{target} asks for its own inbox for writing first"
        );
        let lines: Vec<_> = own[1..].iter().map(|hint| hint.1 / 64).collect();
        assert_eq!(lines, [slot / 64], "cpu{target}: then for the slot");
    }
    assert_eq!(hints.len(), 9 + 2 * 63);
    for initiator in 1..=3 {
        puppet.as_cpu(initiator, || machine.try_post(&mask([0]), |_| ()).unwrap());
    }
    assert!(puppet.deliver(0));
    puppet.prefetches.take();
    machine.call_many(CallTargets::Online, &|_| ());
    let hints = puppet.prefetches.take();
    let mine = hints.iter().filter(|hint| hint.0 == 0).count();
    assert_eq!(mine, 1, "in a storm only its slot");
    machine.set_policy(Policy::BEST);
    machine.call_many(CallTargets::Online, &|_| ());
    let hints = puppet.prefetches.take();
    let lines = hints.iter().filter(|hint| hint.0 == 0).count();
    assert_eq!(
        lines,
        2 + 8,
        "of a broadcast: its slot, the ring, eight leaves"
    );
    assert_eq!(hints.len(), lines + 63, "each target: its own inbox");
    machine.set_policy(Policy::PUBLISHED);
    machine.call_many(CallTargets::Online, &|_| ());
    assert!(puppet.prefetches.take().is_empty());
}

#[test]
fn a_target_expects_the_slot_that_it_has_served_twice_in_a_row() {
    let machine = machine::<3>();
    let puppet = machine.platform();
    let hints_of = |initiator| {
        puppet.as_cpu(initiator, || machine.call_one(cpu(1), &|_| ()).unwrap());
        let hints = puppet.prefetches.take();
        let (theirs, mine): (Vec<_>, Vec<_>) = hints.into_iter().partition(|hint| hint.0 == 1);
        // What the target asks for before it knows who has called: the handler's hints come before those of the look.
        (
            mine[0].1,
            theirs.iter().map(|hint| hint.1).collect::<Vec<_>>(),
        )
    };
    let of_slot = |(slot, theirs): &(usize, Vec<usize>)| {
        theirs.iter().filter(|line| *line / 64 == slot / 64).count()
    };
    let found = [0, 0, 0, 2, 0, 2, 2, 2].map(hints_of);
    let other = found[0].0;
    assert_ne!(found[3].0, other);
    assert_eq!(
        found.each_ref().map(of_slot),
        [1, 1, 2, 1, 1, 1, 1, 2],
        "one is the look's, which knows the slot"
    );
    let wrong = found[3].1.iter().filter(|line| *line / 64 == other / 64);
    assert_eq!(wrong.count(), 1, "it has expected the first again");
    let wrong = found[4].1.iter().filter(|line| *line / 64 != other / 64);
    assert_eq!(wrong.count(), 1, "its inbox, and nothing of the other");
}

#[test]
fn functions_of_unsized_types_are_called() {
    let machine = machine::<3>();
    let ran = [const { AtomicU32::new(0) }; 3];
    let count = |cpu: CpuId| _ = ran[cpu.index()].fetch_add(1, Relaxed);
    let function: &(dyn Fn(CpuId) + Sync) = &count;
    machine.call_one(cpu(1), function).unwrap();
    assert_eq!(machine.call_many(&mask([0, 2]), function), mask([0, 2]));
    assert_eq!(ran.each_ref().map(|ran| ran.load(Relaxed)), [1; 3]);
}

#[test]
fn a_called_function_may_not_call_and_wait_but_may_post() {
    static POSTED: Count = Count::new();
    let machine = machine::<3>();
    let refused = AtomicU32::new(0);
    machine
        .call_one(cpu(1), &|_| {
            let call = AssertUnwindSafe(|| machine.call_one(cpu(2), &|_| ()));
            refused.fetch_add(u32::from(catch_unwind(call).is_err()), Relaxed);
            let post = |_: CpuId| POSTED.add();
            machine.try_post(&mask([2]), post).unwrap();
        })
        .unwrap();
    machine.platform().deliver_all();
    assert_eq!(refused.load(Relaxed), 1);
    assert_eq!(POSTED.get(), 1);
    // The same on the CPU that calls.
    machine
        .call_one(cpu(0), &|_| {
            let call = AssertUnwindSafe(|| machine.submit(&mask([1]), |_| (), Wait::None));
            assert!(catch_unwind(call).is_err());
        })
        .unwrap();
}

fn a_post_that_arrives_during_the_own_part_of_a_call_is_run<const N: usize>()
where
    Cpus<N>: Capacity,
{
    static RUNS: Count = Count::new();
    RUNS.take();
    let (machine, puppet) = with_puppet::<N>();
    machine
        .call_one(cpu(0), &|_| {
            let kick = puppet.as_cpu(1, || {
                machine.try_post(&mask([0]), move |_| RUNS.add()).unwrap();
                machine.control().kick(&mask([0]))
            });
            machine.poll(); // takes the inbox because of the kick, and serves flushes only
            assert!(kick.is_done());
            assert_eq!(RUNS.get(), 0, "a function ran inside a function");
        })
        .unwrap();
    assert_eq!(RUNS.get(), 0, "it ran in the caller's context");
    assert!(puppet.deliver(0), "its interrupt is on its way");
    assert_eq!(RUNS.get(), 1);
}

#[test]
fn a_post_that_arrives_during_the_own_part_of_a_call_is_not_forgotten() {
    a_post_that_arrives_during_the_own_part_of_a_call_is_run::<2>();
    a_post_that_arrives_during_the_own_part_of_a_call_is_run::<128>();
}

/// The doorbell is silent again once its CPU has looked.
fn a_served_inbox_is_rung_again<const N: usize>()
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    for round in 1..=3 {
        machine.try_post(&mask([1]), |_| ()).unwrap();
        assert!(
            machine.platform().deliver(1),
            "no interrupt in round {round}"
        );
        assert_eq!(machine.watch().stats(cpu(1)).functions_run, round);
    }
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 3);
}

#[test]
fn every_post_to_an_idle_cpu_interrupts_it() {
    a_served_inbox_is_rung_again::<2>();
    a_served_inbox_is_rung_again::<128>();
}

/// Its initiator would wait for ever otherwise, on top of borrowed memory. The test plays both processes.
#[cfg(not(miri))]
#[test]
fn a_called_function_that_unwinds_ends_the_machine() {
    const CHILD: &str = "SHOOTDOWN_TEST_UNWINDS";
    let name = "a_called_function_that_unwinds_ends_the_machine";
    if std::env::var_os(CHILD).is_some() {
        let machine = machine::<2>();
        let call = || machine.call_one(cpu(1), &|_| panic!("on purpose"));
        let _ = catch_unwind(AssertUnwindSafe(call));
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert_eq!(child.status.code(), None, "it lived on: {child:?}");
}

/// Long enough for the next request to be newer.
fn a_while(puppet: &Puppet) {
    puppet.skipped_ns.fetch_add(1000, Relaxed);
}

/// The order in which CPU 4 runs functions that take so many ns, posted one after the other by these CPUs.
fn order_of(initiators: &[u32], function_ns: usize, rounds: usize) -> Vec<usize> {
    static ORDER: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let (machine, puppet) = with_puppet::<8>();
    for _ in 0..rounds {
        for (number, initiator) in initiators.iter().enumerate() {
            a_while(puppet);
            puppet.as_cpu(*initiator, || {
                machine
                    .try_post(&mask([4]), move |_| {
                        ORDER.lock().unwrap().push(number);
                        puppet.skipped_ns.fetch_add(function_ns, Relaxed);
                    })
                    .unwrap();
            });
        }
        ORDER.lock().unwrap().clear();
        assert!(puppet.deliver(4));
    }
    std::mem::take(&mut *ORDER.lock().unwrap())
}

#[test]
fn slow_functions_run_in_the_order_in_which_they_were_published() {
    let published = [5, 2, 7, 2, 6, 5, 3];
    assert_eq!(order_of(&published, 16_000, 2), [0, 1, 2, 3, 4, 5, 6]);
    // Nothing is known yet: the first tells.
    assert_eq!(order_of(&[7, 2, 6, 5, 3], 16_000, 1), [3, 0, 1, 2, 4]);
}

/// Each CPU begins with the one that follows it; of one initiator's functions the first goes first.
#[test]
fn short_functions_run_as_they_are_found() {
    assert_eq!(order_of(&[7, 2, 6, 5, 3], 5000, 2), [3, 2, 0, 1, 4]);
    assert_eq!(order_of(&[5, 2, 7, 2, 6, 5], 100, 2), [4, 2, 0, 1, 3, 5]);
}

/// Functions that have become short are not held up by order any more.
#[test]
fn a_cpu_learns_that_functions_have_become_short() {
    let (machine, puppet) = with_puppet::<4>();
    let post = |initiator, function_ns| {
        puppet.as_cpu(initiator, || {
            machine
                .try_post(&mask([0]), move |_| {
                    puppet.skipped_ns.fetch_add(function_ns, Relaxed);
                })
                .unwrap();
        });
    };
    let order = || {
        let trace = puppet.trace.take();
        let started = trace.into_iter().filter_map(|event| match event {
            TraceEvent::FunctionStarted { initiator, .. } => Some(initiator.as_u32()),
            _ => None,
        });
        started.collect::<Vec<_>>()
    };
    // Of 5 us each is a stretch of its own, of 1 us all together are one, which has an end too.
    for (functions_ns, orders) in [
        (16_000, [[1, 3, 2], [3, 2, 1], [3, 2, 1]]),
        (5000, [[3, 2, 1], [1, 2, 3], [1, 2, 3]]),
        (16_000, [[1, 3, 2], [3, 2, 1], [3, 2, 1]]),
        (1000, [[3, 2, 1], [1, 2, 3], [1, 2, 3]]),
    ] {
        for expected in orders {
            for initiator in [3, 2, 1] {
                a_while(puppet);
                post(initiator, functions_ns);
            }
            puppet.trace.take();
            assert!(puppet.deliver(0));
            assert_eq!(order(), expected, "{functions_ns} ns");
        }
    }
}

#[test]
fn a_function_that_is_found_again_runs_once() {
    static RUNS: [Count; 3] = [const { Count::new() }; 3];
    let (machine, puppet) = with_puppet::<2>();
    let count = |which: usize| move |_: CpuId| RUNS[which].add();
    puppet.as_cpu(1, || {
        machine
            .try_post(&mask([0]), move |cpu| {
                count(0)(cpu);
                // The second function waits in a slot of CPU 1, which rings once more.
                puppet.as_cpu(1, || machine.try_post(&mask([0]), count(2)).unwrap());
            })
            .unwrap();
        a_while(puppet);
        machine.try_post(&mask([0]), count(1)).unwrap();
        puppet.deliver(0);
    });
    let runs = || RUNS.each_ref().map(|runs| runs.get());
    assert_eq!(runs(), [1; 3]);
    assert!(puppet.is_interrupted(0), "an interrupt is on its way");
    puppet.as_cpu(1, || puppet.deliver(0));
    assert_eq!(runs(), [1; 3]);
    assert!(!puppet.is_interrupted(0));
}

#[test]
#[cfg_attr(miri, ignore = "many CPUs, nothing unsafe")]
fn of_many_initiators_none_is_left_behind() {
    const INITIATORS: u32 = 40;
    const ROUNDS: usize = 5;
    static RUNS: [Count; INITIATORS as usize] = [const { Count::new() }; INITIATORS as usize];
    let (machine, puppet) = with_puppet::<64>();
    /// Posts to CPU 63, from there again and again.
    fn again(machine: &'static puppet::Machine<64>, initiator: u32) {
        let puppet = machine.platform().0;
        a_while(puppet);
        puppet.as_cpu(initiator, || {
            machine
                .try_post(&CpuMask::only(CpuId::new(63)), move |_| {
                    RUNS[initiator as usize].add();
                    again(machine, initiator);
                })
                .unwrap();
        });
    }
    (0..INITIATORS).for_each(|initiator| again(machine, initiator));
    let mut least = Vec::new();
    while least.len() < ROUNDS {
        puppet.as_cpu(62, || puppet.deliver(63));
        let runs = || RUNS.iter().map(|runs| runs.get());
        least.push(runs().min().unwrap());
        let (least, most) = (runs().min().unwrap(), runs().max().unwrap());
        assert!(least > 0 && most <= least + 2, "{least} and {most} turns");
    }
    assert!(
        least.is_sorted_by(|before, after| before < after),
        "{least:?}"
    );
}

/// However many functions came first: a function may wait for what a flush of one of the last lets go on (I14).
#[test]
fn no_function_runs_before_all_flushes_are_served() {
    const INITIATORS: u32 = 24;
    static RUNS: Count = Count::new();
    static WITH_FLUSHES_LEFT: AtomicU32 = AtomicU32::new(0);
    let (machine, puppet) = with_puppet::<64>();
    let space = puppet::space_on(machine, 1);
    puppet.deliver_on_relax.store(false, Relaxed);
    let tickets: Vec<_> = (1..=INITIATORS)
        .map(|initiator| {
            puppet.as_cpu(initiator, || {
                machine
                    .try_post(&mask([0]), move |_| {
                        RUNS.add();
                        let stats = machine.watch().stats(cpu(0));
                        let served = stats.remote_flushes + stats.flushes_covered;
                        let is_left = served < u64::from(INITIATORS);
                        WITH_FLUSHES_LEFT.fetch_add(u32::from(is_left), Relaxed);
                    })
                    .unwrap();
                machine.submit_flush(&space, FlushRange::WHOLE, FreedTables::No)
            })
        })
        .collect();
    puppet.deliver(0);
    puppet.deliver_on_relax.store(true, Relaxed);
    tickets.into_iter().for_each(FlushTicket::wait);
    assert_eq!(RUNS.get(), INITIATORS);
    assert_eq!(WITH_FLUSHES_LEFT.load(Relaxed), 0);
}

#[test]
fn one_interrupt_serves_every_slot_of_every_initiator() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    let mut posted = 0;
    for initiator in 1..4 {
        let count = |_: CpuId| RUNS.add();
        puppet.as_cpu(initiator, || {
            while machine.try_post(&mask([0]), count).is_ok() {
                posted += 1;
            }
        });
    }
    puppet.as_cpu(1, || puppet.deliver(0));
    assert_eq!(RUNS.get(), posted);
    assert!(posted > 3, "several slots each");
    assert!(!puppet.is_interrupted(0));
}

#[test]
fn functions_that_keep_coming_do_not_hold_the_interrupt_for_ever() {
    static RUNS: Count = Count::new();
    let machine = machine::<2>();
    /// Posts itself to CPU 0 from CPU 1 each time it runs.
    fn again(machine: &'static puppet::Machine<2>) {
        machine.platform().as_cpu(1, || {
            machine
                .try_post(&CpuMask::only(CpuId::new(0)), move |_| {
                    RUNS.add();
                    again(machine);
                })
                .unwrap();
        });
    }
    again(machine);
    machine
        .platform()
        .as_cpu(1, || machine.platform().deliver(0));
    let first = RUNS.get();
    assert!(
        (1..=8).contains(&first),
        "{first} functions in one interrupt"
    );
    assert!(
        machine.platform().is_interrupted(0),
        "nobody comes for the rest"
    );
    machine
        .platform()
        .as_cpu(1, || machine.platform().deliver(0));
    assert!(RUNS.get() > first);
}

/// An initiator whose clock is late posts anew whenever one of its functions has run, which so are always the oldest, while those of
/// others leave no room for two.
#[test]
fn a_bound_that_is_reached_is_made_up_for() {
    const OTHERS: u32 = 16;
    const AHEAD_NS: usize = 1_000_000_000;
    static RUNS: [Count; 2] = [const { Count::new() }; 2];
    /// Posts itself to CPU 0 from CPU 20 each time it runs.
    fn again(machine: &'static puppet::Machine<32>) {
        let puppet = machine.platform().0;
        a_while(puppet);
        puppet.as_cpu(20, || {
            machine
                .try_post(&CpuMask::only(CpuId::new(0)), move |_| {
                    RUNS[0].add();
                    puppet.skipped_ns.fetch_add(20_000, Relaxed);
                    again(machine);
                })
                .unwrap();
        });
    }
    let (machine, puppet) = with_puppet::<32>();
    for initiator in [1, 2] {
        let slow = move |_| _ = puppet.skipped_ns.fetch_add(20_000, Relaxed);
        puppet.as_cpu(initiator, || machine.try_post(&mask([0]), slow).unwrap());
    }
    assert!(puppet.deliver(0));
    (0..3).for_each(|_| again(machine));
    puppet.skipped_ns.fetch_add(AHEAD_NS, Relaxed);
    for initiator in 1..=OTHERS {
        puppet.as_cpu(initiator, || {
            machine.try_post(&mask([0]), |_| RUNS[1].add()).unwrap()
        });
    }
    puppet.skipped_ns.fetch_sub(AHEAD_NS, Relaxed);
    assert!(puppet.deliver(0));
    let (again, others) = (RUNS[0].get(), RUNS[1].get());
    assert!((50..100).contains(&again), "{again} in one interrupt");
    assert_eq!(others, OTHERS, "what was taken is not left");
    assert!(puppet.deliver(0), "nobody comes for the rest");
    assert!(RUNS[0].get() > again);
}

/// A host whose functions let interrupts through: what they find waits until the function has returned, and for an interrupt of its own.
#[test]
fn an_interrupt_inside_a_function_is_taken_again() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    machine
        .call_one(cpu(0), &|_| {
            puppet.as_cpu(1, || machine.try_post(&mask([0]), |_| RUNS.add()).unwrap());
            puppet.lose_interrupt(0);
            puppet.interrupt_now(0);
            assert_eq!(RUNS.get(), 0, "a function ran inside a function");
        })
        .unwrap();
    assert_eq!(RUNS.get(), 0, "it ran in the caller's context");
    assert!(puppet.deliver(0), "the CPU interrupts itself");
    assert_eq!(RUNS.get(), 1);
}

#[test]
fn a_waiter_serves_its_own_inbox_with_interrupts_off() {
    static SERVED: Count = Count::new();
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        let (machine, puppet) = with_puppet::<2>();
        machine.set_policy(policy);
        SERVED.take();
        puppet.as_cpu(1, || {
            machine.try_post(&mask([0]), |_| SERVED.add()).unwrap();
        });
        puppet.set_irqs_off(true);
        let ticket = machine.submit(&mask([1]), |_| (), Wait::Done);
        answer_when_served(puppet, &SERVED);
        ticket.wait();
        puppet.set_irqs_off(false);
    }
}

/// CPU 1 answers only when CPU 0 has served it: as if it spun for that with interrupts off.
fn answer_when_served(puppet: &'static Puppet, served: &'static Count) {
    puppet.deliver_on_relax.store(false, Relaxed);
    puppet.at_next_relax(move || match served.get() {
        0 => answer_when_served(puppet, served),
        _ => assert!(puppet.deliver(1)),
    });
}

/// Functions never run where the caller waits for flushes, for a flush's slot, or polls: they could take a lock that it holds.
#[test]
fn functions_run_in_no_section_that_waits_for_flushes() {
    static HELD: AtomicBool = AtomicBool::new(false);
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    let space = puppet::space_on(machine, 2);
    let range = pages(0, 1);
    // The kick has a poll look into the inbox.
    let post_and_kick = || {
        puppet.as_cpu(3, || {
            machine
                .try_post(&mask([0]), |_| {
                    INSIDE.fetch_add(u32::from(HELD.load(Relaxed)), Relaxed);
                    RUNS.add();
                })
                .unwrap();
            machine.control().kick(&mask([0]))
        })
    };
    let sections: [&dyn Fn(); 5] = [
        &|| machine.flush(&space, range, FreedTables::No),
        &|| machine.control().kick(&mask([1])).wait(),
        &|| {
            puppet.deliver_on_relax.store(false, Relaxed);
            let kicks: Vec<_> = (0..4).map(|_| machine.control().kick(&mask([1]))).collect();
            puppet.deliver_on_relax.store(true, Relaxed);
            machine.control().kick(&mask([1])).wait();
            kicks.into_iter().for_each(KickTicket::wait);
        },
        &|| {
            machine.poll();
        },
        &|| {
            puppet.deliver_on_relax.store(false, Relaxed);
            let flushes: Vec<_> = (0..4)
                .map(|_| machine.submit_flush(&space, range, FreedTables::Yes))
                .collect();
            puppet.deliver_on_relax.store(true, Relaxed);
            machine.submit_flush(&space, range, FreedTables::Yes).wait();
            flushes.into_iter().for_each(FlushTicket::wait);
        },
    ];
    for (round, section) in (1..).zip(sections) {
        let kick = post_and_kick();
        puppet.set_irqs_off(true);
        HELD.store(true, Relaxed);
        section();
        HELD.store(false, Relaxed);
        puppet.set_irqs_off(false);
        assert_eq!(INSIDE.load(Relaxed), 0, "section {round}");
        puppet.as_cpu(1, || puppet.deliver(0));
        assert_eq!(RUNS.get(), round, "it runs afterwards");
        puppet.as_cpu(3, || kick.wait());
    }
}

/// How often a waiter with interrupts off relaxes before it serves its own inbox.
fn turns_before_serving(policy: Policy) -> u64 {
    static TURNS: AtomicU64 = AtomicU64::new(0);
    let (machine, puppet) = with_puppet::<2>();
    machine.set_policy(policy);
    let deliver = &puppet.deliver_on_relax;
    // CPU 1 answers only once CPU 0 has served it.
    deliver.store(false, Relaxed);
    puppet.as_cpu(1, || {
        machine
            .try_post(&mask([0]), move |_| {
                TURNS.store(Seat::<2>(puppet).now_ns(), Relaxed);
                let deliver = &puppet.deliver_on_relax;
                deliver.store(true, Relaxed);
            })
            .unwrap();
    });
    puppet.set_irqs_off(true);
    machine.call_one(cpu(1), &|_| ()).unwrap();
    TURNS.load(Relaxed)
}

#[test]
fn a_waiter_looks_at_its_inbox_at_once() {
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        assert_eq!(turns_before_serving(policy), 0, "{policy:?}");
    }
}

#[test]
fn waits_are_measured_when_asked() {
    let machine = machine::<2>();
    machine.call_one(cpu(1), &|_| ()).unwrap();
    assert_eq!(machine.watch().total_stats().wait_ns(500), None);
    machine.set_policy(Policy::BEST.with_measured_waits(true));
    assert_eq!(machine.policy().name(), "best");
    machine.call_one(cpu(1), &|_| ()).unwrap();
    assert_eq!(machine.watch().total_stats().waits_finished, 2);
    assert!(machine.watch().total_stats().wait_ns(990).is_some());
}

/// Clocks may count from 1970, be coarse or stand still: no two requests in a slot have one number (I11).
#[test]
fn a_ticket_waits_for_its_own_request_on_any_clock() {
    for now_ns in [0, 1_790_000_000_000_000_000, (1 << 60) - 16, usize::MAX - 2] {
        let (machine, puppet) = with_puppet::<2>();
        puppet.deliver_on_relax.store(false, Relaxed);
        puppet.skipped_ns.store(now_ns, Relaxed);
        let submit = || machine.submit(&mask([1]), |_| (), Wait::Done);
        let first = submit();
        assert!(puppet.deliver(1));
        let second = submit();
        assert!(first.is_done() && !second.is_done(), "at {now_ns}");
        assert!(puppet.deliver(1));
        assert!(second.is_done());
    }
}

/// A function that runs inside another one, on its own CPU, does not end that one.
#[test]
fn a_function_that_posts_to_itself_is_still_a_function() {
    let machine = machine::<2>();
    let called = machine.call_one(cpu(1), &|_| {
        machine.try_post(&mask([1]), |_| ()).unwrap();
        let call = || machine.call_one(cpu(0), &|_| ());
        assert!(refuses(call));
    });
    assert!(called.is_ok());
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 2);
}

/// Two functions that waited for each other's CPUs in that way would wait for ever.
#[test]
fn a_ticket_is_not_waited_for_inside_a_function() {
    let (machine, puppet) = with_puppet::<3>();
    puppet.deliver_on_relax.store(false, Relaxed);
    let ticket = puppet.as_cpu(1, || machine.submit(&mask([2]), |_| (), Wait::Done));
    let ticket = Mutex::new(Some(ticket));
    puppet.at_next_relax(move || assert!(puppet.deliver(1)));
    let called = machine.call_one(cpu(1), &|_| {
        let ticket = ticket.lock().unwrap().take().unwrap();
        let refused = catch_unwind(AssertUnwindSafe(|| ticket.wait())).unwrap_err();
        let message = refused.downcast_ref::<String>().unwrap();
        assert!(message.contains("a called function"), "{message}");
    });
    assert!(called.is_ok());
    puppet.deliver(2);
    assert_eq!(machine.watch().stats(cpu(2)).functions_run, 1);
}

/// There is nothing to wait for, so nobody waits for somebody who waits.
#[test]
fn a_called_function_may_end_tickets_of_calls_that_are_done() {
    let machine = machine::<3>();
    let submit = || machine.submit(&mask([1]), |_| (), Wait::Done);
    let tickets = Mutex::new(vec![submit(), submit()]);
    machine.platform().deliver(1);
    let end = |_: CpuId| {
        let mut tickets = tickets.lock().unwrap();
        assert_eq!(tickets.pop().unwrap().wait(), mask([1]));
        drop(tickets.pop());
    };
    machine.call_one(cpu(2), &end).unwrap();
    assert!(tickets.lock().unwrap().is_empty());
}

/// Its targets may be waiting in the same way: who waits for a slot with interrupts off runs what others ask of it, and a flush
/// that waits runs none of it.
#[test]
fn who_waits_for_a_slot_for_a_call_serves_functions() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    puppet.set_irqs_off(true);
    let post = |target| {
        let target = CpuMask::only(cpu(target));
        _ = machine.submit(&target, |_| RUNS.add(), Wait::None);
    };
    (0..3).for_each(|_| post(1));
    puppet.as_cpu(1, || post(0));
    puppet.at_next_relax(|| {
        assert_eq!(RUNS.get(), 1, "before it rests");
    });
    post(1);
    puppet.set_irqs_off(false);
    puppet.deliver_all();
    assert_eq!(RUNS.get(), 5);
}

/// It would wait for ever for a lock that its own CPU holds (I14).
#[test]
fn a_function_that_is_posted_under_a_lock_does_not_run_under_it() {
    static IS_LOCKED: AtomicBool = AtomicBool::new(true);
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<2>();
    puppet.set_irqs_off(true);
    let locks = |_: CpuId| {
        assert!(!IS_LOCKED.load(Relaxed), "under the lock");
        RUNS.add();
    };
    assert_eq!(machine.try_post(&mask([0]), locks), Ok(mask([0])));
    assert!(!machine.poll(), "it is a function");
    IS_LOCKED.store(false, Relaxed);
    puppet.set_irqs_off(false);
    assert_eq!(puppet.sent.take(), [(0, 0)]);
    assert!(puppet.deliver(0));
    assert_eq!(RUNS.get(), 1);
}

#[test]
fn a_function_that_posts_itself_again_does_not_recurse() {
    static DEPTH: Count = Count::new();
    static RUNS: Count = Count::new();
    fn again(machine: &'static puppet::Machine<2>, me: CpuId) {
        DEPTH.add();
        assert_eq!(DEPTH.get(), 1, "on one handler's stack");
        RUNS.add();
        machine
            .try_post(&CpuMask::only(me), move |me| again(machine, me))
            .unwrap();
        DEPTH.take();
    }
    let (machine, puppet) = with_puppet::<2>();
    machine.call_one(cpu(1), &|me| again(machine, me)).unwrap();
    for _ in 0..5 {
        RUNS.take();
        assert!(puppet.deliver(1));
        assert_eq!(RUNS.get(), 1, "in each interrupt");
    }
}

/// With what it posts to itself otherwise.
#[test]
fn posts_of_a_cpu_to_itself_run_in_order() {
    static ORDER: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ORDER.lock().unwrap().push(1));
    let (machine, puppet) = with_puppet::<3>();
    puppet.deliver_on_relax.store(false, Relaxed);
    puppet.set_irqs_off(true);
    let note = |number| move |_: CpuId| ORDER.lock().unwrap().push(number);
    machine.try_post(&mask([0]), note(0)).unwrap();
    machine.post_data(cpu(0), &DATA).unwrap();
    machine.try_post(&mask([0]), note(2)).unwrap();
    machine.try_post(&mask([0]), note(3)).unwrap();
    assert_eq!(
        machine.try_post(&mask([0, 1]), note(9)),
        Err(SlotsBusy),
        "three wait already"
    );
    assert!(!puppet.is_interrupted(1), "then nothing is sent");
    assert_eq!(machine.try_post(&mask([1]), note(9)), Ok(mask([1])));
    assert!(ORDER.lock().unwrap().is_empty());
    puppet.set_irqs_off(false);
    assert!(puppet.deliver(0));
    assert_eq!(*ORDER.lock().unwrap(), [0, 1, 2, 3]);
}

/// An interrupt handler calls while the task below waits for a call, and so does the one above, until no slot is left.
#[test]
fn calls_of_four_handlers_inside_each_other_end() {
    static RUNS: Count = Count::new();
    /// Calls CPU 1 with an interrupt of the host's inside its wait, so many times.
    fn nest(machine: &'static puppet::Machine<2>, levels: u32) {
        let puppet = machine.platform().0;
        puppet.at_next_relax(move || match levels {
            1 => puppet.hear_again(1),
            _ => {
                puppet.set_irqs_off(true);
                nest(machine, levels - 1);
                puppet.set_irqs_off(false);
            }
        });
        assert_eq!(machine.call_one(cpu(1), &|_| RUNS.add()), Ok(()));
    }
    let (machine, puppet) = with_puppet::<2>();
    puppet.deafen(1);
    nest(machine, 4);
    assert_eq!(RUNS.get(), 4);
    assert_eq!(
        machine.watch().stats(cpu(0)).slots_exhausted,
        1,
        "the fourth waits"
    );
}
