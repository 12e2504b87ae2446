//! Behaviour of CPUs that die, as those see it that live. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::calls::{CallData, NotReady, PostRefused, Wait};
use shootdown::control::Unserved;
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
