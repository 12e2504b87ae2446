//! Behaviour of listeners: when they are told of a flush, and what becomes of what it frees if they fail. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::sync::atomic::Ordering::Relaxed;

use puppet::*;
use shootdown::reclaim::*;
use shootdown::*;
use shootdown::{guest::*, secondary::SecondaryFlush::*, secondary::*};

const DEVICE: u64 = 7;

/// Four CPUs, the first three of which have a space loaded that a device listens to.
fn scene() -> (&'static Machine<4>, &'static Puppet, Space<4>) {
    let (machine, puppet) = with_puppet::<4>();
    puppet.has_no_back_end.store(true, Relaxed);
    let space = space_on(machine, 3);
    machine.secondary_tlbs().listen(&space, DEVICE);
    (machine, puppet, space)
}

/// What the listener was told, and about which tokens it was asked afterwards: `flush` is one flush that waits.
fn told_of(puppet: &Puppet, flush: impl FnOnce()) -> (u64, remote::FlushRequest) {
    flush();
    let told = puppet.told.take();
    let [(listener, request, None)] = told[..] else {
        panic!("not told once: {told:?}");
    };
    assert_eq!(puppet.asked_about.take(), [listener]);
    (listener, request)
}

/// Drops a space whose listener is still there, by force.
fn end(machine: &Machine<4>, space: Space<4>) {
    machine.secondary_tlbs().unlisten(&space);
    drop(space);
}

#[test]
fn a_listener_is_told_of_each_flush_once_however_cpus_are_reached() {
    let (machine, puppet, space) = scene();
    let others = [
        // By interrupts.
        (true, None, "interrupts"),
        // All but the initiator by a back end, or none.
        (false, Some(EVERYBODY), "back end"),
        (false, Some(&[][..]), "back end that takes none"),
    ];
    for (has_no_back_end, reach, how) in others {
        puppet.has_no_back_end.store(has_no_back_end, Relaxed);
        puppet.reaches(reach.unwrap_or(&[]));
        for freed in [FreedTables::No, FreedTables::Yes] {
            let (listener, request) = told_of(puppet, || machine.flush(&space, pages(3, 2), freed));
            assert_eq!(listener, DEVICE, "{how}");
            assert_eq!(request.space(), Some(space.id()));
            assert_eq!(request.freed_tables(), freed);
            assert!(request.ranges().eq([pages(3, 2)]));
            assert_eq!(request.generation(), space.generation());
        }
    }
    end(machine, space);
}

#[test]
fn a_listener_is_told_where_no_cpu_need_be() {
    let (machine, puppet) = with_puppet::<4>();
    let space = Space::new(machine, 1);
    machine.secondary_tlbs().listen(&space, DEVICE);
    told_of(puppet, || {
        machine.flush(&space, pages(0, 1), FreedTables::Yes);
    });
    assert!(puppet.sent.take().is_empty());
    // A batch, and a guard.
    let mut batch = FlushBatch::<u64, 1>::new(&*space);
    batch.page(0, PageSize::SIZE_4K, 5).unwrap();
    told_of(puppet, || {
        assert!(machine.submit_batch(&*space, batch).wait().eq([5]));
    });
    told_of(puppet, || {
        let mut guard = machine.guard(&*space, (), (), |()| ());
        guard.changed(pages(0, 1));
    });
    // Nothing has changed.
    machine.flush(&space, FlushRanges::EMPTY, FreedTables::No);
    assert!(puppet.told.take().is_empty());
    end(machine, space);
}

#[test]
fn a_listener_is_told_of_what_one_instruction_flushes_everywhere() {
    let machine = online(globally_tagged::<4>(12));
    let puppet = machine.platform().0;
    machine.set_policy(Policy::BEST.with_global_tags_from(1));
    let space = space_on(machine, 4);
    (0..2).for_each(|_| machine.flush(&space, pages(0, 1), FreedTables::No));
    puppet.everywhere.take();
    machine.secondary_tlbs().listen(&space, DEVICE);
    told_of(puppet, || {
        machine.flush(&space, pages(0, 1), FreedTables::No);
    });
    assert_eq!(puppet.everywhere.take().len(), 1);
    end(machine, space);
}

#[test]
fn a_listener_is_told_of_the_kernels_part_also_before_a_cpu_is_online() {
    let machine = powered_off::<2>();
    let puppet = machine.platform().0;
    let kernel = FlushScope::<Cpus<2>>::Kernel;
    machine.secondary_tlbs().listen(kernel, DEVICE);
    let flush = || machine.flush(kernel, pages(GLOBAL, 1), FreedTables::Yes);
    let (_, request) = told_of(puppet, flush);
    assert_eq!(request.space(), None);
    online(machine);
    told_of(puppet, flush);
    // Of spaces it hears nothing.
    let space = space_on(machine, 2);
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    assert!(puppet.told.take().is_empty());
    machine.secondary_tlbs().unlisten(kernel);
    flush();
    assert!(puppet.told.take().is_empty());
}

