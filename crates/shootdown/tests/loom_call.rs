//! loom models of the call layer: I6, I7, I11.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom_machine::*;
use shootdown::calls::{CallData, Wait};
use shootdown::*;

/// A waited call has run when it returns, and what it wrote is visible; the responder acts on
/// interrupts alone, so a missing one would hang the model.
#[test]
fn call_one_returns_after_the_function_ran() {
    check(3, || {
        let machine = online_machine::<2>();
        let responder = on_cpu(&machine, 1, |machine| {
            while !take_interrupt(machine) {
                machine.platform().relax();
            }
        });
        let written = loom::cell::UnsafeCell::new(0);
        struct Shared<'a>(&'a loom::cell::UnsafeCell<u32>);
        // SAFETY: the call orders the target's write before our read; loom checks that.
        unsafe impl Sync for Shared<'_> {}
        let shared = Shared(&written);
        machine
            .call_one(cpu(1), &|_| {
                let shared = &shared;
                shared.0.with_mut(|value| {
                    // SAFETY: as above.
                    unsafe { *value = 7 }
                });
            })
            .unwrap();
        // SAFETY: as above.
        assert_eq!(written.with(|value| unsafe { *value }), 7);
        responder.join().unwrap();
    });
}

/// Two initiators post to one responder: both calls run, whoever found the inbox already rung (I7).
#[test]
fn two_initiators_lose_no_call() {
    two_initiators_post_to_one(online_machine);
}

/// One function slot, three posts: each payload arrives whole, once, and in order (I6).
#[test]
fn a_reused_slot_is_neither_torn_nor_lost() {
    copies_arrive_whole_and_in_order(online_machine, 3);
}

/// A responder that comes for one slot may meet another one that is being published, before its inbox bit is
/// set: it finds nothing or the whole request.
#[test]
fn a_slot_met_through_another_slots_bit_is_whole() {
    check(3, || {
        let machine = online_machine::<2>();
        let space = loom::sync::Arc::new(AddressSpace::new(&machine, tables(1)));
        become_cpu(1);
        machine.switch_to(None, &space);
        become_cpu(0);
        let stop = flag();
        let inside = space.clone();
        let responder = on_cpu(&machine, 1, move |machine| {
            idle_until(machine, || stop.load(Ordering::Acquire));
            machine.switch_away(&inside, NO_USER);
        });
        _ = machine.submit(&CpuMask::only(cpu(1)), |_| {}, Wait::None);
        machine.flush(&*space, FlushRange::WHOLE, FreedTables::Yes);
        tell(&machine, 1, stop);
        responder.join().unwrap();
    });
}

/// A ticket tracks its own request: it completes after its call ran, also when its slot was refilled since.
#[test]
fn a_ticket_outlives_the_reuse_of_its_slot() {
    check(3, || {
        let machine = online_machine::<2>();
        let ran = counter();
        let responder = idler(&machine, 1, move || ran.load(Ordering::Relaxed) == 2);
        let count = move |_: CpuId| {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        let target = CpuMask::only(cpu(1));
        let first = machine.submit(&target, count, Wait::Done);
        let second = machine.submit(&target, count, Wait::Done);
        first.wait();
        assert!(
            ran.load(Ordering::Relaxed) >= 1,
            "the first wait returned early"
        );
        second.wait();
        assert_eq!(
            ran.load(Ordering::Relaxed),
            2,
            "the second wait returned early"
        );
        responder.join().unwrap();
    });
}

/// A waiter on another CPU that learns of the end of its call only by the slot's next use sees what the call
/// wrote all the same.
#[test]
fn a_waiter_that_meets_the_next_request_sees_the_last_ones_work() {
    struct Shared(loom::cell::UnsafeCell<u32>);
    // SAFETY: the wait orders the target's write before the waiter's read; loom checks that.
    unsafe impl Sync for Shared {}
    check(2, || {
        let machine: &'static Machine<3> = Box::leak(Box::new(machine_with(0)));
        online_all(machine, 3);
        let shared: &'static Shared = Box::leak(Box::new(Shared(loom::cell::UnsafeCell::new(0))));
        let ran = counter();
        let responder = loom::thread::spawn(move || {
            become_cpu(1);
            idle_until(machine, || ran.load(Ordering::Relaxed) == 2);
        });
        let ticket = machine.submit(
            &CpuMask::only(cpu(1)),
            move |_| {
                // SAFETY: as above.
                shared.0.with_mut(|value| unsafe { *value = 7 });
                ran.fetch_add(1, Ordering::Relaxed);
            },
            Wait::Done,
        );
        let waiter = loom::thread::spawn(move || {
            become_cpu(2);
            // One look: `wait` would block on an event of the initiator's CPU.
            if ticket.is_done() {
                // SAFETY: as above.
                assert_eq!(shared.0.with(|value| unsafe { *value }), 7);
            }
            core::mem::forget(ticket);
        });
        _ = machine.submit(
            &CpuMask::only(cpu(1)),
            move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            },
            Wait::None,
        );
        waiter.join().unwrap();
        responder.join().unwrap();
    });
}

