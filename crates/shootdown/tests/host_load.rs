//! Switches in two halves: the host loads the root itself. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::*;
use shootdown::{Cpus, tags::*, windows::*};
use std::sync::atomic::Ordering::Relaxed;

type Two<'a> = (
    Option<&'a AddressSpace<Cpus<2>>>,
    Option<&'a AddressSpace<Cpus<2>>>,
);

fn two_spaces(machine: &'static Machine<2>) -> [Space<2>; 2] {
    [1, 2].map(|root| {
        let space = Space::new(machine, root);
        machine.platform().map_in(space.root(), 0, root * 10);
        space
    })
}

/// As a host's context switch loads it.
fn load(machine: &Machine<2>, space: Option<&AddressSpace<Cpus<2>>>) {
    let root = space.map_or(KERNEL_ROOT.as_u64(), AddressSpace::root);
    // SAFETY: 1. a puppet's roots are numbers.
    unsafe {
        machine
            .platform()
            .load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop);
    }
}

fn end_switch(
    machine: &Machine<2>,
    previous: Option<&AddressSpace<Cpus<2>>>,
    next: Option<&AddressSpace<Cpus<2>>>,
) {
    // SAFETY: 1. roots are numbers, and tests of misuse are refused.
    unsafe { machine.host_roots().end_switch(previous, next) };
}

/// The running CPU switches from the first to the second.
fn switch(machine: &Machine<2>, (previous, next): Two<'_>) {
    machine.platform().set_irqs_off(true);
    if machine.host_roots().begin_switch(previous, next) {
        load(machine, next);
        end_switch(machine, previous, next);
    }
    machine.platform().set_irqs_off(false);
}

#[test]
fn a_switch_in_halves_is_a_switch() {
    for tags in [0, 8] {
        let machine = online(tagged::<2>(tags));
        let puppet = machine.platform().0;
        let spaces = two_spaces(machine);
        let [a, b] = spaces.each_ref().map(|space| &**space);
        switch(machine, (None, Some(a)));
        assert_eq!(puppet.access(0, 0), 10);
        puppet.map_in(a.root(), 0, 11);
        puppet.as_cpu(1, || machine.flush(a, pages(0, 1), FreedTables::No));
        assert_eq!(puppet.access(0, 0), 11, "it is a target of its space");
        assert_eq!(
            machine.watch().stats(cpu(0)).pages_flushed,
            1,
            "and of every change"
        );
        switch(machine, (Some(a), Some(b)));
        assert_eq!(puppet.access(0, 0), 20);
        let before = machine.watch().total_stats().ipis_sent;
        puppet.as_cpu(1, || machine.flush(a, pages(0, 1), FreedTables::Yes));
        assert_eq!(
            machine.watch().total_stats().ipis_sent,
            before,
            "it has left the other"
        );
        switch(machine, (Some(b), None));
        puppet.as_cpu(1, || machine.flush(b, pages(0, 1), FreedTables::Yes));
        assert_eq!(
            machine.watch().total_stats().ipis_sent,
            before,
            "and this one"
        );
        assert!(!machine.user_memory().access_ok(b.id()));
    }
}

/// Whatever the host has loaded in between, an NMI may use user memory of neither space.
#[test]
fn between_the_halves_no_user_memory_may_be_used() {
    for has_no_back_end in [false, true] {
        let machine = online(tagged::<2>(8));
        let puppet = machine.platform().0;
        puppet.has_no_back_end.store(has_no_back_end, Relaxed);
        let spaces = two_spaces(machine);
        let [a, b] = spaces.each_ref().map(|space| &**space);
        let ok = || [a, b].map(|space| machine.user_memory().access_ok(space.id()));
        machine.switch_to(None, a);
        assert_eq!(ok(), [true, false]);
        puppet.set_irqs_off(true);
        assert!(machine.host_roots().begin_switch(Some(a), Some(b)));
        assert_eq!(ok(), [false, false], "before the load");
        load(machine, Some(b));
        assert_eq!(ok(), [false, false], "behind it");
        end_switch(machine, Some(a), Some(b));
        puppet.set_irqs_off(false);
        assert_eq!(ok(), [false, true]);
    }
}

