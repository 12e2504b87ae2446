//! loom models of TLB coherence: I1, I2, I3, I5, I12.

#![cfg(loom)]

mod loom_machine;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom_machine::*;
use shootdown::Cpus;
use shootdown::*;

const OLD: u64 = 0;
const NEW: u64 = 1;

/// Takes interrupts until `done`, then checks that this CPU translates no page of `pages` to the old frame.
fn spin_until_flushed<const N: usize>(machine: &Machine<N>, done: &AtomicBool, pages: &[usize])
where
    Cpus<N>: Capacity,
{
    idle_until(machine, || done.load(Ordering::Acquire));
    for page in pages {
        assert_ne!(cached(*page), Some(OLD), "stale translation of page {page}");
        assert_eq!(walk(machine, *page), NEW, "stale walk of page {page}");
    }
}

/// A CPU that loads the space while another flushes it is either found in the CPU set, or sees the new
/// page table (I1, I2). Removing either fence breaks this.
#[test]
fn late_joiner_sees_new_generation() {
    check(4, || {
        let machine = online_machine::<2>();
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        let done = flag();
        let inside = space.clone();
        let joiner = on_cpu(&machine, 1, move |machine| {
            machine.switch_to(None, &inside);
            walk(machine, 0);
            spin_until_flushed(machine, done, &[0]);
            machine.switch_away(&inside, NO_USER);
        });
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(&*space, page(0), FreedTables::No);
        tell(&machine, 1, done);
        joiner.join().unwrap();
    });
}

/// One CPU leaves a space, as `go` says, while another frees one of its tables.
fn free_a_table_while_a_cpu_leaves(
    go: fn(&Machine<2>, left: &AddressSpace<Cpus<2>>, other: &AddressSpace<Cpus<2>>),
) {
    check(3, move || {
        let machine = online_machine::<2>();
        let space = Arc::new(AddressSpace::new(&machine, tables(TABLE_OWNER)));
        let other = Arc::new(AddressSpace::new(&machine, tables(2)));
        let done = flag();
        let joined = Arc::new(Event::new());
        let leaver = {
            let (space, other) = (space.clone(), other.clone());
            let joined = joined.clone();
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &space);
                joined.set();
                go(machine, &space, &other);
                idle_until(machine, || done.load(Ordering::Acquire));
            })
        };
        joined.wait();
        machine.flush(&*space, page(0), FreedTables::Yes);
        machine.platform().table_page.reuse();
        tell(&machine, 1, done);
        leaver.join().unwrap();
    });
}

/// The flush does not hang, and the table is freed after the last walk (I4).
#[test]
fn a_table_is_freed_after_the_last_walk_of_a_cpu_that_leaves() {
    free_a_table_while_a_cpu_leaves(|machine, left, _| {
        machine.switch_away(left, NO_USER);
        assert_eq!(cached(0), None);
    });
}

/// The same for a CPU that goes on to another space.
#[test]
fn a_table_is_freed_after_the_last_walk_of_a_cpu_that_goes_elsewhere() {
    free_a_table_while_a_cpu_leaves(|machine, left, other| {
        machine.switch_to(Some(left), other);
        machine.switch_away(other, NO_USER);
    });
}

/// The same for a CPU that becomes idle under a policy that is not lazy.
#[test]
fn a_table_is_freed_after_the_last_walk_of_a_cpu_that_becomes_idle() {
    free_a_table_while_a_cpu_leaves(|machine, left, _| {
        machine.set_policy(Policy::BEST.with_lazy(false));
        machine.user_memory().enter_lazy(left, NO_USER);
        machine.switch_away(left, NO_USER);
    });
}

/// Two CPUs change and flush different pages at once; a third uses both. Requests may arrive in either
/// order; a partial flush must not hide the other one (I3).
fn partial_flushes_hide_nothing(policy: Policy) {
    check(2, move || {
        let machine = online_machine::<3>();
        machine.set_policy(policy);
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        let done = flag();
        let inside = space.clone();
        let user = on_cpu(&machine, 2, move |machine| {
            machine.switch_to(None, &inside);
            walk(machine, 0);
            walk(machine, 1);
            spin_until_flushed(machine, done, &[0, 1]);
            machine.switch_away(&inside, NO_USER);
        });
        let inside = space.clone();
        let other = on_cpu(&machine, 1, move |machine| {
            machine.platform().table[1].store(NEW, Ordering::Relaxed);
            machine.flush(&*inside, page(1), FreedTables::No);
        });
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(&*space, page(0), FreedTables::No);
        other.join().unwrap();
        tell(&machine, 2, done);
        user.join().unwrap();
    });
}

