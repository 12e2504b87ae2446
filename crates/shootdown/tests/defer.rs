//! Behaviour of deferral: whom flushes leave alone, and what is dropped later. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use shootdown::Cpus;
use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::*;

const DEFERS: Policy = Policy::BEST.with_deferral(true);

/// Two CPUs have a space loaded in which page 0 is frame 10, and both have used it; CPU 1 has entered the kernel.
fn deferring_pair(policy: Policy) -> (&'static Machine<2>, Space<2>) {
    let machine = online(tagged::<2>(8));
    machine.set_policy(policy);
    let space = Space::new(machine, 1);
    let puppet = machine.platform();
    puppet.map_in(space.root(), 0, 10);
    for number in 0..2 {
        puppet.as_cpu(number, || machine.switch_to(None, &space));
        assert_eq!(puppet.access(number, 0), 10);
    }
    let defers = puppet.as_cpu(1, || machine.user_memory().defer_flushes(&space));
    assert_eq!(defers, policy.defers());
    (machine, space)
}

/// CPU 0 gives page 0 another frame.
fn remap(machine: &Machine<2>, space: &AddressSpace<Cpus<2>>, frame: u64, freed: FreedTables) {
    machine.platform().map_in(space.root(), 0, frame);
    machine.flush(space, pages(0, 1), freed);
}

#[test]
fn a_deferring_cpu_is_left_alone_and_catches_up() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    assert!(puppet.as_cpu(1, || !machine.user_memory().access_ok(space.id())));
    remap(machine, &space, 11, FreedTables::No);
    remap(machine, &space, 12, FreedTables::No);
    let stats = machine.watch().stats(cpu(0));
    assert_eq!((stats.ipis_sent, stats.deferring_skipped), (0, 2));
    assert_eq!(stats.lazy_skipped, 0);
    puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    assert!(puppet.as_cpu(1, || machine.user_memory().access_ok(space.id())));
    assert_eq!(machine.watch().stats(cpu(1)).full_flushes, 1);
    assert_eq!(puppet.access(1, 0), 12);
    // From now on it is a target again.
    remap(machine, &space, 13, FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
    assert_eq!(puppet.access(1, 0), 13);
}

#[test]
fn a_deferring_cpu_that_missed_nothing_drops_nothing() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    puppet.flushes.take();
    for _ in 0..2 {
        puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    }
    assert!(puppet.flushes.take().is_empty());
}

#[test]
fn freed_tables_reach_a_deferring_cpu() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    remap(machine, &space, 11, FreedTables::Yes);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
    // It flushed there and then, and stays in the space.
    assert_eq!(puppet.root_of(1), 1);
    puppet.flushes.take();
    puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    assert!(puppet.flushes.take().is_empty());
    assert_eq!(puppet.access(1, 0), 11);
}

#[test]
fn a_deferring_cpu_may_go_elsewhere_and_come_back() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    let other = Space::new(machine, 2);
    remap(machine, &space, 11, FreedTables::No);
    puppet.as_cpu(1, || machine.switch_to(Some(&space), &other));
    assert!(puppet.as_cpu(1, || machine.user_memory().access_ok(other.id())));
    puppet.as_cpu(1, || machine.switch_to(Some(&other), &space));
    // Its tag had missed the flush.
    assert_eq!(puppet.access(1, 0), 11);
}

/// Who was passed by must catch up whatever the policy has become since.
#[test]
fn a_deferring_cpu_catches_up_under_any_policy() {
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        let (machine, space) = deferring_pair(DEFERS);
        let puppet = machine.platform();
        remap(machine, &space, 11, FreedTables::No);
        machine.set_policy(policy);
        puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
        assert!(puppet.as_cpu(1, || machine.user_memory().access_ok(space.id())));
        assert_eq!(puppet.access(1, 0), 11, "{policy:?}");
        remap(machine, &space, 12, FreedTables::No);
        assert_eq!(puppet.access(1, 0), 12, "{policy:?}");
    }
}

/// What has passed it by may be used by no NMI either, until it is dropped; also where no back end flushes, which is a reason to deny, too.
#[test]
fn a_deferring_cpu_that_switches_denies_user_access_until_it_has_flushed() {
    for has_no_back_end in [false, true] {
        let (machine, space) = deferring_pair(DEFERS);
        let puppet = machine.platform();
        puppet.has_no_back_end.store(has_no_back_end, Relaxed);
        remap(machine, &space, 11, FreedTables::No);
        puppet.nmis_ask_about(space.id());
        puppet.user_access_denied.take();
        puppet.as_cpu(1, || machine.switch_to(Some(&space), &space));
        let denied = puppet.user_access_denied.take();
        let flush = Moment::Flush(LocalFlush::Space);
        assert_eq!(denied, [flush, flush], "before the flush and after it");
        assert!(puppet.as_cpu(1, || machine.user_memory().access_ok(space.id())));
        assert_eq!(puppet.access(1, 0), 11);
    }
}

#[test]
fn a_deferring_cpu_may_become_lazy() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    puppet.as_cpu(1, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    remap(machine, &space, 11, FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).lazy_skipped, 1);
    puppet.as_cpu(1, || machine.switch_to(Some(&space), &space));
    assert_eq!(puppet.access(1, 0), 11);
}

#[test]
fn an_initiator_may_defer_its_own_flushes() {
    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform();
    puppet.map_in(space.root(), 0, 11);
    puppet.as_cpu(1, || machine.flush(&space, pages(0, 1), FreedTables::No));
    assert_eq!(puppet.access(0, 0), 11);
    puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    assert_eq!(puppet.access(1, 0), 11);
}

/// A CPU that deferred under one policy is safe under another, and other policies never defer.
#[test]
fn policies_that_do_not_defer_interrupt() {
    let (machine, space) = deferring_pair(Policy::BEST);
    remap(machine, &space, 11, FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);

    let (machine, space) = deferring_pair(DEFERS);
    let puppet = machine.platform().0;
    machine.set_policy(Policy::BEST.with_lazy(false));
    remap(machine, &space, 11, FreedTables::No);
    assert_eq!(machine.watch().stats(cpu(0)).ipis_sent, 1);
    puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    assert_eq!(puppet.access(1, 0), 11);
}

#[test]
#[should_panic(expected = "but the caller catches up with")]
fn catching_up_names_what_was_deferred() {
    let (machine, space) = deferring_pair(DEFERS);
    // It is loaded for ever: its end would be a second panic.
    let _space = std::mem::ManuallyDrop::new(space);
    let other = Space::new(machine, 2);
    machine
        .platform()
        .as_cpu(1, || machine.user_memory().catch_up(&other));
}