/// What the engine loads under a tag afterwards, and the tags that it remembers, are as if it had loaded every root itself.
#[test]
fn tags_of_the_engine_survive_a_load_of_the_host() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let [a, b] = spaces.each_ref().map(|space| &**space);
    machine.switch_to(None, a);
    assert_eq!(puppet.access(0, 0), 10);
    switch(machine, (Some(a), Some(b)));
    machine.switch_to(Some(b), a);
    assert_eq!(
        machine.watch().stats(cpu(0)).tags_kept,
        1,
        "nothing was flushed"
    );
    switch(machine, (Some(a), Some(b)));
    puppet.map_in(a.root(), 0, 11);
    puppet.as_cpu(1, || machine.flush(a, pages(0, 1), FreedTables::No));
    machine.switch_to(Some(b), a);
    assert_eq!(puppet.access(0, 0), 11);
}

/// What is untagged is not only the kernel's when the host has loaded a user root: the next kernel root drops it.
#[test]
fn what_a_host_loaded_is_dropped_with_the_next_kernel_root() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let a = &*spaces[0];
    machine.switch_to(None, a);
    machine.switch_away(a, KERNEL_ROOT);
    switch(machine, (None, Some(a)));
    puppet.loads.take();
    machine.switch_away(a, KERNEL_ROOT);
    let loads = puppet.loads.take();
    assert_eq!(
        loads,
        [(0, KERNEL_ROOT.as_u64(), Asid::UNTAGGED, TagEntries::Drop)]
    );
    // Which of the kernel's roots it has loaded the host does not say.
    switch(machine, (None, Some(a)));
    switch(machine, (Some(a), None));
    for entries in [TagEntries::Drop, TagEntries::Keep] {
        machine.switch_to(None, a);
        machine.switch_away(a, KERNEL_ROOT);
        let last = puppet.loads.take().pop();
        let load = (0, KERNEL_ROOT.as_u64(), Asid::UNTAGGED, entries);
        assert_eq!(last, Some(load));
    }
}

/// Between the halves the CPU may walk the tables of both: both are asked to wait for it (I2, I4).
#[test]
fn between_the_halves_a_flush_of_either_space_waits() {
    for freed in [FreedTables::No, FreedTables::Yes] {
        let machine = machine::<2>();
        let puppet = machine.platform().0;
        let spaces = two_spaces(machine);
        let both = spaces.each_ref().map(|space| &**space);
        let (previous, next) = (Some(both[0]), Some(both[1]));
        machine.switch_to(None, both[0]);
        machine.platform().set_irqs_off(true);
        assert!(machine.host_roots().begin_switch(previous, next));
        for space in both {
            assert!(!machine.user_memory().access_ok(space.id()));
            let ticket = puppet.as_cpu(1, || machine.submit_flush(space, pages(0, 1), freed));
            puppet.deliver_all();
            assert!(!ticket.is_done(), "{freed:?}");
            std::mem::forget(ticket);
        }
        load(machine, next);
        assert!(
            !machine.user_memory().access_ok(both[1].id()),
            "not before the end"
        );
        end_switch(machine, previous, next);
        assert!(machine.user_memory().access_ok(both[1].id()));
        machine.platform().set_irqs_off(false);
        puppet
            .as_cpu(1, || machine.call_one(cpu(0), &|_| ()))
            .unwrap();
        let stats = machine.watch().stats(cpu(0));
        assert_eq!((stats.flushes_stray, stats.remote_flushes), (1, 1));
    }
}

/// The generation is that of before the load: a change that comes after it is flushed at the end (I3).
#[test]
fn a_change_behind_the_load_is_flushed_after_the_switch() {
    let machine = machine::<2>();
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let next = Some(&*spaces[1]);
    machine.platform().set_irqs_off(true);
    assert!(machine.host_roots().begin_switch(None, next));
    load(machine, next);
    assert_eq!(puppet.access(0, 0), 20, "speculation");
    puppet.map_in(spaces[1].root(), 0, 21);
    let ticket = puppet.as_cpu(1, || {
        machine.submit_flush(&spaces[1], pages(0, 1), FreedTables::No)
    });
    end_switch(machine, None, next);
    machine.platform().set_irqs_off(false);
    puppet.as_cpu(1, || drop(ticket));
    assert_eq!(puppet.access(0, 0), 21);
}

