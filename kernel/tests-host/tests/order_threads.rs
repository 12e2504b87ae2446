//! Threads of one process, and processes that share: what another thread does each time that the lock of an address space is free, and
//! syncs of one file side by side.

mod support;

use shootdown::CpuId;
use shootdown_kernel_tests::arch::percpu::as_cpu;
use shootdown_kernel_tests::mm::file::PageRange;
use shootdown_kernel_tests::mm::layout::STACK_TOP;
use shootdown_kernel_tests::mm::{
    AreaKind, Destination, FaultError, MapRequest, MemoryFile, MemorySpace, PAGE_SIZE, Placement,
    Prot, frames,
};
use shootdown_kernel_tests::witness::{at_spin, at_wait, forget_spin, intrude};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::watched::Watched;
use support::*;

const PAGES: usize = 4;
/// The time that somebody leaves for another thread.
const PATIENCE: Duration = Duration::from_millis(20);

/// Writes to all pages of the space as another thread of its process does, as often as it can.
fn writer(space: &Arc<MemorySpace>) -> impl FnMut() + 'static {
    let space = space.clone();
    move || (0..PAGES).for_each(|page| write(&space, page, 50 + page as u64))
}

#[test]
fn a_thread_writes_as_soon_as_a_fork_lets_it() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let watched = Watched::new(&[&parent, &parent]);
    let intruder = intrude(writer(&parent));
    let child = parent.fork().unwrap();
    drop(intruder);
    watched.watch.settle();
    for page in 0..PAGES {
        let number = page as u64;
        assert_eq!(read(&parent, page), 50 + number);
        assert_eq!(read(&child, page), number + 1);
    }
}

#[test]
fn two_threads_write_to_a_shared_page_at_once() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    let watched = Watched::new(&[&parent, &child]);
    let intruder = intrude(writer(&parent));
    for page in 0..PAGES {
        parent.fault(at(page), REFUSED).unwrap();
        assert!(may_write(&parent, page));
        watched.watch.settle();
    }
    drop(intruder);
    // The last owner's own: no copy, no flush.
    let free = frames::free_count();
    let intruder = intrude(writer(&child));
    child.fault(at(0), REFUSED).unwrap();
    drop(intruder);
    assert_eq!(frames::free_count(), free);
    assert_eq!((read(&parent, 0), read(&child, 0)), (50, 50));
}

#[test]
fn parent_and_child_write_to_a_shared_page_at_once() {
    let _turn = Turn::new();
    let parent = written(PAGES);
    let child = parent.fork().unwrap();
    let watched = Watched::new(&[&parent, &child]);
    let intruder = intrude(writer(&child));
    for page in 0..PAGES {
        write(&parent, page, 9);
        assert_eq!(read(&parent, page), 9);
        assert_eq!(read(&child, page), 50 + page as u64);
    }
    drop(intruder);
    watched.watch.settle();
}

#[test]
fn a_thread_writes_while_another_one_takes_pages_away() {
    let _turn = Turn::new();
    let space = written(PAGES);
    let watched = Watched::new(&[&space]);
    let intruder = intrude(writer_that_may_fail(&space));
    discard(&space, 0, PAGES);
    let child = space.fork().unwrap();
    unmap(&space, 0, PAGES);
    drop(intruder);
    watched.watch.settle();
    drop(child);
}

fn writer_that_may_fail(space: &Arc<MemorySpace>) -> impl FnMut() + 'static {
    let space = space.clone();
    move || {
        for page in 0..PAGES {
            let _gone = space.fault(at(page), WRITE);
        }
    }
}

/// Another thread does `after` while `before` waits for other CPUs: what these may still use when `after` has returned.
fn left_by(before: Deed, after: Deed) -> Option<String> {
    let space = MemorySpace::new().unwrap();
    space.set_heap_start(at(HEAP));
    space.brk(at(HEAP + 2));
    map(&space, PAGES, AreaKind::Anonymous);
    let stack = MapRequest {
        kind: AreaKind::Stack,
        ..request(BELOW_STACK, 2)
    };
    space.map(stack).unwrap();
    let pages = (0..PAGES).chain(HEAP..HEAP + 2).map(at);
    let pages = pages.chain([BELOW_STACK]);
    pages.for_each(|page| space.fault(page, WRITE).unwrap());
    let watched = Rc::new(Watched::new(&[&space, &space]));
    let (other, seen) = (space.clone(), watched.clone());
    let found = Rc::new(Cell::new(None));
    let answer = found.clone();
    at_wait(move || {
        as_cpu(CpuId::new(3), || after(&other));
        answer.set(Some(seen.watch.broken()));
    });
    before(&space);
    found.take().expect("the first one waited")
}

