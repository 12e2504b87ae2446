//! loom models of requests that are announced in rings: I5 to I8, I11. A model's ring has room for two.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_machine::*;
use shootdown::calls::Wait;
use shootdown::*;

/// A machine that broadcasts everything, with all CPUs online.
fn loud<const N: usize>() -> Arc<Machine<N>>
where
    Cpus<N>: Capacity,
{
    let machine = machine::<N>();
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    online_all(&machine, N as u32);
    machine
}

/// Two initiators announce to one responder at once; each call runs, once, whoever came first and whatever the
/// responder saw of the second entry while it heard the first (I7).
#[test]
fn two_initiators_lose_no_broadcast() {
    two_initiators_post_to_one(loud);
}

/// Entries are used again while the responder may still be reading those of the lap before: each payload arrives whole, once,
/// and in order (I6).
#[test]
fn a_ring_that_goes_round_neither_loses_nor_repeats() {
    copies_arrive_whole_and_in_order(loud, 4);
}

/// The last of several targets tells the initiator for all of them: when it does, what the others did is visible (I11).
fn the_last_target_speaks_for<const N: usize>(named: [u32; 2], policy: Policy)
where
    Cpus<N>: Capacity,
{
    struct Shared([loom::cell::UnsafeCell<u32>; 4]);
    // SAFETY: the call orders each target's write of its own cell before our reads; loom checks that.
    unsafe impl Sync for Shared {}
    check(2, move || {
        let machine = machine::<N>();
        machine.set_policy(policy);
        online_all(&machine, 4.min(N as u32));
        let shared: &'static Shared = Box::leak(Box::new(Shared(std::array::from_fn(|_| {
            loom::cell::UnsafeCell::new(0)
        }))));
        let responders = named.map(|number| {
            on_cpu(&machine, number, |machine| {
                while !take_interrupt(machine) {
                    machine.platform().relax();
                }
            })
        });
        let targets = named.into_iter().map(cpu).collect();
        machine.call_many(&targets, &|me| {
            shared.0[me.index()].with_mut(|value| {
                // SAFETY: as above.
                unsafe { *value = 7 }
            });
        });
        for target in named {
            // SAFETY: as above.
            let seen = shared.0[target as usize].with(|value| unsafe { *value });
            assert_eq!(seen, 7);
        }
        for responder in responders {
            responder.join().unwrap();
        }
    });
}

#[test]
fn the_last_target_speaks_for_all() {
    the_last_target_speaks_for::<3>([1, 2], Policy::BEST.with_broadcast_from(1));
}

/// Groups of two CPUs: the targets are one group, or two, of which each has a bit for itself.
#[test]
fn the_last_target_of_a_group_speaks_for_it() {
    let quiet = Policy::BEST.with_broadcast_from(0);
    the_last_target_speaks_for::<5>([2, 3], quiet);
    the_last_target_speaks_for::<5>([1, 2], quiet);
}

/// The same by the rings of the groups.
#[test]
fn the_last_target_of_a_ring_speaks_for_it() {
    let loud = Policy::BEST.with_broadcast_from(1);
    the_last_target_speaks_for::<5>([2, 3], loud);
    the_last_target_speaks_for::<5>([1, 2], loud);
}

/// A target may find a slot while it is being filled, because it was called for another one: it acknowledges no sooner than the
/// request is whole.
#[test]
fn a_slot_that_is_found_early_completes() {
    check(3, || {
        let machine = machine::<5>();
        machine.set_policy(Policy::BEST.with_broadcast_from(0));
        online_all(&machine, 4);
        let stop = flag();
        let responder = idler(&machine, 3, move || stop.load(Ordering::Acquire));
        let target = CpuMask::only(cpu(3));
        _ = machine.submit(&target, |_| (), Wait::None);
        machine.control().kick(&target).wait();
        tell(&machine, 3, stop);
        responder.join().unwrap();
    });
}

/// A request to a CPU of another group is found by the inbox's second word, and completes although its group is not the first.
#[test]
fn cpus_of_different_groups_call_each_other() {
    check(2, || {
        let machine = machine::<5>();
        machine.set_policy(Policy::BEST.with_broadcast_from(0));
        online_all(&machine, 4);
        let finished: &'static [AtomicBool; 2] =
            Box::leak(Box::new([AtomicBool::new(false), AtomicBool::new(false)]));
        let call = move |machine: &Machine<5>, (mine, other): (usize, u32)| {
            machine.call_one(cpu(other), &|_| {}).unwrap();
            finished[mine].store(true, Ordering::Release);
            wake(machine, other);
            idle_until(machine, || finished[1 - mine].load(Ordering::Acquire));
        };
        let other = on_cpu(&machine, 3, move |machine| call(machine, (1, 0)));
        call(&machine, (0, 3));
        other.join().unwrap();
    });
}

