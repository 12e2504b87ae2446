//! The guard that flushes when it is dropped. On the puppet machine.

#![cfg(not(loom))]

mod puppet;

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use puppet::*;
use shootdown::*;

/// What happened, in order.
type Events = RefCell<Vec<&'static str>>;

/// A lock whose end is an event: how many flushes had been published then, and how many done.
struct Lock<'a>(&'a dyn Fn(&'static str), [u64; 2]);

impl std::ops::Deref for Lock<'_> {
    type Target = [u64; 2];

    fn deref(&self) -> &[u64; 2] {
        &self.1
    }
}

impl std::ops::DerefMut for Lock<'_> {
    fn deref_mut(&mut self) -> &mut [u64; 2] {
        &mut self.1
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        (self.0)("unlocked");
    }
}

/// Notes an event, unless what must be so then is not.
fn notes<'a>(machine: &'a Machine<4>, events: &'a Events) -> impl Fn(&'static str) + 'a {
    move |event| {
        let stats = machine.watch().total_stats();
        let (published, done) = match event {
            "unlocked" => (true, false),
            _ => (true, true),
        };
        assert_eq!(stats.ipis_sent > 0, published, "{event}");
        assert_eq!(stats.remote_flushes > 0, done, "{event}");
        events.borrow_mut().push(event);
    }
}

#[test]
fn it_submits_unlocks_waits_and_frees() {
    for policy in [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST] {
        for is_kernel in [false, true] {
            let (machine, puppet) = with_puppet::<4>();
            machine.set_policy(policy);
            let space = space_on(machine, 3);
            let events = Events::default();
            let note = notes(machine, &events);
            let lock = Lock(&note, [7, 8]);
            let free = |frames: Vec<_>| {
                note("freed");
                assert_eq!(frames, [7, 8].map(ManuallyDrop::new));
            };
            let mut guard = match is_kernel {
                false => machine.guard(&space, lock, Vec::new(), free),
                true => machine.guard(FlushScope::Kernel, lock, Vec::new(), free),
            };
            for page in 0..2 {
                let frame = std::mem::take(&mut guard[page]);
                guard.unlinked_page(page * PAGE, PageSize::SIZE_4K, frame);
            }
            assert_eq!(
                (machine.watch().total_stats().ipis_sent, *guard),
                (0, [0, 0])
            );
            drop(guard);
            assert_eq!(*events.borrow(), ["unlocked", "freed"], "{policy:?}");
            let flushed = puppet.flushes.take();
            let cpus = if is_kernel { 4 } else { 3 };
            assert_eq!(flushed.len(), cpus, "one flush: {flushed:?}");
            assert!(flushed.iter().all(
                |(_, operation)| *operation == LocalFlush::Pages(pages(0, 2), FreedTables::No)
            ));
        }
    }
}

/// The guard of a lock that is a temporary lives to the end of the statement, a ticket's wait with it. This one unlocks first.
#[test]
fn it_unlocks_first_also_at_the_end_of_a_statement() {
    let machine = machine::<4>();
    let space = space_on(machine, 2);
    let events = Events::default();
    let note = notes(machine, &events);
    machine
        .guard(&space, Lock(&note, [0, 0]), (), |()| note("freed"))
        .changed(pages(3, 1));
    assert_eq!(*events.borrow(), ["unlocked", "freed"]);
}

#[test]
fn what_is_unlinked_is_flushed_and_given_back() {
    let (machine, puppet) = with_puppet::<2>();
    let space = space_on(machine, 2);
    let freed = Count::new();
    let mut guard = machine.guard(&space, (), Vec::new(), |unlinked: Vec<_>| {
        assert_eq!(unlinked, [5, 6].map(ManuallyDrop::new));
        freed.add();
    });
    guard.unlinked_table(0x40_3000, PageSize::SIZE_64K, 5);
    guard.unlinked_page(0, PageSize::SIZE_4K, 6);
    drop(guard);
    assert_eq!(freed.get(), 1);
    let (request, _) = puppet.asked.take().remove(0);
    assert_eq!(request.freed_tables(), FreedTables::Yes);
    let table = FlushRange::pages(0x40_0000, 16, PageSize::SIZE_4K);
    assert_eq!(request.ranges().collect::<Vec<_>>(), [table, pages(0, 1)]);
}

#[test]
fn without_a_change_it_only_unlocks() {
    let machine = machine::<2>();
    let space = space_on(machine, 2);
    let freed = Count::new();
    drop(machine.guard(&space, (), Vec::<u64>::new(), |frames| {
        assert!(frames.is_empty());
        freed.add();
    }));
    assert_eq!(
        (freed.get(), machine.watch().total_stats().ipis_sent),
        (1, 0)
    );
}

#[test]
fn a_panic_under_the_lock_flushes_what_was_changed() {
    let machine = machine::<2>();
    let space = space_on(machine, 2);
    let freed = Count::new();
    let panicked = refuses(|| {
        let mut guard = machine.guard(&space, (), Vec::new(), |frames: Vec<_>| {
            assert_eq!(frames, [ManuallyDrop::new(9)]);
            assert_eq!(machine.watch().total_stats().remote_flushes, 1);
            freed.add();
        });
        guard.unlinked_page(0, PageSize::SIZE_4K, 9);
        panic!("on purpose");
    });
    assert_eq!((panicked, freed.get()), (true, 1));
}

#[test]
fn a_guard_for_the_space_of_another_engine_is_refused() {
    let [machine, other] = [machine::<2>(), machine::<2>()];
    let space = space_on(other, 1);
    assert!(refuses(|| machine.guard(&space, (), (), |()| ())));
}

/// Two implementations fit a type that may go to another thread: then what uses this does not compile.
trait StaysHere<Which> {
    fn holds() {}
}

impl<T> StaysHere<()> for T {}
impl<T: Send> StaysHere<u8> for T {}

/// A part of a flush may be due on the CPU that submitted it, windows are pinned to a CPU, and a section is its CPU's.
#[test]
fn what_belongs_to_a_cpu_stays_there() {
    <FlushTicket<'_, Seat<4>> as StaysHere<_>>::holds();
    <windows::PinnedWindows<'_, Seat<4>> as StaysHere<_>>::holds();
    <user_memory::Walk<'_, Seat<4>> as StaysHere<_>>::holds();
}
