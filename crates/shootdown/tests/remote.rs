//! Behaviour of flushes that a back end does without an interrupt, for all targets or some, on the puppet machine.

#![cfg(not(loom))]

mod puppet;

use puppet::*;
use shootdown::Cpus;
use shootdown::*;

/// CPUs 0 to 3 have a space loaded and have used pages 0 to 3.
fn four_cpus() -> (&'static Machine<4>, &'static Puppet, Space<4>) {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 4);
    for page in 0..4 {
        puppet.map(page, 10);
        (0..4).for_each(|number| assert_eq!(puppet.access(number, page), 10));
    }
    puppet.flushes.take();
    (machine, puppet, space)
}

/// CPU `initiator` gives `page` another frame; nobody uses the old one.
fn remap(machine: &'static Machine<4>, space: &AddressSpace<Cpus<4>>, initiator: u32, page: usize) {
    let puppet = machine.platform();
    let frame = puppet.access(initiator, page) + 1;
    puppet.map(page, frame);
    puppet.as_cpu(initiator, || {
        machine.flush(space, pages(page, 1), FreedTables::No)
    });
    (0..4).for_each(|number| assert_eq!(puppet.access(number, page), frame, "on CPU {number}"));
}

fn one_page(page: usize) -> LocalFlush {
    LocalFlush::Pages(pages(page, 1), FreedTables::No)
}

/// After a gap.
fn one_page_and_tables(page: usize) -> LocalFlush {
    LocalFlush::Pages(pages(page, 1), FreedTables::Yes)
}

/// What the CPUs dropped themselves, in the order of their numbers.
fn dropped(puppet: &Puppet) -> Vec<(u32, LocalFlush)> {
    let mut flushes = puppet.flushes.take();
    flushes.sort_by_key(|(cpu, _)| *cpu);
    flushes
}

#[test]
fn those_that_are_not_taken_are_interrupted_for_the_same_request() {
    let (machine, puppet, space) = four_cpus();
    puppet.reaches(&[1, 3]);
    remap(machine, &space, 0, 0);
    assert_eq!(puppet.sent.take(), [(0, 2)]);
    assert_eq!(dropped(puppet), [(0, one_page(0)), (2, one_page(0))]);
    assert_eq!(machine.watch().stats(cpu(0)).cpus_taken, 2);
}

/// Nobody tells a CPU what a back end dropped there: the next request that comes by interrupt finds a gap. One change may be missing, with
/// two it drops everything, once.
#[test]
fn a_cpu_that_was_taken_finds_a_gap() {
    let everything = LocalFlush::Space;
    for reached in [&[1, 3][..], EVERYBODY] {
        for (taken, next) in [(1, one_page_and_tables(2)), (2, everything)] {
            let (machine, puppet, space) = four_cpus();
            puppet.reaches(reached);
            (0..taken).for_each(|page| remap(machine, &space, 0, page));
            puppet.reaches(&[]);
            puppet.flushes.take();
            remap(machine, &space, 0, 2);
            let flushes = dropped(puppet);
            assert_eq!(flushes[0], (0, one_page(2)), "it knows of its own");
            assert_eq!((flushes[1], flushes[3]), ((1, next), (3, next)));
            remap(machine, &space, 3, 3);
            let flushes = dropped(puppet);
            let is_page = |flush| flush == one_page(3) || flush == one_page_and_tables(3);
            assert!(flushes.len() == 4 && flushes.iter().all(|(_, flush)| is_page(*flush)));
        }
    }
}

/// The initiator, too, may have been taken by others.
#[test]
fn an_initiator_that_was_taken_finds_a_gap() {
    for (taken, next) in [(1, one_page_and_tables(3)), (2, LocalFlush::Space)] {
        let (machine, puppet, space) = four_cpus();
        puppet.reaches(EVERYBODY);
        (0..taken).for_each(|page| remap(machine, &space, 0, page));
        puppet.flushes.take();
        remap(machine, &space, 1, 3);
        assert_eq!(dropped(puppet), [(1, next)]);
    }
}

