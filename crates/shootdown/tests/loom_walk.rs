//! loom models of walks without a lock: a table is reused after the last read, wherever the walker is and whoever flushes it.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom_machine::*;
use shootdown::Cpus;
use shootdown::*;

type Space = AddressSpace<Cpus<2>>;

/// Reads the table if the top-level entry leads to it, twice; takes no interrupt, and looks for flushes as a lock does.
fn read_tables(machine: &Machine<2>, space: &Space) {
    let section = machine.user_memory().walk(space);
    let model = machine.platform();
    if model.shared_top.load(Ordering::Acquire) {
        model.table_page.walk();
        machine.poll();
        model.table_page.walk();
    }
    drop(section);
}

/// CPU 1 becomes what `prepare` makes it and walks, while CPU 0 takes the table away as `take` does and reuses it.
fn reuse_a_table_beside_a_walker(
    make: fn() -> Arc<Machine<2>>,
    prepare: fn(&Machine<2>, &Space),
    take: fn(&Machine<2>, &Space),
    leave: fn(&Machine<2>, &Space),
) {
    check(3, move || {
        let machine = make();
        // The processors themselves do not walk this table.
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER + 1)));
        let (done, ready) = (flag(), Arc::new(Event::new()));
        let walker = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 1, move |machine| {
                prepare(machine, &space);
                ready.set();
                read_tables(machine, &space);
                idle_until(machine, || done.load(Ordering::Acquire));
                leave(machine, &space);
            })
        };
        ready.wait();
        machine
            .platform()
            .shared_top
            .store(false, Ordering::Relaxed);
        take(&machine, &space);
        machine.platform().table_page.reuse();
        tell(&machine, 1, done);
        walker.join().unwrap();
    });
}

fn free(machine: &Machine<2>, space: &Space) {
    machine.flush(space, page(0), FreedTables::Yes);
}

fn sync(machine: &Machine<2>, space: &Space) {
    machine.user_memory().sync_walks(space);
}

fn load(machine: &Machine<2>, space: &Space) {
    machine.switch_to(None, space);
}

fn be_lazy(machine: &Machine<2>, space: &Space) {
    machine.switch_to(None, space);
    machine.user_memory().enter_lazy(space, NO_USER);
}

fn leave(machine: &Machine<2>, space: &Space) {
    machine.switch_away(space, NO_USER);
}

fn stay_out(_: &Machine<2>, _: &Space) {}

#[test]
fn tables_of_the_loaded_space_are_freed_after_the_last_read() {
    reuse_a_table_beside_a_walker(online_machine, load, free, leave);
}

#[test]
fn tables_of_the_loaded_space_are_reused_after_a_sync() {
    reuse_a_table_beside_a_walker(online_machine, load, sync, leave);
}

#[test]
fn tables_of_a_space_that_is_loaded_nowhere_are_freed_after_the_last_read() {
    reuse_a_table_beside_a_walker(online_machine, stay_out, free, stay_out);
}

#[test]
fn tables_of_a_space_that_is_loaded_nowhere_are_reused_after_a_sync() {
    reuse_a_table_beside_a_walker(online_machine, stay_out, sync, stay_out);
}

#[test]
fn a_lazy_cpu_walks() {
    reuse_a_table_beside_a_walker(online_machine, be_lazy, sync, leave);
}

fn with_back_end() -> Arc<Machine<2>> {
    guest(Hypervisor::TakesByCall)
}

/// A back end takes every CPU of which nobody says otherwise.
#[test]
fn a_back_end_leaves_the_walker() {
    reuse_a_table_beside_a_walker(with_back_end, load, free, leave);
}

#[test]
fn a_sync_beside_a_back_end_finds_the_walker() {
    reuse_a_table_beside_a_walker(with_back_end, load, sync, leave);
}

/// The space has a tag that is the same on all CPUs, and so has no need of the set of them.
#[test]
fn an_instruction_that_flushes_all_cpus_does_not_pass_by_a_walker() {
    check(3, || {
        let machine = globally_tagged::<2>();
        machine.set_policy(Policy::BEST.with_global_tags_from(1));
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER + 1)));
        let (settled, done, ready) = (flag(), flag(), Arc::new(Event::new()));
        let walker = {
            let (space, ready) = (space.clone(), ready.clone());
            on_cpu(&machine, 1, move |machine| {
                load(machine, &space);
                ready.set();
                idle_until(machine, || settled.load(Ordering::Acquire));
                read_tables(machine, &space);
                idle_until(machine, || done.load(Ordering::Acquire));
                leave(machine, &space);
            })
        };
        ready.wait();
        (0..2).for_each(|_| machine.flush(&*space, page(0), FreedTables::No));
        tell(&machine, 1, settled);
        machine
            .platform()
            .shared_top
            .store(false, Ordering::Relaxed);
        free(&machine, &space);
        machine.platform().table_page.reuse();
        tell(&machine, 1, done);
        walker.join().unwrap();
    });
}
