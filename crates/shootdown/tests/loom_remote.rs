//! loom models of flushes that reach CPUs without an interrupt: what a hypervisor has dropped is a gap, which hides no other change.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom_machine::*;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

/// A virtual CPU that has used both pages is taken off its processor once, while one CPU changes page 0 and then, with no effect, again,
/// and another one page 1. Each flush takes it or interrupts it, and the requests come in any order.
fn two_initiators_and_a_virtual_cpu(hypervisor: Hypervisor) {
    check(2, move || {
        let machine = guest::<3>(hypervisor);
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        let (done, ready) = (flag(), Arc::new(Event::new()));
        let user = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 2, move |machine| {
                machine.switch_to(None, &space);
                (0..PAGES).for_each(|page| assert_eq!(walk(machine, page), OLD));
                ready.set();
                go_out_and_in(machine);
                idle_until(machine, || done.load(Ordering::Acquire));
                for page in 0..PAGES {
                    assert_ne!(cached(page), Some(OLD), "stale translation of page {page}");
                }
                machine.switch_away(&space, NO_USER);
            })
        };
        ready.wait();
        let other = {
            let space = space.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.platform().table[1].store(NEW, Ordering::Relaxed);
                machine.flush(&*space, page(1), FreedTables::No);
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(&*space, page(0), FreedTables::No);
        machine.flush(&*space, page(0), FreedTables::No);
        other.join().unwrap();
        tell(&machine, 2, done);
        user.join().unwrap();
    });
}

#[test]
fn a_virtual_cpu_that_is_taken_keeps_nothing_old() {
    two_initiators_and_a_virtual_cpu(Hypervisor::TakesSome);
}

#[test]
fn changes_that_all_cpus_have_dropped_hide_no_other() {
    two_initiators_and_a_virtual_cpu(Hypervisor::TakesAll);
}

/// A CPU comes back to a space, under the tag that it has kept, while another frees one of its tables.
#[test]
fn a_freed_table_is_not_walked_under_a_tag_that_was_kept() {
    check(2, || {
        let machine = guest::<2>(Hypervisor::TakesByCall);
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER)));
        let other = AddressSpace::new(&machine, tables(2));
        let (done, ready) = (flag(), Arc::new(Event::new()));
        let user = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &space);
                machine.switch_to(Some(&space), &other);
                ready.set();
                machine.switch_to(Some(&other), &space);
                idle_until(machine, || done.load(Ordering::Acquire));
                machine.switch_away(&space, NO_USER);
            })
        };
        ready.wait();
        let model = machine.platform();
        model.shared_top.store(false, Ordering::Relaxed);
        machine.flush(&*space, page(0), FreedTables::Yes);
        model.table_page.reuse();
        tell(&machine, 1, done);
        user.join().unwrap();
    });
}
