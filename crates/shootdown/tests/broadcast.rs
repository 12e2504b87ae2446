//! Behaviour of requests that are announced in rings, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{CallTicket, Wait};
use shootdown::watch::*;
use shootdown::*;

/// Broadcasts that a ring has room for.
const ROOM: u64 = 4;

/// A machine that broadcasts everything.
fn loud<const N: usize>() -> &'static puppet::Machine<N>
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    machine
}

fn calls_reach_exactly_their_targets<const N: usize>()
where
    Cpus<N>: Capacity,
{
    let machine = loud::<N>();
    let runs: Vec<Count> = (0..N).map(|_| Count::new()).collect();
    let count = |me: CpuId| {
        assert_eq!(me, machine.platform().current_cpu());
        runs[me.index()].add();
    };
    let last = N as u32 - 1;
    for targets in [
        mask::<N>([last]),
        mask(0..=last),
        mask((0..=last).step_by(3)),
        mask([1, last]),
    ] {
        assert_eq!(machine.call_many(&targets, &count), targets);
        for (cpu, runs) in runs.iter().enumerate() {
            let expected = targets.contains(CpuId::new(cpu as u32));
            assert_eq!(runs.take(), u32::from(expected), "cpu{cpu}");
        }
    }
    let stats = machine.watch().total_stats();
    assert_eq!((stats.broadcasts_published, stats.broadcasts_full), (4, 0));
    let executions = 1 + N as u64 + (N as u64).div_ceil(3) + 2;
    assert_eq!(stats.functions_run, executions);
    let local = u64::from(N > 1) * 2;
    assert_eq!(stats.ipis_received, executions - local);
}

#[test]
fn broadcasts_reach_exactly_their_targets_on_4_cpus() {
    calls_reach_exactly_their_targets::<4>();
}

#[test]
#[cfg_attr(miri, ignore = "many CPUs, nothing unsafe")]
fn broadcasts_reach_exactly_their_targets_on_64_cpus() {
    calls_reach_exactly_their_targets::<64>();
}

#[test]
#[cfg_attr(miri, ignore = "many CPUs, nothing unsafe")]
fn broadcasts_reach_exactly_their_targets_on_192_cpus() {
    calls_reach_exactly_their_targets::<192>();
}

/// Rings are for masks from a size on, and each has its own 64 CPUs.
#[test]
fn only_large_masks_are_broadcast() {
    let machine = machine::<16>();
    let from = u32::from(Policy::BEST.broadcasts_from());
    machine.call_many(&mask(1..from), &|_| ());
    assert_eq!(machine.watch().total_stats().broadcasts_published, 0);
    machine.call_many(&mask(1..=from), &|_| ());
    assert_eq!(machine.watch().total_stats().broadcasts_published, 1);
    for policy in [Policy::BEFORE, Policy::PUBLISHED] {
        machine.set_policy(policy);
        machine.call_many(&mask(1..16), &|_| ());
    }
    assert_eq!(machine.watch().total_stats().broadcasts_published, 1);
}

/// Posts from as many CPUs as it takes, while nobody serves; then everybody does. Each function runs once on each target.
fn overflow<const N: usize>(targets: [u32; 3], full: u64)
where
    Cpus<N>: Capacity,
{
    static RUNS: Mutex<Vec<(u32, u32)>> = Mutex::new(Vec::new());
    let machine = loud::<N>();
    let puppet = machine.platform().0;
    let posts = ROOM as u32 + 3;
    for number in 0..posts {
        puppet.as_cpu(number, || {
            machine
                .try_post(&mask(targets), move |me| {
                    RUNS.lock().unwrap().push((me.as_u32(), number));
                })
                .unwrap();
        });
    }
    let stats = machine.watch().total_stats();
    assert_eq!(stats.broadcasts_published, u64::from(posts));
    assert_eq!(stats.broadcasts_full, full);
    for target in targets {
        puppet.as_cpu(0, || while puppet.deliver(target) {});
    }
    let mut runs = std::mem::take(&mut *RUNS.lock().unwrap());
    runs.sort_unstable();
    let expected: Vec<_> = targets
        .iter()
        .flat_map(|target| (0..posts).map(|number| (*target, number)))
        .collect();
    assert_eq!(runs, expected);
}

