//! Behaviour of tags that are the same on all CPUs, and of the instruction that flushes by them. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::*;
use shootdown::{Cpus, tags::*, windows::*};

/// The first global tag.
const FIRST: Asid = Asid::new(5);
/// Each CPU has four tags of its own, and eight are global.
const TAGS: usize = 12;

/// All `N` CPUs have a space loaded and have used pages 0 to 3.
fn crowd<const N: usize>() -> (&'static Machine<N>, &'static Puppet, Space<N>)
where
    Cpus<N>: Capacity,
{
    let machine = online(globally_tagged::<N>(TAGS));
    let puppet = machine.platform().0;
    let space = space_on(machine, N as u32);
    use_pages(puppet, N);
    puppet.loads.take();
    (machine, puppet, space)
}

/// As [`crowd`], and the space has a settled tag.
fn settled<const N: usize>() -> (&'static Machine<N>, &'static Puppet, Space<N>)
where
    Cpus<N>: Capacity,
{
    let (machine, puppet, space) = crowd::<N>();
    flush(machine, &space, 0);
    flush(machine, &space, 0);
    assert_eq!(puppet.everywhere.take().len(), 1);
    use_pages(puppet, N);
    puppet.loads.take();
    puppet.sent.take();
    puppet.flushes.take();
    (machine, puppet, space)
}

fn use_pages(puppet: &Puppet, cpus: usize) {
    for page in 0..4 {
        puppet.map(page, 10);
        (0..cpus as u32).for_each(|number| assert_eq!(puppet.access(number, page), 10));
    }
}

/// CPU 0 flushes a page.
fn flush<const N: usize>(machine: &Machine<N>, space: &AddressSpace<Cpus<N>>, page: usize)
where
    Cpus<N>: Capacity,
{
    machine.flush(space, pages(page, 1), FreedTables::No);
}