#[test]
fn partial_flushes_out_of_order_hide_nothing() {
    partial_flushes_hide_nothing(Policy::BEST.with_broadcast_from(0));
}

#[test]
fn partial_flushes_in_order_hide_nothing() {
    let policy = Policy::BEST.with_broadcast_from(0);
    partial_flushes_hide_nothing(policy.with_out_of_order(false));
}

/// A frame comes back from a batch only when no CPU can use it, early acknowledgement included: between its
/// acknowledgement and its flush a responder runs nothing that touches user memory (I5).
#[test]
fn a_reclaimed_frame_is_out_of_reach() {
    check(3, || {
        let machine = online_machine::<2>();
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        // Who owns frame OLD: 0 the space, 1 somebody else.
        let owner = Arc::new(AtomicU64::new(0));
        let stop = flag();
        let user = {
            let (space, owner) = (space.clone(), owner.clone());
            on_cpu(&machine, 1, move |machine| {
                machine.switch_to(None, &space);
                idle_until(machine, || {
                    if walk(machine, 0) == OLD {
                        // The load itself: the frame must still be the space's.
                        assert_eq!(
                            owner.load(Ordering::Relaxed),
                            0,
                            "use after free of a frame"
                        );
                    }
                    stop.load(Ordering::Acquire)
                });
                machine.switch_away(&space, NO_USER);
            })
        };
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        let mut batch = FlushBatch::<u64, 1>::new(&*space);
        batch.page(0, PageSize::SIZE_4K, OLD).unwrap();
        let ticket = machine.submit_batch(&*space, batch);
        for frame in ticket.wait() {
            assert_eq!(frame, OLD);
            owner.store(1, Ordering::Relaxed);
        }
        tell(&machine, 1, stop);
        user.join().unwrap();
    });
}

/// A CPU that comes online while another flushes a kernel range is named, or its own flush comes after the
/// change.
#[test]
fn a_cpu_coming_online_misses_no_kernel_flush() {
    check(4, || {
        let machine = machine::<2>();
        become_cpu(0);
        machine.online();
        let done = flag();
        let late = on_cpu(&machine, 1, move |machine| {
            walk(machine, 0);
            machine.online();
            walk(machine, 0);
            spin_until_flushed(machine, done, &[0]);
        });
        machine.platform().table[0].store(NEW, Ordering::Relaxed);
        machine.flush(FlushScope::Kernel, page(0), FreedTables::Yes);
        tell(&machine, 1, done);
        late.join().unwrap();
    });
}

/// Two CPUs change a page each and flush the space as a whole; a responder may serve both by one flush, but none by one that
/// began before its change.
#[test]
fn a_full_flush_serves_only_what_was_asked_for_before() {
    check(2, || {
        let machine = online_machine::<3>();
        let space = Arc::new(AddressSpace::new(&machine, tables(1)));
        become_cpu(2);
        machine.switch_to(None, &space);
        become_cpu(0);
        let done = [flag(), flag()];
        let inside = space.clone();
        let responder = on_cpu(&machine, 2, move |machine| {
            walk(machine, 0);
            walk(machine, 1);
            spin_until_flushed(machine, done[0], &[0]);
            spin_until_flushed(machine, done[1], &[1]);
            machine.switch_away(&inside, NO_USER);
        });
        let change = |page: usize| {
            let space = space.clone();
            move |machine: &Machine<3>| {
                machine.platform().table[page].store(NEW, Ordering::Relaxed);
                machine.flush(&*space, FlushRange::WHOLE, FreedTables::Yes);
                tell(machine, 2, done[page]);
            }
        };
        let other = on_cpu(&machine, 1, change(1));
        change(0)(&machine);
        other.join().unwrap();
        responder.join().unwrap();
    });
}