#[test]
fn a_full_ring_leaves_the_rest_to_the_inboxes() {
    overflow::<64>([60, 61, 63], 3);
    overflow::<128>([60, 126, 127], 6);
}

/// One of two rings is full: the targets of one are told by the ring, those of the other by their inboxes, of one request.
#[test]
fn one_request_may_go_both_ways() {
    static RUNS: Count = Count::new();
    let machine = loud::<128>();
    let puppet = machine.platform().0;
    for number in 0..ROOM as u32 {
        puppet.as_cpu(number, || machine.try_post(&mask([127]), |_| ()).unwrap());
    }
    machine.try_post(&mask([60, 126]), |_| RUNS.add()).unwrap();
    assert_eq!(machine.watch().total_stats().broadcasts_full, 1);
    for target in [60, 126] {
        assert!(puppet.deliver(target));
        // Another request of the same CPU by the inbox: whoever comes for that leaves alone what the ring told.
        machine.set_policy(Policy::BEST.with_broadcast_from(0));
        machine.try_post(&mask([target]), |_| ()).unwrap();
        assert!(puppet.deliver(target));
    }
    assert_eq!(RUNS.get(), 2);
}

/// The pending set has the bit of a target until its whole leaf has acknowledged. Who comes for another request by its inbox
/// leaves alone what the ring told, heard or not.
fn what_a_ring_told_is_not_taken_from_the_slot<const N: usize>(first: u32, second: u32)
where
    Cpus<N>: Capacity,
{
    let runs: &'static Count = Box::leak(Box::default());
    let machine = loud::<N>();
    let puppet = machine.platform().0;
    let count = |_: CpuId| runs.add();
    machine.try_post(&mask([first, second]), count).unwrap();
    assert!(puppet.deliver(first));
    machine.set_policy(Policy::BEST.with_broadcast_from(0));
    machine.try_post(&mask([first, second]), count).unwrap();
    for (target, expected) in [(first, 2), (second, 4)] {
        assert!(puppet.deliver(target));
        assert_eq!(runs.get(), expected);
    }
}

#[test]
fn what_a_ring_told_is_not_taken_from_the_slot_of_few() {
    what_a_ring_told_is_not_taken_from_the_slot::<4>(1, 2);
}

#[test]
fn what_a_ring_told_is_not_taken_from_the_slot_of_many() {
    what_a_ring_told_is_not_taken_from_the_slot::<128>(70, 71);
}

/// What a called function may serve: flushes at once, functions later, and nothing twice, also when a slot is used again.
#[test]
fn inside_a_function_flushes_are_heard_and_functions_wait() {
    static ORDER: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    let machine = loud::<4>();
    let puppet = machine.platform().0;
    let space = space_on(machine, 4);
    puppet.map(0, 1);
    let note = |what: &'static str| move |_: CpuId| ORDER.lock().unwrap().push(what);
    puppet.deliver_on_relax.store(false, Relaxed);
    puppet.as_cpu(1, || {
        machine.try_post(&mask([1]), note("first")).unwrap();
    });
    puppet.deliver(1);
    let inner = |_: CpuId| {
        note("first begins")(cpu(1));
        puppet.as_cpu(2, || machine.try_post(&mask([1]), note("second")).unwrap());
        puppet.as_cpu(3, || {
            let range = pages(0, 1);
            let freed = FreedTables::Yes;
            std::mem::forget(machine.submit_flush(&space, range, freed));
        });
        assert!(machine.poll(), "the flush is served");
        assert!(!machine.poll(), "and only once");
        note("first ends")(cpu(1));
    };
    puppet.as_cpu(1, || {
        machine.call_many(&mask([1]), &inner);
    });
    puppet.as_cpu(0, || puppet.deliver_all());
    puppet.deliver_on_relax.store(true, Relaxed);
    puppet.deliver_all();
    let order = std::mem::take(&mut *ORDER.lock().unwrap());
    assert_eq!(order, ["first", "first begins", "first ends", "second"]);
    assert_eq!(machine.watch().stats(cpu(1)).remote_flushes, 1);
}

