//! Behaviour of CPUs that die, as those see it that live. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use puppet::*;
use shootdown::calls::{CallData, NotReady, PostRefused, Wait};
use shootdown::control::Unserved;
use shootdown::guest::{GuestExit, GuestSpace, Vcpu};
use shootdown::secondary::Held;
use shootdown::*;

fn declare(machine: &Machine<4>, cpus: &[u32]) -> Unserved {
    // SAFETY: 1. to 3. the puppet does not go on as these CPUs, but where a test says so.
    unsafe { machine.control().declare_dead(&mask(cpus.iter().copied())) }
}

/// CPU 3 takes no interrupts, and CPU 1 declares it dead while CPU 0 waits.
fn dies_meanwhile(machine: &'static Machine<4>, puppet: &'static Puppet) {
    puppet.deafen(3);
    puppet.at_next_relax(move || puppet.as_cpu(1, || _ = declare(machine, &[3])));
}

#[test]
fn who_waits_for_a_dead_cpu_goes_on() {
    for broadcast_from in [0, 1] {
        let (machine, puppet) = with_puppet::<4>();
        machine.set_policy(Policy::BEST.with_broadcast_from(broadcast_from));
        dies_meanwhile(machine, puppet);
        let ran = AtomicU32::new(0);
        let count = |_: CpuId| _ = ran.fetch_add(1, Relaxed);
        let all = machine.call_many(CallTargets::Online, &count);
        assert_eq!((all, ran.into_inner()), (mask([0, 1, 2]), 3));
        assert_eq!(machine.ready_cpus(), mask([0, 1, 2]));
        let gone = Err(NotReady { cpu: cpu(3) });
        assert_eq!(machine.call_one(cpu(3), &|_| ()), gone);
        machine.flush(FlushScope::Kernel, pages(0, 1), FreedTables::No);
        assert!(machine.control().is_settled(cpu(3)));
    }
}

#[test]
fn a_call_that_it_was_running_is_an_error() {
    let (machine, puppet) = with_puppet::<4>();
    dies_meanwhile(machine, puppet);
    let gone = Err(NotReady { cpu: cpu(3) });
    assert_eq!(machine.call_one(cpu(3), &|_| ()), gone);
}

/// Those that wait are counted, and those that nobody waits for; data may be posted again, to another CPU.
#[test]
fn what_it_has_not_run_is_counted() {
    static DATA: CallData<fn(CpuId)> = CallData::new(|_| ());
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(3);
    puppet.as_cpu(3, || assert!(machine.try_post(&mask([3]), |_| ()).is_ok()));
    machine.submit(&mask([2, 3]), |_| (), Wait::None).wait();
    assert_eq!(machine.post_data(cpu(3), &DATA), Ok(()));
    assert_eq!(machine.post_data(cpu(3), &DATA), Err(PostRefused::Busy));
    assert_eq!(declare(machine, &[3]), Unserved { calls: 1, data: 2 });
    assert_eq!(declare(machine, &[3]), Unserved::default());
    assert_eq!(machine.post_data(cpu(2), &DATA), Ok(()));
    puppet.deliver_all();
    assert!(!DATA.is_posted());
}

/// In a broadcast the last CPU of a leaf answers for all of it: here one that lives, after the dead one was answered for.
#[test]
fn a_call_that_a_mate_of_its_leaf_ends_is_counted() {
    let (machine, puppet) = with_puppet::<4>();
    machine.set_policy(Policy::BEST.with_broadcast_from(1));
    puppet.deafen(2);
    puppet.deafen(3);
    let call = machine.submit(CallTargets::Online, |_| (), Wait::Done);
    puppet.at_next_relax(|| puppet.hear_again(2));
    assert_eq!(declare(machine, &[3]), Unserved { calls: 1, data: 0 });
    call.wait();
}

/// Its bit is in the set of the space that it had loaded until that is flushed, and nobody waits for it.
#[test]
fn a_space_forgets_it_at_the_next_flush() {
    let (machine, puppet) = with_puppet::<4>();
    let space = AddressSpace::new(machine, tables(1));
    for number in [2, 3] {
        puppet.as_cpu(number, || machine.switch_to(None, &space));
    }
    puppet.deafen(3);
    declare(machine, &[3]);
    assert_eq!(space.cpus(), mask([2, 3]));
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    assert_eq!(space.cpus(), mask([2]));
    puppet.as_cpu(2, || machine.switch_away(&space, KERNEL_ROOT));
    // And goes, though the dead one never left.
    drop(space);
}

#[test]
fn one_that_goes_on_is_stopped() {
    let (machine, puppet) = with_puppet::<4>();
    declare(machine, &[3]);
    assert!(refuses(|| puppet.interrupt_now(3)));
    assert!(refuses(|| puppet.as_cpu(0, || declare(machine, &[0, 1]))));
}

#[test]
fn it_comes_back_after_a_reset() {
    let (machine, puppet) = with_puppet::<4>();
    let space = AddressSpace::new(machine, tables(1));
    puppet.as_cpu(3, || {
        machine.switch_to(None, &space);
        machine.user_memory().enter_lazy(&space, KERNEL_ROOT);
    });
    puppet.deafen(3);
    machine.submit(&mask([3]), |_| (), Wait::None).wait();
    declare(machine, &[3]);
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    puppet.as_cpu(3, || machine.online());
    puppet.hear_again(3);
    assert_eq!(machine.call_one(cpu(3), &|_| ()), Ok(()));
    puppet.as_cpu(3, || machine.switch_to(None, &space));
    assert_eq!(space.cpus(), mask([3]));
    puppet.as_cpu(3, || machine.switch_away(&space, KERNEL_ROOT));
}