/// Two CPUs call each other and take no interrupts while they wait: each serves its inbox. (Afterwards each
/// takes interrupts until the other is done, as an idle CPU would.)
#[test]
fn waiters_with_interrupts_off_serve_each_other() {
    waiters_serve_each_other(online_machine);
}

/// A CPU that is coming online is either not named by a call, or serves it.
#[test]
fn a_cpu_is_not_called_before_it_is_ready() {
    check(3, || {
        let machine = machine::<2>();
        become_cpu(0);
        machine.online();
        let stop = flag();
        let is_online = flag();
        let late = on_cpu(&machine, 1, move |machine| {
            is_online.store(true, Ordering::Relaxed);
            machine.online();
            idle_until(machine, || stop.load(Ordering::Acquire));
        });
        let ran = machine.call_many(CallTargets::Online, &|me| {
            assert!(me == cpu(0) || is_online.load(Ordering::Relaxed))
        });
        assert!(ran.contains(cpu(0)));
        tell(&machine, 1, stop);
        late.join().unwrap();
    });
}

/// An idle CPU that polls is called without an interrupt, whether it still polls or has just stopped (I7).
#[test]
fn a_call_to_a_cpu_that_stops_polling_arrives() {
    check(3, || {
        let machine = online_machine::<2>();
        let ran = counter();
        let idler = on_cpu(&machine, 1, move |machine| {
            machine.poll_idle(|idle| _ = idle.has_work());
            idle_until(machine, || ran.load(Ordering::Relaxed) == 1);
        });
        _ = machine.submit(
            &CpuMask::only(cpu(1)),
            move |_| {
                ran.fetch_add(1, Ordering::Relaxed);
            },
            Wait::None,
        );
        idler.join().unwrap();
    });
}

/// Two CPUs post data to a third one at once, which takes them when it is interrupted: each runs once, and sees what its caller
/// wrote before.
#[test]
fn two_cpus_post_their_data_to_one() {
    check(3, || {
        let machine = online_machine::<3>();
        let sum = counter();
        let post = move |machine: &Machine<3>, amount: u64| {
            let written: &'static loom::cell::UnsafeCell<u64> =
                Box::leak(Box::new(loom::cell::UnsafeCell::new(0)));
            // SAFETY: nobody else knows it yet; loom checks that.
            written.with_mut(|value| unsafe { *value = amount });
            let shared = Shared(written);
            let data = CallData::new(move |_| {
                sum.fetch_add(shared.get(), Ordering::Relaxed);
            });
            let data = Box::leak(Box::new(data));
            machine.post_data(cpu(2), data).unwrap();
        };
        let other = on_cpu(&machine, 1, move |machine| post(machine, 1));
        let responder = idler(&machine, 2, move || sum.load(Ordering::Relaxed) == 11);
        post(&machine, 10);
        other.join().unwrap();
        responder.join().unwrap();
    });
}

#[derive(Clone, Copy)]
struct Shared(&'static loom::cell::UnsafeCell<u64>);

// SAFETY: the posting orders the write before the reads; loom checks that.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> u64 {
        // SAFETY: as above.
        self.0.with(|value| unsafe { *value })
    }
}