/// A CPU that nobody named for longer than a ring remembers hears what names it.
#[test]
fn who_was_not_named_for_long_is_found() {
    static RUNS: Count = Count::new();
    let machine = loud::<4>();
    for round in 1..=5 {
        for _ in 0..3 * ROOM + 1 {
            machine.call_many(&mask([1, 2]), &|_| ());
        }
        machine.call_many(&mask([3]), &|_| RUNS.add());
        assert_eq!(RUNS.get(), round);
    }
    assert_eq!(machine.watch().total_stats().broadcasts_full, 0);
}

/// The entry that names a CPU is the oldest in the ring when it looks at last, however far it was behind.
#[test]
fn the_oldest_entry_of_a_ring_is_found() {
    static RUNS: Count = Count::new();
    let machine = loud::<4>();
    let puppet = machine.platform().0;
    let to_others = |count: u64| {
        for _ in 0..count {
            machine.try_post(&mask([1, 2]), |_| ()).unwrap();
            assert!(puppet.deliver(1) && puppet.deliver(2));
        }
    };
    for behind in 0..=ROOM {
        to_others(behind);
        machine.try_post(&mask([3]), |_| RUNS.add()).unwrap();
        to_others(ROOM - 1);
        assert!(puppet.deliver(3));
        assert_eq!(RUNS.take(), 1, "{behind} before it");
    }
    assert_eq!(machine.watch().total_stats().broadcasts_full, 0);
}

#[test]
fn a_cpu_that_comes_late_hears_nothing_old() {
    let machine = powered_off::<4>();
    let puppet = machine.platform().0;
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    for number in 0..3 {
        puppet.as_cpu(number, || machine.online());
    }
    for _ in 0..ROOM + 2 {
        machine.call_many(CallTargets::Online, &|_| ());
    }
    puppet.as_cpu(3, || machine.online());
    puppet.as_cpu(3, || assert!(!machine.poll()));
    assert_eq!(machine.call_many(CallTargets::Online, &|_| ()), mask(0..4));
    assert_eq!(machine.watch().stats(cpu(3)).functions_run, 1);
    puppet.as_cpu(3, || machine.offline());
    assert_eq!(machine.call_many(CallTargets::Online, &|_| ()), mask(0..3));
}

/// What a CPU heard before it went is still in the ring when it comes back.
#[test]
fn who_comes_back_hears_nothing_twice() {
    static RUNS: Count = Count::new();
    let machine = loud::<4>();
    for _ in 0..3 {
        machine.try_post(&mask([3]), |_| RUNS.add()).unwrap();
    }
    machine.platform().as_cpu(3, || {
        machine.offline();
        machine.online();
        assert!(!machine.poll());
    });
    // It reads its ring for the functions too.
    assert_eq!(machine.call_one(cpu(3), &|_| ()), Ok(()));
    assert_eq!(RUNS.get(), 3);
}

/// The pending set is told only when a whole leaf is done; a report names who is really missing.
#[test]
fn the_watchdog_names_who_has_not_acknowledged() {
    let machine = loud::<16>();
    let puppet = machine.platform().0;
    machine.watch().set_stall_ns(1);
    puppet.deliver_on_relax.store(false, Relaxed);
    puppet.at_stall(|puppet| puppet.deliver_all());
    let ticket = machine.submit(&mask(1..5), |_| (), Wait::Done);
    for target in [1, 2, 4] {
        puppet.deliver(target);
    }
    ticket.wait();
    let stalls = puppet.stalls.take();
    assert_eq!((stalls[0].target, stalls[0].others), (cpu(3), 0));
}

/// Flushes come before functions, also when the responder has no room for more functions than it has found.
#[test]
fn a_broadcast_flush_waits_for_no_function() {
    let machine = puppet::machine::<16>();
    let puppet = machine.platform().0;
    puppet.deliver_on_relax.store(false, Relaxed);
    let space = space_on(machine, 16);
    for initiator in 2..8 {
        puppet.as_cpu(initiator, || {
            for _ in 0..3 {
                machine.try_post(&mask([1]), |_| ()).unwrap();
            }
        });
    }
    // One more that has no room, in the ring.
    puppet.as_cpu(14, || machine.try_post(&mask(1..14), |_| ()).unwrap());
    let range = pages(0, 1);
    let ticket = puppet.as_cpu(15, || machine.submit_flush(&space, range, FreedTables::No));
    puppet.trace.take();
    assert!(puppet.deliver(1));
    let first = puppet.trace.take().into_iter().find(|event| {
        let (flush, function) = (
            matches!(event, TraceEvent::FlushStarted { .. }),
            matches!(event, TraceEvent::FunctionStarted { .. }),
        );
        flush || function
    });
    assert!(
        matches!(first, Some(TraceEvent::FlushStarted { .. })),
        "{first:?}"
    );
    (0..16).for_each(|number| while puppet.deliver(number) {});
    ticket.wait();
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 19);
}