#[test]
fn a_listener_is_told_of_flushes_of_a_guest() {
    let (machine, puppet) = with_puppet::<4>();
    let guest = GuestSpace::new(machine, tables(1));
    machine.secondary_tlbs().listen(&guest, DEVICE);
    let flush = || machine.flush(&guest, pages(0, 1), FreedTables::Yes);
    let (_, request) = told_of(puppet, flush);
    assert_eq!(request.space(), Some(guest.id()));
    machine.secondary_tlbs().release(&guest).unwrap();
    flush();
    assert!(puppet.told.take().is_empty());
}

#[test]
fn one_that_has_nothing_to_wait_for_is_not_asked() {
    let (machine, puppet) = with_puppet::<4>();
    let space = space_on(machine, 2);
    machine.secondary_tlbs().listen(&space, DEAF);
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    puppet.deliver_all();
    assert!(ticket.is_done());
    ticket.wait();
    assert_eq!(puppet.told.take().len(), 1);
    assert!(puppet.asked_about.take().is_empty());
    end(machine, space);
}

/// Whoever makes tables of ours compares generations under the lock that the listener takes.
#[test]
fn a_change_is_counted_before_the_listener_is_told() {
    let (machine, puppet, space) = scene();
    let before = space.generation();
    // SAFETY: it is used before the space goes.
    let view: &'static AddressSpace<Cpus<4>> = unsafe { &*std::ptr::from_ref(&*space) };
    puppet.when_told_next(move || assert!(view.generation() > before));
    machine.flush(&space, pages(0, 1), FreedTables::No);
    end(machine, space);
}

/// The waiter serves flushes meanwhile.
#[test]
fn a_wait_for_a_busy_listener_serves_this_cpu() {
    let (machine, puppet, space) = scene();
    *puppet.answers.lock().unwrap() = vec![Done, Busy, Busy];
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    puppet.deliver_all();
    assert!(!ticket.is_done(), "the listener has not been asked");
    puppet.deafen(0);
    let other = puppet.as_cpu(1, || {
        machine.submit_flush(&space, pages(1, 1), FreedTables::No)
    });
    puppet.deliver_all();
    ticket.wait();
    assert_eq!(puppet.asked_about.take(), [DEVICE; 3]);
    puppet.hear_again(0);
    puppet.as_cpu(1, || other.wait());
    end(machine, space);
}

/// Something whose drop is counted.
#[derive(Debug)]
struct Frame<'a>(&'a Count);

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        self.0.add();
    }
}

fn leaks(machine: &Machine<4>) -> u64 {
    machine.watch().total_stats().leaks
}

#[test]
fn what_a_failing_listener_may_use_comes_back_by_a_retry_or_a_promise_only() {
    let (machine, puppet, space) = scene();
    let freed = Count::new();
    let submit = || {
        let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::Yes);
        ticket.hold(Frame(&freed))
    };
    *puppet.answers.lock().unwrap() = vec![Done, Failed, Failed];
    let held = submit().try_wait().unwrap_err();
    let held = held.retry().unwrap_err();
    assert_eq!(freed.get(), 0);
    drop(held.retry().unwrap());
    assert_eq!(freed.take(), 1);
    assert_eq!(puppet.asked_about.take(), [DEVICE; 3]);

    *puppet.answers.lock().unwrap() = vec![Failed];
    let held = submit().try_wait().unwrap_err();
    // SAFETY: 1. there is no device.
    drop(unsafe { held.release() });
    assert_eq!((freed.take(), leaks(machine)), (1, 0));

    // What is dropped instead leaks, and says so.
    *puppet.answers.lock().unwrap() = vec![Failed; 4];
    drop(submit().try_wait());
    assert_eq!((freed.get(), leaks(machine)), (0, 1));
    drop(submit());
    assert_eq!((freed.get(), leaks(machine)), (0, 2));
    drop(submit().hand_over());
    assert_eq!((freed.get(), leaks(machine)), (0, 3));
    assert!(refuses(|| submit().wait()));
    assert_eq!((freed.get(), leaks(machine)), (0, 4));

    *puppet.answers.lock().unwrap() = vec![Failed];
    let mut guard = machine.guard(&*space, (), Vec::new(), |frames: Vec<_>| {
        frames
            .into_iter()
            .for_each(|frame| drop(std::mem::ManuallyDrop::into_inner(frame)));
    });
    guard.unlinked_page(0, PageSize::SIZE_4K, Frame(&freed));
    drop(guard);
    assert_eq!((freed.get(), leaks(machine)), (0, 5));
    assert!(puppet.answers.lock().unwrap().is_empty());
    end(machine, space);
}