type Deed = fn(&Arc<MemorySpace>);
/// What is just below the stack.
const BELOW_STACK: usize = STACK_TOP - 2 * PAGE_SIZE;

fn unmaps_stack(space: &Arc<MemorySpace>) {
    space.unmap(BELOW_STACK, PAGE_SIZE).unwrap();
}

fn grows_stack(space: &Arc<MemorySpace>) {
    space.fault(BELOW_STACK, WRITE).unwrap();
}

/// The page where the heap begins, which has two.
const HEAP: usize = PAGES;

/// What one operation has taken away already, other CPUs may use until that one is over. So an operation that finds nothing there to take
/// away, and promises that nobody uses it, waits as well.
#[test]
fn no_operation_relies_on_a_flush_that_is_not_over() {
    let _turn = Turn::new();
    let discards: Deed = |space| discard(space, 1, 2);
    let unmaps: Deed = |space| unmap(space, 1, 2);
    let protects: Deed = |space| protect(space, 1, 2, Prot::READ);
    let protects_all: Deed = |space| protect(space, 0, PAGES + 2, Prot::READ);
    let forks: Deed = |space| drop(space.fork().unwrap());
    let moves: Deed = |space| move_to(space, 1, 2, 600);
    let maps: Deed = |space| assert_eq!(space.map(request(at(1), 2)), Ok(at(1)));
    let maps_anywhere: Deed = |space| {
        let anywhere = MapRequest {
            placement: Placement::Anywhere,
            ..request(at(1), 2)
        };
        assert_eq!(space.map(anywhere), Ok(at(1)));
    };
    let shrinks: Deed = |space| assert_eq!(space.brk(at(HEAP)), at(HEAP));
    let grows: Deed = |space| assert_eq!(space.brk(at(HEAP + 1)), at(HEAP + 1));
    let unmaps_end: Deed = |space| unmap(space, 2, 2);
    let extends: Deed = |space| {
        let bytes = |pages: usize| pages * PAGE_SIZE;
        let longer = space.remap(at(0), bytes(2), bytes(4), Destination::Stay);
        assert_eq!(longer, Ok(at(0)));
    };
    let pairs = [
        (unmaps_end, extends, "a mapping that becomes longer"),
        (unmaps_stack, grows_stack, "a stack that grows"),
        (discards, discards, "two discards"),
        (discards, unmaps, "an unmap after a discard"),
        (discards, moves, "a move after a discard"),
        (unmaps, unmaps, "two unmaps"),
        (unmaps, maps, "a mapping in a place"),
        (unmaps, maps_anywhere, "a mapping that finds the place"),
        (protects, protects, "two mprotects"),
        (protects_all, forks, "a fork after an mprotect"),
        (shrinks, grows, "a heap that shrinks and grows"),
    ];
    for (before, after, what) in pairs {
        assert_eq!(left_by(before, after), None, "{what}");
    }
}

/// Long enough for another thread to go wrong, if it does not wait as it must.
fn linger() {
    thread::sleep(PATIENCE);
}

/// Another sync, on a thread of its own, which does `deed` when it waits; what is stored when it has returned.
fn sync_elsewhere(file: &Arc<MemoryFile>, deed: impl FnOnce() + Send + 'static) -> JoinHandle<u64> {
    let file = file.clone();
    let sync = move || {
        at_wait(deed);
        sync(&file);
        stored(&file, 0)
    };
    thread::spawn(|| as_cpu(CpuId::new(3), sync))
}