/// A slot whose last request was in the inboxes, because its ring was full, is announced in the ring again, and only there; after a
/// rest.
#[test]
fn a_ring_that_was_full_is_used_again() {
    static RUNS: Count = Count::new();
    let machine = loud::<128>();
    let puppet = machine.platform().0;
    let count = |_: CpuId| RUNS.add();
    let published = || machine.watch().stats(cpu(0)).broadcasts_published;
    for number in 1..=ROOM as u32 {
        puppet.as_cpu(number, || machine.try_post(&mask([127]), |_| ()).unwrap());
    }
    machine.try_post(&mask([126]), count).unwrap();
    assert_eq!(
        (machine.watch().total_stats().broadcasts_full, published()),
        (1, 1)
    );
    assert!(puppet.deliver(126) && puppet.deliver(127));
    for posts in 1..=18 {
        machine.try_post(&mask([126]), count).unwrap();
        assert!(puppet.deliver(126));
        assert_eq!(
            published(),
            1 + u64::saturating_sub(posts, 16),
            "after {posts}"
        );
    }
    assert_eq!(machine.watch().total_stats().broadcasts_full, 1);
    machine.set_policy(Policy::BEST.with_broadcast_from(0));
    machine.try_post(&mask([126]), count).unwrap();
    assert!(puppet.deliver(126));
    assert_eq!(RUNS.get(), 20);
}

/// A CPU that others call leaves the rings alone: they do so too, and rings have few entries.
#[test]
fn who_is_called_again_and_again_uses_the_inboxes() {
    let machine = loud::<16>();
    let puppet = machine.platform().0;
    let published = || machine.watch().stats(cpu(0)).broadcasts_published;
    let (me, others) = (CpuMask::only(cpu(0)), mask(1..12));
    for (calls, broadcasts) in [(0, 1), (2, 2), (3, 2), (4, 2), (0, 3)] {
        for initiator in 1..=calls {
            puppet.as_cpu(initiator, || machine.try_post(&me, |_| ()).unwrap());
        }
        puppet.deliver(0);
        machine.call_many(&others, &|_| ());
        assert_eq!(published(), broadcasts, "after {calls} calls");
    }
}

/// Its entries are told apart by the numbers of their requests, which are not the first of their CPUs here.
#[test]
fn a_ring_that_was_used_before_is_full_at_the_same_number() {
    static RUNS: Count = Count::new();
    let machine = loud::<64>();
    let puppet = machine.platform().0;
    for number in 0..ROOM as u32 + 1 {
        puppet.as_cpu(number, || machine.try_post(&mask([63]), |_| ()).unwrap());
        assert!(puppet.deliver(63));
    }
    let submit = |number| {
        let submit = || machine.submit(&mask([62]), |_| RUNS.add(), Wait::Done);
        puppet.as_cpu(number, submit)
    };
    let tickets: Vec<_> = (0..ROOM as u32 + 1).map(submit).collect();
    assert_eq!(machine.watch().total_stats().broadcasts_full, 1);
    assert!(tickets.iter().all(|ticket| !ticket.is_done()));
    assert!(puppet.deliver(62));
    assert_eq!(u64::from(RUNS.get()), ROOM + 1);
    assert!(tickets.iter().all(CallTicket::is_done));
}

/// CPUs 0 to 7 acknowledge in one leaf, 8 to 15 in the next.
#[test]
fn a_leaf_speaks_for_its_own_cpus() {
    let machine = loud::<16>();
    let puppet = machine.platform().0;
    let ticket = machine.submit(&mask(1..16), |_| (), Wait::Done);
    for number in 1..16 {
        assert!(!ticket.is_done(), "cpu{number} has not run it");
        assert!(puppet.deliver(number));
    }
    assert!(ticket.is_done());
}

