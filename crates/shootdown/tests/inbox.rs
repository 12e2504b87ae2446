//! Who is interrupted, and what is found in inboxes. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{CallData, Wait};
use shootdown::*;

/// A machine whose CPUs take interrupts only when they are told to.
fn quiet<const N: usize>() -> (&'static Machine<N>, &'static Puppet)
where
    Cpus<N>: Capacity,
{
    let (machine, puppet) = with_puppet::<N>();
    puppet.deliver_on_relax.store(false, Relaxed);
    (machine, puppet)
}

/// Has CPU `number` flush a kernel page, and does not wait.
fn flush_kernel<const N: usize>(machine: &'static Machine<N>, number: u32)
where
    Cpus<N>: Capacity,
{
    let submit = || machine.submit_flush(FlushScope::Kernel, pages(0, 1), FreedTables::No);
    machine
        .platform()
        .as_cpu(number, || std::mem::forget(submit()));
}

/// The second flush finds the doorbell rung.
#[test]
fn one_interrupt_is_for_all_flushes_that_came_before_it() {
    let (machine, puppet) = quiet::<4>();
    flush_kernel(machine, 0);
    assert_eq!(puppet.sent.take(), [(0, 1), (0, 2), (0, 3)]);
    flush_kernel(machine, 1);
    assert_eq!(puppet.sent.take(), [(1, 0)]);
    puppet.as_cpu(3, || assert!(machine.poll()));
    assert_eq!(machine.watch().stats(cpu(3)).remote_flushes, 2);
}

fn only_those_that_nobody_has_interrupted_are<const N: usize>(targets: [u32; 3])
where
    Cpus<N>: Capacity,
{
    let (machine, puppet) = quiet::<N>();
    let [first, second, third] = targets;
    machine.try_post(&mask([second]), |_| ()).unwrap();
    assert_eq!(puppet.sent.take(), [(0, second)]);
    puppet.as_cpu(1, || machine.try_post(&mask(targets), |_| ()).unwrap());
    assert_eq!(puppet.sent.take(), [(1, first), (1, third)]);
    assert_eq!(machine.watch().stats(cpu(1)).ipis_avoided, 1);
    for target in targets {
        assert!(puppet.deliver(target));
    }
    assert_eq!(machine.watch().total_stats().functions_run, 4);
}

#[test]
fn only_those_that_nobody_has_interrupted_are_of_few() {
    only_those_that_nobody_has_interrupted_are::<8>([2, 3, 4]);
}

#[test]
fn only_those_that_nobody_has_interrupted_are_of_many() {
    only_those_that_nobody_has_interrupted_are::<128>([2, 70, 71]);
}

/// It is no look at all: nothing is taken out and put back.
#[test]
fn a_poll_passes_functions_by() {
    let (machine, puppet) = quiet::<4>();
    machine.try_post(&mask([1]), |_| ()).unwrap();
    puppet.as_cpu(1, || assert!(!machine.poll()));
    assert_eq!(machine.watch().stats(cpu(1)).polls_served, 0);
    assert!(puppet.deliver(1));
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 1);
}

/// The first of three functions polls, while the initiators of the others wait for their turn.
#[test]
fn a_poll_inside_a_function_says_whether_there_was_a_flush() {
    static FIRST: Count = Count::new();
    for flushes in [false, true] {
        let (machine, puppet) = quiet::<4>();
        FIRST.take();
        let function = move |_: CpuId| {
            FIRST.add();
            if FIRST.get() == 1 {
                if flushes {
                    flush_kernel(machine, 3);
                }
                assert_eq!(machine.poll(), flushes);
            }
        };
        for number in 1..4 {
            puppet.as_cpu(number, || machine.try_post(&mask([0]), function).unwrap());
        }
        puppet.as_cpu(1, || assert!(puppet.deliver(0)));
        assert_eq!(FIRST.get(), 3);
    }
}

/// What a waiter has served for others is counted, whatever it was.
#[test]
fn a_waiter_counts_what_it_serves() {
    static DATA: [CallData<fn(CpuId)>; 2] = [const { CallData::new(|_| ()) }; 2];
    let (machine, puppet) = with_puppet::<4>();
    for is_posted in [false, true] {
        puppet.deafen(1);
        puppet.at_next_relax(move || {
            puppet.as_cpu(2, || match is_posted {
                false => machine.try_post(&mask([0]), |_| ()).unwrap(),
                true => machine
                    .post_data(cpu(0), &DATA[0])
                    .map(|()| mask([0]))
                    .unwrap(),
            });
            puppet.at_next_relax(move || puppet.hear_again(1));
        });
        let before = machine.watch().stats(cpu(0));
        assert_eq!(machine.call_one(cpu(1), &|_| ()), Ok(()));
        let after = machine.watch().stats(cpu(0));
        assert_eq!(after.functions_run - before.functions_run, 1);
        assert_eq!(after.polls_served - before.polls_served, 1);
    }
}

#[test]
fn a_ticket_names_those_that_got_the_call() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.as_cpu(2, || machine.offline());
    let ticket = machine.submit(&mask([0, 1, 2]), |_| (), Wait::Done);
    assert_eq!(ticket.targets(), mask([0, 1]));
    assert_eq!(ticket.wait(), mask([0, 1]));
}

/// With 64 words the last two share a bit of the doorbell; with 63 each has its own.
#[test]
#[cfg_attr(miri, ignore = "many CPUs, nothing unsafe")]
fn the_last_of_63_words_has_a_bit_of_its_own() {
    const LAST: u32 = 4031;
    let machine = powered_off::<4032>();
    let puppet = machine.platform().0;
    for number in [0, LAST] {
        puppet.as_cpu(number, || machine.online());
    }
    puppet.as_cpu(LAST, || {
        assert_eq!(machine.call_one(cpu(0), &|_| ()), Ok(()))
    });
    assert_eq!(machine.watch().stats(cpu(0)).functions_run, 1);
}