/// CPU 0 gives a page another frame.
fn remap<const N: usize>(machine: &'static Machine<N>, space: &AddressSpace<Cpus<N>>, page: usize)
where
    Cpus<N>: Capacity,
{
    machine.platform().map(page, 11);
    flush(machine, space, page);
}

#[test]
fn a_space_that_many_cpus_use_gets_a_tag_and_is_flushed_by_it() {
    let (machine, puppet, space) = crowd::<4>();
    puppet.nmis_ask_about(space.id());
    remap(machine, &space, 0);
    let interrupted = [(0, 1), (0, 2), (0, 3)];
    assert_eq!(puppet.sent.take(), interrupted);
    let mut loads = puppet.loads.take();
    loads.sort_by_key(|(cpu, ..)| *cpu);
    let again = |cpu| (cpu, 1, FIRST, TagEntries::Drop);
    assert_eq!(loads, [0, 1, 2, 3].map(again), "under the tag");
    let denied = puppet.user_access_denied.take();
    let load = Moment::Load(1);
    assert!(
        denied.iter().filter(|moment| **moment == load).count() >= 8,
        "before and behind each load: {denied:?}"
    );
    for page in 1..4 {
        remap(machine, &space, page);
    }
    assert!(puppet.sent.take().is_empty());
    let flushed = puppet.everywhere.take();
    assert!(flushed.iter().all(|(asid, _)| *asid == FIRST));
    assert_eq!(flushed.len(), 3);
    for page in 0..4 {
        (0..4).for_each(|cpu| assert_eq!(puppet.access(cpu, page), 11));
    }
    let stats = machine.watch().stats(cpu(0));
    assert_eq!((stats.flushes_everywhere, stats.tags_globalized), (3, 1));
}

#[test]
fn a_space_that_few_cpus_use_gets_none() {
    let (machine, puppet, space) = crowd::<3>();
    flush(machine, &space, 0);
    flush(machine, &space, 0);
    assert_eq!(puppet.sent.take().len(), 4);
    assert!(puppet.everywhere.take().is_empty() && puppet.loads.take().is_empty());
    machine.set_policy(Policy::BEST.with_global_tags_from(2));
    flush(machine, &space, 0);
    flush(machine, &space, 0);
    assert_eq!(puppet.everywhere.take().len(), 1);
}

#[test]
fn without_a_threshold_nothing_gets_a_tag() {
    let (machine, puppet, space) = crowd::<4>();
    machine.set_policy(Policy::BEST.with_global_tags_from(0));
    (0..3).for_each(|page| flush(machine, &space, page));
    assert!(puppet.everywhere.take().is_empty());
}

/// It holds what it held, but for what was flushed everywhere.
#[test]
fn a_cpu_that_was_elsewhere_keeps_the_rest() {
    let (machine, puppet, space) = settled::<4>();
    let other = Space::new(machine, 2);
    puppet.as_cpu(3, || machine.switch_to(Some(&space), &other));
    let (_, _, own, _) = puppet.loads.take()[0];
    assert!(own < FIRST, "{own:?}");
    remap(machine, &space, 0);
    remap(machine, &space, 1);
    assert!(puppet.sent.take().is_empty());
    // Nobody is told, so it is seen who walks again.
    puppet.map(2, 12);
    puppet.as_cpu(3, || machine.switch_to(Some(&other), &space));
    assert_eq!(puppet.loads.take(), [(3, 1, FIRST, TagEntries::Keep)]);
    assert_eq!([0, 1, 2].map(|page| puppet.access(3, page)), [11, 11, 10]);
}

#[test]
fn a_cpu_that_was_elsewhere_drops_all_if_one_flush_was_not_everywhere() {
    for refused in 0..3 {
        let (machine, puppet, space) = settled::<4>();
        let other = Space::new(machine, 2);
        // From here on CPU 3 has missed nothing.
        puppet.refuses_everywhere.store(true, Relaxed);
        machine.flush(&space, FlushRanges::WHOLE, FreedTables::No);
        puppet.sent.take();
        puppet.as_cpu(3, || machine.switch_to(Some(&space), &other));
        puppet.loads.take();
        for page in 0..3 {
            puppet.refuses_everywhere.store(page == refused, Relaxed);
            remap(machine, &space, page);
        }
        assert_eq!(puppet.sent.take(), [(0, 1), (0, 2)], "for the refused one");
        puppet.as_cpu(3, || machine.switch_to(Some(&other), &space));
        assert_eq!(puppet.loads.take()[0].3, TagEntries::Drop);
        for page in 0..3 {
            (0..4).for_each(|cpu| assert_eq!(puppet.access(cpu, page), 11));
        }
    }
}

/// A back end that reaches single CPUs is another thing.
#[test]
fn what_some_cpus_have_dropped_is_not_flushed_everywhere() {
    let (machine, puppet, space) = settled::<4>();
    let other = Space::new(machine, 2);
    puppet.as_cpu(3, || machine.switch_to(Some(&space), &other));
    puppet.refuses_everywhere.store(true, Relaxed);
    puppet.reaches(EVERYBODY);
    remap(machine, &space, 0);
    assert!(puppet.sent.take().is_empty());
    puppet.as_cpu(3, || machine.switch_to(Some(&other), &space));
    assert_eq!(puppet.access(3, 0), 11);
}

#[test]
fn a_space_takes_one_tag_once() {
    let (machine, puppet, space) = settled::<4>();
    puppet.refuses_everywhere.store(true, Relaxed);
    (0..8).for_each(|_| flush(machine, &space, 0));
    let next = Space::new(machine, 2);
    for number in 0..4 {
        puppet.as_cpu(number, || machine.switch_to(Some(&space), &next));
    }
    flush(machine, &next, 0);
    let (_, root, asid, _) = *puppet.loads.take().last().unwrap();
    assert_eq!((root, asid), (2, Asid::new(FIRST.as_u16() + 1)));
}

/// It has another space loaded, which has seen more changes.
#[test]
fn an_initiator_may_be_elsewhere() {
    let (machine, puppet, space) = settled::<4>();
    let other = Space::new(machine, 2);
    machine.switch_to(Some(&space), &other);
    (0..9).for_each(|_| flush(machine, &other, 0));
    puppet.map(0, 11);
    flush(machine, &space, 0);
    assert_eq!(puppet.everywhere.take().len(), 1);
    (1..4).for_each(|cpu| assert_eq!(puppet.access(cpu, 0), 11));
    // What it knows of its own space is as before.
    puppet.flushes.take();
    flush(machine, &other, 1);
    let page = LocalFlush::Pages(pages(1, 1), FreedTables::No);
    assert_eq!(puppet.flushes.take(), [(0, page)]);
}

/// Nobody tells a CPU what was flushed everywhere: the request that comes by interrupt finds a gap, once.
#[test]
fn after_a_refusal_cpus_drop_everything_once() {
    let (machine, puppet, space) = settled::<4>();
    (0..2).for_each(|page| remap(machine, &space, page));
    puppet.refuses_everywhere.store(true, Relaxed);
    for others in [
        LocalFlush::Space,
        LocalFlush::Pages(pages(1, 1), FreedTables::No),
    ] {
        remap(machine, &space, 1);
        let mut flushes = puppet.flushes.take();
        flushes.sort_by_key(|(cpu, _)| *cpu);
        let page = LocalFlush::Pages(pages(1, 1), FreedTables::No);
        assert_eq!(flushes[0], (0, page), "it knows of its own");
        assert_eq!(flushes[1..], [1, 2, 3].map(|cpu| (cpu, others)));
    }
}

/// Nobody else interrupts it, so the tag would never settle.
#[test]
fn lazy_cpus_are_told_of_the_tag() {
    let (machine, puppet, space) = crowd::<5>();
    puppet.as_cpu(4, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    flush(machine, &space, 0);
    assert!(!puppet.sent.take().contains(&(0, 4)), "lazy as yet");
    flush(machine, &space, 0);
    assert!(puppet.sent.take().contains(&(0, 4)));
    flush(machine, &space, 0);
    assert!(puppet.sent.take().is_empty());
    // It has dropped what was flushed, and needs not drop the rest.
    use_pages(puppet, 5);
    remap(machine, &space, 1);
    puppet.flushes.take();
    puppet.map(2, 12);
    puppet.as_cpu(4, || machine.switch_to(Some(&space), &space));
    assert!(puppet.flushes.take().is_empty() && puppet.sent.take().is_empty());
    assert_eq!([1, 2].map(|page| puppet.access(4, page)), [11, 10]);
}

/// It comes back before anybody has told it.
#[test]
fn a_lazy_cpu_that_comes_back_loads_the_space_under_its_tag() {
    let (machine, puppet, space) = crowd::<5>();
    puppet.as_cpu(4, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    flush(machine, &space, 0);
    puppet.loads.take();
    puppet.as_cpu(4, || machine.switch_to(Some(&space), &space));
    assert_eq!(puppet.loads.take(), [(4, 1, FIRST, TagEntries::Drop)]);
    puppet.sent.take();
    remap(machine, &space, 1);
    assert!(puppet.sent.take().is_empty());
    assert_eq!(puppet.access(4, 1), 11);
}

/// One that has let go of the space has to load it again anyhow.
#[test]
fn a_detached_cpu_does_not_keep_a_tag_from_settling() {
    let (machine, puppet, space) = crowd::<5>();
    puppet.as_cpu(4, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    puppet.sent.take();
    flush(machine, &space, 0);
    assert!(puppet.sent.take().is_empty());
    puppet.as_cpu(4, || machine.switch_to(Some(&space), &space));
    assert_eq!(puppet.access(4, 0), 10);
    remap(machine, &space, 0);
    assert_eq!(puppet.access(4, 0), 11);
}

#[test]
fn a_cpu_that_has_not_changed_its_tag_yet_is_interrupted() {
    let (machine, puppet, space) = crowd::<4>();
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    puppet.deliver(1);
    puppet.deliver(2);
    puppet.map(1, 11);
    let second = machine.submit_flush(&space, pages(1, 1), FreedTables::No);
    assert!(
        puppet.everywhere.take().is_empty(),
        "CPU 3 has it under a tag of its own"
    );
    ticket.wait();
    second.wait();
    assert_eq!(puppet.access(3, 1), 11);
    flush(machine, &space, 2);
    assert_eq!(puppet.everywhere.take().len(), 1);
}

/// Private roots hold more than the space, and renew their top-level entries themselves.
#[test]
fn a_space_with_windows_is_flushed_by_interrupts() {
    let (machine, puppet, space) = settled::<4>();
    let windows = puppet.as_cpu(3, || {
        let windows = WindowRoot::new(machine, &space, cpu(3), tables(7));
        machine.windows().switch_to(Some(&space), &space, &windows);
        windows
    });
    let (_, _, own, _) = puppet.loads.take()[0];
    assert!(own < FIRST, "{own:?}");
    for page in 0..4 {
        puppet.map_in(7, page, 10);
        assert_eq!(puppet.access(3, page), 10);
    }
    puppet.map_in(7, 1, 11);
    remap(machine, &space, 1);
    assert!(puppet.everywhere.take().is_empty());
    assert_eq!(puppet.sent.take(), [(0, 1), (0, 2), (0, 3)]);
    assert_eq!(puppet.access(3, 1), 11);
    assert!(puppet.loads.take().is_empty(), "it keeps its tag");
    puppet.as_cpu(3, || {
        machine.switch_to(Some(&space), &space);
        machine.switch_away(&space, KERNEL_ROOT);
        machine.windows().retire(&space, windows);
    });
}

/// No CPU believes what the owner before has left there.
#[test]
fn a_tag_goes_to_another_space_when_its_owner_is_gone() {
    let (machine, puppet, space) = settled::<4>();
    drop(space);
    let next = Space::new(machine, 2);
    for page in 0..4 {
        puppet.map_in(next.root(), page, 20);
    }
    let go = |number| puppet.as_cpu(number, || machine.switch_to(None, &next));
    (0..3).for_each(go);
    machine.set_policy(Policy::BEST.with_global_tags_from(2));
    flush(machine, &next, 0);
    assert_eq!(puppet.loads.take().last().unwrap().2, FIRST);
    go(3);
    assert_eq!(puppet.loads.take(), [(3, 2, FIRST, TagEntries::Drop)]);
    assert_eq!(puppet.access(3, 1), 20);
}

#[test]
fn a_policy_without_tags_keeps_nothing_under_the_tag() {
    let (machine, puppet, space) = settled::<4>();
    machine.set_policy(Policy::BEST.with_tags(Tags::None));
    puppet.as_cpu(3, || {
        machine.switch_away(&space, KERNEL_ROOT);
        machine.switch_to(None, &space);
    });
    let (_, _, asid, entries) = puppet.loads.take()[1];
    assert_eq!((asid, entries), (FIRST, TagEntries::Drop));
    remap(machine, &space, 0);
    assert!(puppet.sent.take().is_empty());
    assert_eq!(puppet.access(3, 0), 11);
}

/// The user side of a tag that is new here holds anything; what is flushed everywhere is flushed on both sides.
#[test]
fn the_user_side_follows() {
    let machine = online(globally_tagged::<4>(TAGS));
    let puppet = machine.platform().0;
    puppet.split.store(true, Relaxed);
    let space = space_on(machine, 4);
    puppet.map_in(space.root(), 0, 10);
    let uses = |number| puppet.user_access(machine, number, 0);
    (0..4).for_each(|number| assert_eq!(uses(number), (10, TagEntries::Drop)));
    flush(machine, &space, 0);
    (0..4).for_each(|number| assert_eq!(uses(number), (10, TagEntries::Drop)));
    puppet.map_in(space.root(), 0, 11);
    flush(machine, &space, 0);
    assert!(!puppet.everywhere.take().is_empty());
    (1..4).for_each(|number| assert_eq!(uses(number), (11, TagEntries::Keep)));
}

/// The change before it is still to come to this CPU, which must not take it for flushed.
#[test]
fn an_initiator_does_not_forget_what_it_was_not_told_yet() {
    let (machine, puppet, space) = settled::<4>();
    puppet.refuses_everywhere.store(true, Relaxed);
    puppet.map(1, 11);
    let submit = || machine.submit_flush(&space, pages(1, 1), FreedTables::No);
    let ticket = puppet.as_cpu(2, submit);
    puppet.refuses_everywhere.store(false, Relaxed);
    remap(machine, &space, 2);
    assert_eq!(puppet.everywhere.take().len(), 1);
    puppet.interrupt_now(0);
    puppet.as_cpu(2, || ticket.wait());
    (0..4).for_each(|cpu| assert_eq!([1, 2].map(|page| puppet.access(cpu, page)), [11, 11]));
}

/// However old what it has loaded is, a flush of another space says nothing about that.
#[test]
fn an_initiator_elsewhere_learns_nothing_about_its_own_space() {
    for changes in 0..5 {
        let (machine, puppet, space) = settled::<4>();
        let other = Space::new(machine, 2);
        for number in 0..2 {
            puppet.as_cpu(number, || machine.switch_to(Some(&space), &other));
        }
        (0..changes).for_each(|_| flush(machine, &other, 0));
        flush(machine, &space, 0);
        assert_eq!(puppet.everywhere.take().len(), 1);
        assert_eq!(puppet.access(0, 1), 10);
        puppet.map(1, 11);
        puppet.as_cpu(1, || {
            let ticket = machine.submit_flush(&other, pages(1, 1), FreedTables::No);
            puppet.deliver_all();
            puppet.interrupt_now(0);
            ticket.wait();
        });
        assert_eq!(puppet.access(0, 1), 11, "after {changes} changes");
    }
}

/// Nobody is in transition any more.
#[test]
fn a_lazy_cpu_is_left_alone_when_the_tag_is_settled() {
    let (machine, puppet, space) = settled::<5>();
    puppet.as_cpu(4, || machine.user_memory().enter_lazy(&space, KERNEL_ROOT));
    puppet.refuses_everywhere.store(true, Relaxed);
    flush(machine, &space, 0);
    assert_eq!(puppet.sent.take(), [(0, 1), (0, 2), (0, 3)]);
    puppet.as_cpu(4, || machine.switch_to(Some(&space), &space));
}