/// A back end may take the later of two changes before the earlier one is published.
#[test]
fn what_was_taken_hides_no_request_that_is_still_to_come() {
    for reached in [&[1][..], EVERYBODY] {
        let (machine, puppet, space) = four_cpus();
        let space: &'static Space<4> = Box::leak(Box::new(space));
        puppet.as_cpu(3, || machine.switch_away(space, kernel_tables(0)));
        (0..3).for_each(|page| puppet.map(page, 11));
        let flush = move |page| machine.flush(space, pages(page, 1), FreedTables::No);
        puppet.at_next_flush_remote(move || {
            puppet.as_cpu(2, || {
                puppet.reaches(reached);
                flush(1);
                puppet.reaches(&[]);
                flush(2);
            });
        });
        puppet.as_cpu(3, || flush(0));
        for page in 0..3 {
            (0..3).for_each(|cpu| assert_eq!(puppet.access(cpu, page), 11, "page {page}"));
        }
    }
}

/// A CPU that was left alone because it looks for itself missed the change: nobody may count it as taken.
#[test]
fn a_cpu_that_was_left_alone_has_a_gap() {
    let (machine, puppet, space) = four_cpus();
    machine.set_policy(Policy::BEST.with_deferral(true));
    assert!(puppet.as_cpu(1, || machine.user_memory().defer_flushes(&space)));
    puppet.reaches(EVERYBODY);
    puppet.map(0, 11);
    machine.flush(&space, pages(0, 1), FreedTables::No);
    puppet.reaches(&[]);
    // Freed tables reach it all the same.
    machine.flush(&space, pages(1, 1), FreedTables::Yes);
    puppet.as_cpu(1, || machine.user_memory().catch_up(&space));
    assert_eq!(puppet.access(1, 0), 11);
}

#[test]
fn what_takes_a_wait_is_waited_for_after_the_initiator_has_flushed() {
    let (machine, puppet, space) = four_cpus();
    *puppet.reach.lock().unwrap() = Reach {
        at_once: &[1],
        later: &[2, 3],
    };
    remap(machine, &space, 0, 0);
    assert!(puppet.sent.take().is_empty());
    assert_eq!(dropped(puppet), [(0, one_page(0))], "once");
    assert_eq!(machine.watch().stats(cpu(0)).cpus_taken, 3);
    machine.flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::No);
    let kernel = LocalFlush::Pages(pages(GLOBAL, 1), FreedTables::No);
    assert_eq!(dropped(puppet), [(0, kernel)], "once");
}

#[test]
fn what_a_wait_has_not_reached_is_interrupted() {
    let (machine, puppet, space) = four_cpus();
    *puppet.reach.lock().unwrap() = Reach {
        at_once: &[],
        later: &[3],
    };
    remap(machine, &space, 0, 0);
    assert_eq!(puppet.multicasts.take(), [[1, 2]]);
    assert_eq!(dropped(puppet)[1..], [(1, one_page(0)), (2, one_page(0))]);
}

#[test]
fn a_back_end_that_takes_nobody_costs_interrupts() {
    let (machine, puppet, space) = four_cpus();
    remap(machine, &space, 0, 0);
    assert_eq!(puppet.multicasts.take(), [[1, 2, 3]]);
    assert_eq!(puppet.asked.take()[0].1, [1, 2, 3]);
}

#[test]
fn a_flush_that_concerns_nobody_else_asks_no_back_end() {
    let (machine, puppet, _) = four_cpus();
    let other = space_on(machine, 0);
    machine.flush(&other, pages(0, 1), FreedTables::No);
    assert!(puppet.asked.take().is_empty());
}

/// Asking again at each turn of a wait could flush thousands of times.
#[test]
fn a_flush_that_waits_for_a_slot_asks_once_and_interrupts_all() {
    let (machine, puppet, space) = four_cpus();
    puppet.deafen(1);
    let busy: Vec<_> = (0..4)
        .map(|page| machine.submit_flush(&space, pages(page, 1), FreedTables::No))
        .collect();
    puppet.asked.take();
    puppet.multicasts.take();
    puppet.reaches(&[1, 2]);
    puppet.at_next_relax(|| puppet.hear_again(1));
    remap(machine, &space, 0, 0);
    assert_eq!(machine.watch().stats(cpu(0)).slots_exhausted, 1);
    assert_eq!(puppet.asked.take().len(), 1);
    drop(busy);
}