/// One announcement finds the ring full or not, as the responder is slow or quick; either way it arrives once.
#[test]
fn a_full_ring_loses_nothing() {
    check(2, || {
        let machine = loud::<4>();
        let sum = counter();
        // Two fill the ring before the race begins.
        for number in [0, 1] {
            become_cpu(number);
            _ = machine.submit(
                &CpuMask::only(cpu(3)),
                move |_| {
                    sum.fetch_add(1, Ordering::Relaxed);
                },
                Wait::None,
            );
        }
        become_cpu(0);
        let responder = idler(&machine, 3, move || sum.load(Ordering::Relaxed) == 102);
        let third = on_cpu(&machine, 2, move |machine| {
            _ = machine.submit(
                &CpuMask::only(cpu(3)),
                move |_| {
                    sum.fetch_add(100, Ordering::Relaxed);
                },
                Wait::None,
            );
        });
        third.join().unwrap();
        responder.join().unwrap();
    });
}

/// A call that finds the CPU online runs there, once, before it is gone (I8).
#[test]
fn a_broadcast_to_a_cpu_that_leaves_is_run_or_refused() {
    a_call_meets_a_cpu_that_leaves(loud, 3);
}

/// A CPU that is coming online is either not named, or hears what names it.
#[test]
fn who_comes_online_hears_what_names_it() {
    check(3, || {
        let machine = machine::<2>();
        machine.set_policy(Policy::BEST.with_broadcast_from(1));
        become_cpu(0);
        machine.online();
        let stop = flag();
        let late = on_cpu(&machine, 1, move |machine| {
            machine.online();
            idle_until(machine, || stop.load(Ordering::Acquire));
        });
        machine.call_many(CallTargets::Online, &|_| ());
        machine.call_many(CallTargets::Online, &|_| ());
        tell(&machine, 1, stop);
        late.join().unwrap();
    });
}

/// Two CPUs announce to each other and take no interrupts while they wait: each hears the other.
#[test]
fn waiters_with_interrupts_off_hear_each_other() {
    waiters_serve_each_other(loud);
}

/// A flush that is broadcast and acknowledged early: nobody uses the old translation once it is complete (I5).
#[test]
fn a_broadcast_flush_reaches_who_has_loaded_the_space() {
    check(3, || {
        let machine = loud::<2>();
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        let done = flag();
        let inside = space.clone();
        let target = on_cpu(&machine, 1, move |machine| {
            machine.switch_to(None, &inside);
            walk(machine, 0);
            idle_until(machine, || done.load(Ordering::Acquire));
            assert_eq!(walk(machine, 0), 1, "a stale translation");
            machine.switch_away(&inside, NO_USER);
        });
        machine.platform().table[0].store(1, Ordering::Relaxed);
        machine.flush(&*space, page(0), FreedTables::No);
        tell(&machine, 1, done);
        target.join().unwrap();
    });
}

/// An entry that does not name the responder comes before the one that does, and its initiator interrupts somebody else: the
/// responder sees it all the same, and so looks past it.
#[test]
fn who_is_named_second_sees_the_first_entry_too() {
    check(3, || {
        let machine = loud::<3>();
        let (first, second) = (counter(), counter());
        let between = on_cpu(&machine, 1, move |machine| {
            _ = machine.submit(
                &CpuMask::only(cpu(2)),
                move |_| {
                    second.fetch_add(1, Ordering::Relaxed);
                },
                Wait::None,
            );
            idle_until(machine, || first.load(Ordering::Relaxed) == 1);
        });
        let last = idler(&machine, 2, move || second.load(Ordering::Relaxed) == 1);
        _ = machine.submit(
            &CpuMask::only(cpu(1)),
            move |_| {
                first.fetch_add(1, Ordering::Relaxed);
            },
            Wait::None,
        );
        between.join().unwrap();
        last.join().unwrap();
    });
}

/// The pending set is told late of a target that has acknowledged in its leaf. When that CPU comes for another slot of the same
/// initiator, it does not take the bit for one of the request that has the slot next.
#[test]
#[ignore = "takes a minute: `./lab test --soak` and the mutants run it"]
fn an_old_bit_is_not_taken_for_a_new_request() {
    check(2, || {
        let machine = machine::<3>();
        machine.set_policy(Policy::BEST.with_broadcast_from(2));
        online_all(&machine, 3);
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        become_cpu(1);
        machine.switch_to(None, &space);
        become_cpu(0);
        let (both, second) = (counter(), counter());
        let inside = space.clone();
        let first = on_cpu(&machine, 1, move |machine| {
            idle_until(machine, || second.load(Ordering::Relaxed) == 1);
            machine.switch_away(&inside, NO_USER);
        });
        let last = on_cpu(&machine, 2, move |machine| {
            idle_until(machine, || second.load(Ordering::Relaxed) == 1);
            wake(machine, 1);
        });
        let targets = [cpu(1), cpu(2)].into_iter().collect();
        _ = machine.submit(
            &targets,
            move |_| {
                both.fetch_add(1, Ordering::Relaxed);
            },
            Wait::None,
        );
        let range = page(0);
        let flush = machine.submit_flush(&*space, range, FreedTables::Yes);
        _ = machine.submit(
            &CpuMask::only(cpu(2)),
            move |me| {
                assert_eq!(me, cpu(2), "nobody named it");
                second.fetch_add(1, Ordering::Relaxed);
            },
            Wait::None,
        );
        flush.wait();
        first.join().unwrap();
        last.join().unwrap();
    });
}
