//! Behaviour of CPUs that poll while they are idle, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::calls::PollIdle;
use shootdown::*;

fn a_polling_cpu_is_not_interrupted<const N: usize>()
where
    Cpus<N>: Capacity,
{
    // Not a static item: both sizes, whose tests run side by side, would have the same.
    let runs: &'static Count = Box::leak(Box::default());
    let (machine, puppet) = with_puppet::<N>();
    let count = move |_: CpuId| runs.add();
    let last = N as u32 - 1;
    puppet.as_cpu(last, || {
        machine.poll_idle(|idle| {
            assert!(!idle.has_work());
            for initiator in 0..last.min(3) {
                puppet.as_cpu(initiator, || {
                    machine.try_post(&mask([last]), count).unwrap()
                });
                assert!(idle.has_work());
            }
            assert!(puppet.sent.take().is_empty(), "nobody sends an interrupt");
        });
        assert_eq!(runs.take(), last.min(3));
    });
    machine.try_post(&mask([last]), count).unwrap();
    assert_eq!(puppet.sent.take(), [(0, last)], "it may be halted now");
    puppet.deliver(last);
    assert_eq!(runs.take(), 1);
}

#[test]
fn a_polling_cpu_of_few_is_not_interrupted() {
    a_polling_cpu_is_not_interrupted::<4>();
}

#[test]
fn a_polling_cpu_of_many_is_not_interrupted() {
    a_polling_cpu_is_not_interrupted::<128>();
}

/// An interrupt in the middle ends the promise; the next look makes it again and misses nothing.
#[test]
fn an_interrupt_while_polling_is_harmless() {
    static RUNS: Count = Count::new();
    let (machine, puppet) = with_puppet::<4>();
    let count = |_: CpuId| RUNS.add();
    let polls = |idle: &PollIdle<'_, _>| {
        puppet.interrupt_now(1);
        puppet.as_cpu(2, || machine.try_post(&mask([1]), count).unwrap());
        assert!(
            !puppet.is_interrupted(1),
            "it found nothing, and changed nothing"
        );
        puppet.interrupt_now(1);
        puppet.as_cpu(2, || machine.try_post(&mask([1]), count).unwrap());
        assert!(puppet.is_interrupted(1));
        assert!(idle.has_work());
        puppet.as_cpu(3, || machine.try_post(&mask([1]), count).unwrap());
        puppet.sent.take();
    };
    puppet.as_cpu(1, || machine.poll_idle(polls));
    assert_eq!(RUNS.get(), 3);
    puppet.deliver(1);
    assert_eq!(RUNS.get(), 3);
}

/// A broadcast interrupts who polls, too; who has seen it need not wait for the interrupt, also where a lock has seen it first, and left the function.
#[test]
fn a_broadcast_that_has_been_seen_is_served_at_the_end_of_polling() {
    static RUNS: Count = Count::new();
    for takes_a_lock in [false, true] {
        let (machine, puppet) = with_puppet::<4>();
        machine.set_policy(Policy::BEST.with_broadcast_from(1));
        let count = |_: CpuId| RUNS.add();
        let polls = |idle: &PollIdle<'_, _>| {
            puppet.as_cpu(2, || machine.try_post(&mask([1]), count).unwrap());
            assert_eq!(puppet.sent.take(), [(2, 1)]);
            if takes_a_lock {
                machine.poll();
            }
            assert!(idle.has_work());
        };
        puppet.as_cpu(1, || machine.poll_idle(polls));
        assert_eq!(RUNS.take(), 1, "served without the interrupt");
        puppet.deliver(1);
        assert_eq!(RUNS.take(), 0);
    }
}

/// The inbox of a CPU is served by that CPU only.
#[test]
fn a_task_that_idles_stays_on_its_cpu() {
    let (machine, puppet) = with_puppet::<2>();
    machine.poll_idle(|idle| {
        assert!(refuses(|| puppet.as_cpu(1, || idle.has_work())));
    });
    assert!(refuses(|| machine.poll_idle(|_| puppet.migrate(1))));
}

/// Whatever the closure does with what it is lent, interrupts are sent again behind it (I7): also where it unwinds.
#[test]
fn a_poll_that_unwinds_lets_the_doorbell_go() {
    let (machine, puppet) = with_puppet::<2>();
    let unwinds = || machine.poll_idle(|_| panic!("on purpose"));
    assert!(puppet.as_cpu(1, || refuses(unwinds)));
    machine.try_post(&mask([1]), |_| ()).unwrap();
    assert_eq!(puppet.sent.take(), [(0, 1)]);
}

fn who_posts_writes_the_doorbell<const N: usize>()
where
    Cpus<N>: Capacity,
{
    let (machine, puppet) = with_puppet::<N>();
    let polls = |idle: &PollIdle<'_, _>| {
        let doorbell = idle.doorbell();
        assert!(!doorbell.is_null());
        // SAFETY: it is in the memory of CPU 1, which lives for ever, and nobody writes at the same time.
        let read = || unsafe { doorbell.read_volatile() };
        let before = read();
        puppet.as_cpu(0, || machine.try_post(&mask([1]), |_| ()).unwrap());
        assert_ne!(read(), before);
    };
    puppet.as_cpu(1, || machine.poll_idle(polls));
    assert_eq!(machine.watch().stats(cpu(1)).functions_run, 1);
}

#[test]
fn who_posts_writes_the_doorbell_of_few() {
    who_posts_writes_the_doorbell::<4>();
}

#[test]
fn who_posts_writes_the_doorbell_of_many() {
    who_posts_writes_the_doorbell::<128>();
}