/// Data that are posted again while they are taken run once for each posting.
#[test]
fn data_are_posted_again_when_they_have_been_taken() {
    check(3, || {
        let machine = online_machine::<2>();
        let runs = counter();
        let wanted = counter();
        let responder = idler(&machine, 1, move || {
            let wanted = wanted.load(Ordering::Acquire);
            wanted != 0 && runs.load(Ordering::Relaxed) == wanted
        });
        let count = move |_: CpuId| {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let data = Box::leak(Box::new(CallData::new(count)));
        let posted = (0..2)
            .filter(|_| machine.post_data(cpu(1), data).is_ok())
            .count();
        wanted.store(posted as u64, Ordering::Release);
        wake(&machine, 1);
        responder.join().unwrap();
    });
}

/// CPU 2 flushes and then lets go of what a function, which CPU 1 has called on CPU 0, spins for with interrupts off. CPU 0 may have taken both
/// out of its inbox before it runs the function.
#[test]
fn a_function_that_polls_serves_a_flush_that_was_found_with_it() {
    check(2, || {
        let machine = online_machine::<3>();
        let (free, ran) = (flag(), flag());
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        machine.switch_to(None, &space);
        let caller = on_cpu(&machine, 1, move |machine| {
            let spin = |_| {
                while !free.load(Ordering::Acquire) {
                    machine.poll();
                    machine.platform().relax();
                }
            };
            machine.call_one(cpu(0), &spin).unwrap();
            tell(machine, 0, ran);
        });
        let holder = {
            let space = space.clone();
            on_cpu(&machine, 2, move |machine| {
                machine.flush(&*space, page(0), FreedTables::No);
                tell(machine, 0, free);
            })
        };
        idle_until(&machine, || ran.load(Ordering::Acquire));
        caller.join().unwrap();
        holder.join().unwrap();
        machine.switch_away(&space, NO_USER);
    });
}

/// A call that may be given up while its target comes; then its slot is another one's.
fn a_call_is_given_up_or_runs(next: fn(&Machine<2>, &'static AtomicU64)) {
    check(3, move || {
        let machine = online_machine::<2>();
        let (first, second) = (counter(), counter());
        let done = flag();
        let responder = idler(&machine, 1, move || done.load(Ordering::Acquire));
        let copy = [3, !3, 3];
        let ticket = machine.control().try_submit(cpu(1), move |_| {
            assert_eq!(copy, [3, !3, 3], "a torn payload");
            first.fetch_add(1, Ordering::Relaxed);
        });
        let begun = ticket.unwrap().give_up().err();
        let expected = u64::from(begun.is_some());
        begun.map(shootdown::calls::CallTicket::wait);
        assert_eq!(first.load(Ordering::Relaxed), expected);
        next(&machine, second);
        assert_eq!(second.load(Ordering::Relaxed), 1);
        tell(&machine, 1, done);
        responder.join().unwrap();
        assert_eq!(first.load(Ordering::Relaxed), expected, "it ran later");
        assert_eq!(second.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_call_is_given_up_and_its_slot_is_a_calls() {
    a_call_is_given_up_or_runs(|machine, ran| {
        let count = move |_: CpuId| _ = ran.fetch_add(1, Ordering::Relaxed);
        machine.call_one(cpu(1), &count).unwrap();
    });
}

#[test]
fn a_call_is_given_up_and_its_slot_is_one_of_the_same_kind() {
    a_call_is_given_up_or_runs(|machine, ran| {
        let copy = [7, !7, 7];
        let ticket = machine.control().try_submit(cpu(1), move |_| {
            assert_eq!(copy, [7, !7, 7], "a torn payload");
            ran.fetch_add(1, Ordering::Relaxed);
        });
        ticket.unwrap().wait();
    });
}

/// The slot has the call of another target next, which is given up, too, or runs there.
#[test]
fn a_call_that_was_given_up_is_not_begun_for_another() {
    check(2, || {
        let machine = online_machine::<3>();
        let (first, second) = (counter(), counter());
        let done = [1, 2].map(|_| flag());
        let responders = [1, 2].map(|number| {
            let done = done[number - 1];
            idler(&machine, number as u32, move || {
                done.load(Ordering::Acquire)
            })
        });
        let submit = |target, ran: &'static AtomicU64| {
            let count = move |me: CpuId| {
                assert_eq!(me, cpu(target), "another's call");
                ran.fetch_add(1, Ordering::Relaxed);
            };
            machine.control().try_submit(cpu(target), count).unwrap()
        };
        let begun = submit(1, first).give_up().err();
        let expected = u64::from(begun.is_some());
        begun.map(shootdown::calls::CallTicket::wait);
        submit(2, second).wait();
        for (index, responder) in responders.into_iter().enumerate() {
            tell(&machine, index as u32 + 1, done[index]);
            responder.join().unwrap();
        }
        assert_eq!(first.load(Ordering::Relaxed), expected);
        assert_eq!(second.load(Ordering::Relaxed), 1);
    });
}