fn lose(machine: &Machine<4>, cpus: &[u32]) {
    // SAFETY: 1. and 3. the puppet does not go on as these CPUs.
    _ = unsafe { machine.control().declare_lost(&mask(cpus.iter().copied())) };
}

/// What is returned only if nothing holds it.
fn try_flush<'s>(
    machine: &'static Machine<4>,
    scope: impl Into<FlushScope<'s, Cpus<4>>>,
) -> Result<&'static str, Held<'static, Seat<4>, &'static str>> {
    let ticket = machine.submit_flush(scope, pages(0, 1), FreedTables::No);
    ticket.hold("frame").try_wait()
}

/// CPU 3 has loaded a space, and is lost. What it may walk stays until it is declared dead.
#[test]
fn what_a_lost_cpu_may_walk_is_held() {
    let (machine, puppet) = with_puppet::<4>();
    let [space, other] = [1, 2].map(|number| AddressSpace::new(machine, tables(number)));
    puppet.as_cpu(3, || machine.switch_to(None, &space));
    puppet.as_cpu(2, || machine.switch_to(None, &other));
    puppet.deafen(3);
    lose(machine, &[3]);
    assert_eq!(try_flush(machine, &other).unwrap(), "frame");
    let [mut held, kernel] = [
        try_flush(machine, &space).unwrap_err(),
        try_flush(machine, FlushScope::Kernel).unwrap_err(),
    ];
    held = held.retry().unwrap_err();
    assert_eq!(space.cpus(), mask([3]));
    drop(kernel);
    assert_eq!(machine.watch().total_stats().leaks, 1);
    assert!(refuses(|| machine.flush(
        &space,
        pages(0, 1),
        FreedTables::No
    )));
    assert_eq!(machine.watch().total_stats().leaks, 2);
    // Its bit is not enough for a guest.
    let guest = GuestSpace::new(machine, tables(3));
    assert_eq!(try_flush(machine, &guest).unwrap(), "frame");
    // It has been reset.
    declare(machine, &[3]);
    assert_eq!(held.retry().unwrap(), "frame");
    assert_eq!(try_flush(machine, &space).unwrap(), "frame");
    assert_eq!(space.cpus(), CpuMask::EMPTY);
    puppet.as_cpu(2, || machine.switch_away(&other, KERNEL_ROOT));
}

/// A flush that waits for it ends, and frees nothing.
#[test]
fn a_flush_under_way_is_held_where_a_cpu_is_lost() {
    let (machine, puppet) = with_puppet::<4>();
    let space = AddressSpace::new(machine, tables(1));
    puppet.as_cpu(3, || machine.switch_to(None, &space));
    puppet.deafen(3);
    puppet.at_next_relax(move || puppet.as_cpu(1, || lose(machine, &[3])));
    let held = try_flush(machine, &space).unwrap_err();
    assert_eq!(machine.ready_cpus(), mask([0, 1, 2]));
    declare(machine, &[3]);
    assert_eq!(held.retry().unwrap(), "frame");
    machine.flush(&space, pages(0, 1), FreedTables::No);
}

/// It does not come back before it is declared dead.
#[test]
fn a_lost_cpu_comes_back_when_it_is_dead() {
    let (machine, puppet) = with_puppet::<4>();
    puppet.deafen(3);
    lose(machine, &[3]);
    puppet.hear_again(3);
    puppet.as_cpu(3, || {
        puppet.set_irqs_off(true);
        assert!(refuses(|| machine.online()));
    });
    declare(machine, &[3]);
    puppet.as_cpu(3, || machine.online());
    assert_eq!(machine.ready_cpus(), mask([0, 1, 2, 3]));
}

/// One that died as it told a listener something keeps nobody from listening.
#[test]
fn nobody_waits_for_one_that_died_in_a_notice() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let (machine, puppet) = with_puppet::<4>();
    let space: &'static _ = Box::leak(Box::new(AddressSpace::new(machine, tables(1))));
    let tlbs = machine.secondary_tlbs();
    tlbs.listen(space, 7);
    puppet.when_told_next(move || {
        // Here CPU 3 stops.
        puppet.as_cpu(0, || {
            puppet.deafen(3);
            declare(machine, &[3]);
            machine.secondary_tlbs().unlisten(space);
            machine.secondary_tlbs().listen(space, 8);
        });
        // What would wait for ever panics on the puppet.
        IS_OVER.store(true, Relaxed);
        std::panic::resume_unwind(Box::new(()));
    });
    puppet.as_cpu(3, || {
        let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            machine.flush(space, pages(0, 1), FreedTables::No);
        }));
        assert!(flushed.is_err() && IS_OVER.load(Relaxed));
    });
    tlbs.unlisten(space);
}

/// One that is lost in guest mode may walk the nested tables.
#[test]
fn what_a_cpu_that_was_lost_in_its_guest_may_walk_is_held() {
    let (machine, puppet) = with_puppet::<4>();
    let [guest, other] = [3, 4].map(|number| GuestSpace::new(machine, tables(number)));
    let mut vcpu = Vcpu::new(machine, &guest);
    let enter = |_| {
        puppet.as_cpu(0, || {
            lose(machine, &[3]);
            drop(try_flush(machine, &guest).unwrap_err());
            assert_eq!(try_flush(machine, &other).unwrap(), "frame");
            declare(machine, &[3]);
            assert_eq!(try_flush(machine, &guest).unwrap(), "frame");
        });
        GuestExit::Ran(())
    };
    // SAFETY: 1. to 3. it enters nothing.
    puppet.as_cpu(3, || unsafe { guest.run(machine, &mut vcpu, enter) });
}