/// A sync that finds nothing dirty, because another one has just taken the page, returns after that one has stored it.
#[test]
fn a_sync_waits_for_the_one_that_took_its_pages() {
    let _turn = Turn::new();
    let (file, space) = mapper(1);
    let _watched = Watched::new(&[&space]);
    for value in 1..10 {
        put(&space, 0, value);
        let (other, syncing) = (Arc::new(Mutex::new(None)), file.clone());
        let started = other.clone();
        at_wait(move || {
            *started.lock().unwrap() = Some(sync_elsewhere(&syncing, || {}));
            linger();
        });
        sync(&file);
        let other = other.lock().unwrap().take().expect("the first one waited");
        assert_eq!(other.join().unwrap(), value);
    }
}

/// The other one takes the page at any moment: before each spin lock that the first one takes.
#[test]
fn a_sync_waits_whenever_the_other_one_took_its_pages() {
    let _turn = Turn::new();
    let (file, space) = mapper(1);
    let _watched = Watched::new(&[&space]);
    for moment in 0.. {
        let value = moment as u64 + 1;
        put(&space, 0, value);
        let (other, syncing) = (Arc::new(Mutex::new(None)), file.clone());
        let started = other.clone();
        at_spin(moment, move || {
            let has_taken = Arc::new(AtomicBool::new(false));
            let tell = has_taken.clone();
            let thread = sync_elsewhere(&syncing, move || {
                tell.store(true, Relaxed);
                linger();
            });
            *started.lock().unwrap() = Some(thread);
            // It may sleep because of this one instead.
            let begun = Instant::now();
            while !has_taken.load(Relaxed) && begun.elapsed() < 5 * PATIENCE {
                thread::yield_now();
            }
        });
        sync(&file);
        assert_eq!(stored(&file, 0), value, "moment {moment}");
        if forget_spin() {
            assert!(moment > 3, "there are {moment} moments");
            return;
        }
        let other = other.lock().unwrap().take().expect("it was started");
        assert_eq!(other.join().unwrap(), value);
    }
}

/// Somebody maps the file and uses its last page at any moment while it is cut: before each spin lock that the cut takes.
#[test]
fn a_cut_reaches_whoever_maps_meanwhile() {
    let _turn = Turn::new();
    for moment in 0.. {
        let file = file_of(2);
        let space = MemorySpace::new().unwrap();
        let (other, shown) = (space.clone(), shown(&file, 0));
        at_spin(moment, move || {
            as_cpu(CpuId::new(3), || {
                map(&other, 2, shown);
                let _cut = other.fault(at(1), READ);
            });
        });
        resize(&file, 1);
        if forget_spin() {
            assert!(moment > 3, "there are {moment} moments");
            return;
        }
        assert_eq!(entry(&space, 1), None, "moment {moment}");
        assert_eq!(space.fault(at(1), READ), Err(FaultError::BeyondFile));
    }
}

/// What another sync had taken when this one began is not stored: this one says so, also when the other one is over.
#[test]
fn a_sync_tells_that_another_one_failed() {
    let _turn = Turn::new();
    let (file, space) = mapper(2);
    // Who is watched makes one call at a time.
    as_cpu(CpuId::new(1), || space.activate(None));
    // There is room for page 0 in the stored copy, and none for page 1.
    put(&space, 0, 1);
    sync(&file);
    space.fault(at(1), WRITE).unwrap();
    (0..2).for_each(|page| write(&space, page, 2));
    let hoard = exhaust();
    let [has_taken, may_end] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (taken, end, syncing) = (has_taken.clone(), may_end.clone(), file.clone());
    let other = thread::spawn(move || {
        as_cpu(CpuId::new(3), || {
            at_wait(move || {
                taken.store(true, Relaxed);
                until(&end);
            });
            assert!(syncing.sync(PageRange { first: 1, end: 2 }).is_err());
        })
    });
    until(&has_taken);
    at_wait(move || {
        may_end.store(true, Relaxed);
        other.join().unwrap();
    });
    assert!(file.sync(PageRange::WHOLE).is_err());
    assert_eq!(stored(&file, 0), 2, "its own page is stored");
    give_back(hoard);
    sync(&file);
    as_cpu(CpuId::new(1), || space.deactivate());
}