#[test]
fn what_is_dropped_unwaited_for_is_freed_when_the_listener_answers() {
    let (machine, _, space) = scene();
    let freed = Count::new();
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::Yes);
    drop(ticket.hold(Frame(&freed)));
    assert_eq!((freed.get(), leaks(machine)), (1, 0));
    end(machine, space);
}

#[test]
fn a_scope_has_one_listener_at_a_time() {
    let (machine, puppet, space) = scene();
    let listen = |listener| machine.secondary_tlbs().listen(&space, listener);
    assert!(refuses(|| listen(8)));
    machine.secondary_tlbs().unlisten(&space);
    machine.flush(&space, pages(0, 1), FreedTables::Yes);
    assert!(puppet.told.take().is_empty());
    listen(8);
    let (listener, _) = told_of(puppet, || {
        machine.flush(&space, pages(0, 1), FreedTables::Yes)
    });
    assert_eq!(listener, 8);
    end(machine, space);
}

/// It may have begun something that it has not finished.
#[test]
fn what_was_begun_is_finished_also_when_nobody_listens_any_more() {
    let (machine, puppet, space) = scene();
    let ticket = machine.submit_flush(&space, pages(0, 1), FreedTables::No);
    machine.secondary_tlbs().unlisten(&space);
    assert!(puppet.asked_about.take().is_empty());
    ticket.wait();
    assert_eq!(puppet.asked_about.take(), [DEVICE]);
}

#[test]
fn a_listener_that_does_not_let_go_stays() {
    let (machine, puppet, space) = scene();
    let release = || machine.secondary_tlbs().release(&space);
    puppet.refuses_release.store(true, Relaxed);
    assert_eq!(release(), Err(SecondaryFailed));
    told_of(puppet, || {
        machine.flush(&space, pages(0, 1), FreedTables::No)
    });
    puppet.refuses_release.store(false, Relaxed);
    assert_eq!(release(), Ok(()));
    assert_eq!(puppet.released.take(), [DEVICE]);
    // There is none any more.
    assert_eq!(release(), Ok(()));
    assert!(puppet.released.take().is_empty());
    machine.flush(&space, pages(0, 1), FreedTables::No);
    assert!(puppet.told.take().is_empty());
}

/// Spaces with listeners and without, in one reclaim: what was begun earlier goes along.
#[test]
fn a_reclaim_waits_for_all_listeners_of_its_spaces_at_once() {
    let (machine, puppet, first) = scene();
    let (second, third) = (Space::new(machine, 2), Space::new(machine, 3));
    machine.secondary_tlbs().listen(&third, 8);
    let freed = Count::new();
    let mut reclaim = Reclaim::new(machine, Vec::new());
    for space in [&first, &second, &third] {
        reclaim.add(space);
    }
    reclaim.keep(Frame(&freed));
    let told: Vec<_> = (puppet
        .told
        .take()
        .iter()
        .map(|told| (told.0, told.2.map(u64::from))))
    .collect();
    assert_eq!(told, [(DEVICE, None), (8, Some(DEVICE))]);
    *puppet.answers.lock().unwrap() = vec![Failed];
    let held = reclaim.submit().try_wait().unwrap_err();
    assert_eq!(puppet.asked_about.take(), [DEVICE * 100 + 8]);
    assert_eq!(held.retry().unwrap().len(), 1);
    assert_eq!(freed.get(), 0);
    end(machine, first);
    end(machine, third);
}

/// One that has nothing to wait for does not speak for those before it.
#[test]
fn a_listener_without_anything_to_wait_for_forgets_nobody() {
    let (machine, puppet, first) = scene();
    let second = Space::new(machine, 2);
    machine.secondary_tlbs().listen(&second, DEAF);
    let mut reclaim = Reclaim::new(machine, Vec::<std::mem::ManuallyDrop<u64>>::new());
    reclaim.add(&first);
    reclaim.add(&second);
    reclaim.submit().wait();
    assert_eq!(puppet.asked_about.take(), [DEVICE]);
    end(machine, first);
    end(machine, second);
}

/// Tables of the kernel's part may be freed while no CPU has memory.
#[test]
fn a_cpu_without_memory_waits_for_a_listener() {
    let puppet: &'static Puppet = powered_off::<2>().platform();
    let bare: &'static Machine<2> = Box::leak(Box::new(Shootdown::new(Seat(puppet))));
    let kernel = FlushScope::<Cpus<2>>::Kernel;
    bare.secondary_tlbs().listen(kernel, DEVICE);
    let flush = || bare.submit_flush(kernel, pages(GLOBAL, 1), FreedTables::Yes);
    flush().wait();
    assert_eq!(puppet.asked_about.take(), [DEVICE]);
    *puppet.answers.lock().unwrap() = vec![Failed];
    drop(flush().try_wait());
}