/// What it waits for waits for a function that was broadcast to it.
#[test]
fn a_waiter_with_interrupts_off_runs_what_is_broadcast_to_it() {
    let machine = loud::<4>();
    let puppet = machine.platform().0;
    puppet.deafen(1);
    puppet.at_next_relax(move || {
        puppet.as_cpu(2, || {
            machine
                .try_post(&mask([0]), move |_| puppet.hear_again(1))
                .unwrap();
        });
    });
    puppet.set_irqs_off(true);
    assert_eq!(machine.call_many(&mask([1]), &|_| ()), mask([1]));
    puppet.set_irqs_off(false);
    assert_eq!(machine.watch().stats(cpu(0)).polls_served, 1);
}

/// A flush that comes while the second of three functions runs, for long, does not wait for the third.
#[test]
fn between_functions_of_a_ring_flushes_are_served() {
    static FLUSHED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    let machine = loud::<8>();
    let puppet = machine.platform().0;
    let function = move |me: CpuId| {
        let mut flushed = FLUSHED.lock().unwrap();
        flushed.push(machine.watch().stats(me).remote_flushes);
        if flushed.len() == 2 {
            puppet.skipped_ns.fetch_add(5000, Relaxed);
            let submit = || machine.submit_flush(FlushScope::Kernel, pages(0, 1), FreedTables::No);
            puppet.as_cpu(7, || std::mem::forget(submit()));
        }
    };
    for number in 1..4 {
        puppet.as_cpu(number, || machine.try_post(&mask([0]), function).unwrap());
    }
    puppet.as_cpu(1, || assert!(puppet.deliver(0)));
    assert_eq!(*FLUSHED.lock().unwrap(), [0, 0, 1]);
}

/// A CPU compares 16 functions with each other. Of two in its ring one is left there, as it was before, and not forgotten.
#[test]
fn a_function_that_is_left_in_the_ring_twice_runs() {
    static RUNS: Count = Count::new();
    let machine = machine::<32>();
    let puppet = machine.platform().0;
    let slow = move |_: CpuId| {
        puppet.skipped_ns.fetch_add(5000, Relaxed);
    };
    // From here on functions wait for their turn.
    for number in 1..3 {
        puppet.as_cpu(number, || machine.try_post(&mask([0]), slow).unwrap());
    }
    puppet.as_cpu(1, || assert!(puppet.deliver(0)));
    for number in 1..18 {
        let broadcast_from = u16::from(number >= 16);
        machine.set_policy(Policy::BEST.with_broadcast_from(broadcast_from));
        puppet.as_cpu(number, || {
            machine.try_post(&mask([0]), |_| RUNS.add()).unwrap()
        });
    }
    assert_eq!(machine.watch().total_stats().broadcasts_published, 2);
    puppet.as_cpu(1, || assert!(puppet.deliver(0)));
    assert_eq!(RUNS.get(), 17);
}

/// Before it, a CPU finds as many gone as a ring has room for, and as many that name others.
#[test]
fn the_newest_entry_of_a_ring_is_found() {
    static RUNS: Count = Count::new();
    let machine = loud::<4>();
    let puppet = machine.platform().0;
    for behind in 0..=3 * ROOM {
        for _ in 0..behind {
            machine.try_post(&mask([1, 2]), |_| ()).unwrap();
            assert!(puppet.deliver(1) && puppet.deliver(2));
        }
        machine.try_post(&mask([3]), |_| RUNS.add()).unwrap();
        assert!(puppet.deliver(3));
        assert_eq!(RUNS.take(), 1, "{behind} before it");
    }
    assert_eq!(machine.watch().total_stats().broadcasts_full, 0);
}

/// The interrupted task gets on in between.
#[test]
fn a_broadcast_that_comes_while_a_function_runs_waits_for_its_interrupt() {
    static RUNS: Count = Count::new();
    let machine = machine::<4>();
    let puppet = machine.platform().0;
    machine
        .try_post(&mask([1]), move |_| {
            machine.set_policy(Policy::BEST.with_broadcast_from(1));
            puppet.as_cpu(2, || machine.try_post(&mask([1]), |_| RUNS.add()).unwrap());
        })
        .unwrap();
    for runs in 0..2 {
        assert!(puppet.deliver(1));
        assert_eq!(RUNS.get(), runs);
    }
}