/// Kernel ranges have no generations; nobody keeps account.
#[test]
fn a_kernel_range_is_taken_under_every_tag() {
    let (machine, puppet, space) = four_cpus();
    puppet.reaches(EVERYBODY);
    puppet.map(GLOBAL, 1);
    (0..4).for_each(|number| assert_eq!(puppet.access(number, GLOBAL), 1));
    puppet.map(GLOBAL, 2);
    machine.flush(FlushScope::Kernel, pages(GLOBAL, 1), FreedTables::Yes);
    (0..4).for_each(|number| assert_eq!(puppet.access(number, GLOBAL), 2));
    assert!(puppet.sent.take().is_empty());
    drop(space);
}

/// The flush of the initiator comes last under the policies that put it there, not at all twice.
#[test]
fn the_initiator_flushes_once_under_every_policy() {
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        for reached in [&[][..], &[2], EVERYBODY] {
            let (machine, puppet, space) = four_cpus();
            machine.set_policy(policy);
            puppet.reaches(reached);
            remap(machine, &space, 0, 0);
            let own = dropped(puppet).into_iter().filter(|(cpu, _)| *cpu == 0);
            assert_eq!(own.collect::<Vec<_>>(), [(0, one_page(0))], "{policy:?}");
            assert_eq!(puppet.preempt_count(0), 0);
        }
    }
}

/// Found by the fuzzer: the flush is done under the tag that is loaded, and the one that is about to be keeps what is older.
#[test]
fn a_cpu_that_is_taken_while_it_loads_a_root_keeps_nothing_old_under_it() {
    let machine = online(tagged::<2>(8));
    let puppet = machine.platform().0;
    let space: &'static Space<2> = Box::leak(Box::new(space_on(machine, 2)));
    let other = Space::new(machine, 7);
    puppet.map(0, 10);
    assert_eq!(puppet.access(1, 0), 10);
    puppet.as_cpu(1, || machine.switch_to(Some(space), &other));
    puppet.reaches(EVERYBODY);
    puppet.nmis_ask_about(space.id());
    puppet.user_access_denied.take();
    puppet.as_cpu(1, || {
        puppet.at_next_load(move || {
            puppet.map(0, 11);
            puppet.as_cpu(0, || machine.flush(space, pages(0, 1), FreedTables::No));
        });
        machine.switch_to(Some(&other), space);
    });
    assert_eq!(machine.watch().stats(cpu(0)).cpus_taken, 1);
    let flush = Moment::Flush(LocalFlush::Space);
    let mut denied = puppet.user_access_denied.take();
    denied.retain(|moment| *moment == flush);
    assert_eq!(
        denied,
        [flush, flush],
        "no NMI uses what is about to be dropped"
    );
    assert!(puppet.as_cpu(1, || machine.user_memory().access_ok(space.id())));
    assert_eq!(puppet.access(1, 0), 11);
}

/// Found by the fuzzer: between the load and the look after it the processor may walk what the tag has kept.
#[test]
fn a_cpu_that_loads_a_root_is_interrupted_before_a_table_of_it_is_freed() {
    for reached in [&[1][..], EVERYBODY] {
        let machine = online(tagged::<2>(8));
        let puppet = machine.platform().0;
        let space: &'static Space<2> = Box::leak(Box::new(space_on(machine, 2)));
        let other = Space::new(machine, 7);
        let (before, after) = (1, 2);
        assert_eq!(puppet.walked_table(1, before), before);
        puppet.as_cpu(1, || machine.switch_to(Some(space), &other));
        puppet.reaches(reached);
        puppet.as_cpu(1, || {
            puppet.at_next_load(move || {
                let flush = || machine.submit_flush(space, pages(0, 1), FreedTables::Yes);
                let ticket = puppet.as_cpu(0, flush);
                assert!(!ticket.is_done());
                // It cannot wait in here.
                std::mem::forget(ticket);
            });
            machine.switch_to(Some(&other), space);
        });
        assert_eq!(puppet.sent.take(), [(0, 1)]);
        assert_eq!(machine.watch().stats(cpu(0)).cpus_taken, 0);
        puppet.deliver_all();
        assert_eq!(puppet.walked_table(1, after), after, "a freed table");
        // One that stays is left to the back end again.
        puppet.as_cpu(0, || machine.flush(space, pages(0, 1), FreedTables::Yes));
        assert_eq!(machine.watch().stats(cpu(0)).cpus_taken, 1);
    }
}