#[test]
fn the_same_space_needs_no_load_and_ends_lazy_mode() {
    let machine = machine::<2>();
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let a = &*spaces[0];
    assert!(!machine.host_roots().begin_switch(None, None));
    end_switch(machine, None, None);
    machine.switch_to(None, a);
    machine.user_memory().enter_lazy(a, KERNEL_ROOT);
    puppet.map_in(a.root(), 0, 11);
    puppet.as_cpu(1, || machine.flush(a, pages(0, 1), FreedTables::No));
    assert!(!machine.host_roots().begin_switch(Some(a), Some(a)));
    end_switch(machine, Some(a), Some(a));
    assert_eq!(puppet.access(0, 0), 11);
    assert!(machine.user_memory().access_ok(a.id()));
    machine.user_memory().enter_lazy(a, KERNEL_ROOT);
    switch(machine, (Some(a), Some(&spaces[1])));
    assert!(
        machine.user_memory().access_ok(spaces[1].id()),
        "no longer lazy"
    );
}

#[test]
fn halves_that_do_not_fit_are_refused() {
    let machine = machine::<2>();
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let [a, b] = spaces.each_ref().map(|space| Some(&**space));
    let refused = |misuse: &dyn Fn()| assert!(refuses(misuse));
    refused(&|| end_switch(machine, None, a));
    refused(&|| assert!(machine.host_roots().begin_switch(a, b)));
    refused(&|| assert!(!machine.host_roots().begin_switch(a, a)));
    machine.platform().set_irqs_off(true);
    assert!(machine.host_roots().begin_switch(None, a));
    refused(&|| end_switch(machine, None, b));
    refused(&|| end_switch(machine, b, a));
    refused(&|| machine.switch_to(None, &spaces[1]));
    refused(&|| machine.offline());
    refused(&|| assert!(machine.host_roots().begin_switch(None, b)));
    refused(&|| machine.flush(&spaces[1], pages(0, 1), FreedTables::No));
    load(machine, a);
    end_switch(machine, None, a);
    refused(&|| end_switch(machine, None, a));
    machine.platform().set_irqs_off(false);
    assert_eq!(puppet.root_of(0), 1);
}

#[test]
fn a_cpu_that_polls_between_the_halves_is_told() {
    let machine = machine::<2>();
    let puppet = machine.platform().0;
    let spaces = two_spaces(machine);
    let (previous, next) = (Some(&*spaces[0]), Some(&*spaces[1]));
    machine.switch_to(None, &spaces[0]);
    machine.platform().set_irqs_off(true);
    assert!(machine.host_roots().begin_switch(previous, next));
    puppet.as_cpu(1, || {
        std::mem::forget(machine.submit_flush(
            FlushScope::Kernel,
            pages(GLOBAL, 1),
            FreedTables::No,
        ));
    });
    machine.poll();
    puppet.as_cpu(1, || {
        std::mem::forget(machine.submit_flush(&spaces[0], pages(0, 1), FreedTables::Yes));
    });
    assert!(
        refuses(|| machine.poll()),
        "the old tables may be walked still"
    );
    std::mem::forget(spaces);
}

#[test]
fn windows_and_global_tags_are_the_engines_to_load() {
    let machine = online(globally_tagged::<2>(16));
    let space = Space::new(machine, 1);
    assert!(refuses(|| machine
        .host_roots()
        .begin_switch(None, Some(&space))));
    let machine = online(tagged::<2>(8));
    let [a, b] = two_spaces(machine);
    let windows = WindowRoot::new(machine, &a, cpu(0), tables(50));
    machine.windows().switch_to(None, &a, &windows);
    for next in [Some(&*b), None] {
        assert!(refuses(|| machine
            .host_roots()
            .begin_switch(Some(&a), next)));
    }
    machine.switch_away(&a, KERNEL_ROOT);
    assert!(refuses(|| machine
        .host_roots()
        .begin_switch(None, Some(&a))));
    machine.windows().retire(&a, windows);
}
