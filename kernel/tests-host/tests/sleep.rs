//! The sleeping lock on threads of the host: one owner at a time, and no wake-up is lost.

use shootdown_kernel_tests::sync::{List, SleepMutex, Sleeper};
use shootdown_kernel_tests::task::scheduling::{Rule, Scheduling};
use shootdown_kernel_tests::task::{self, Thread};
use std::sync::Arc;

const THREADS: usize = 8;
const ROUNDS: usize = 2_000;

/// Owners give up their processor now and then, so that others do go to sleep. A lost wake-up would hang the test.
#[test]
fn nobody_sleeps_for_ever_and_owners_are_alone() {
    task::init();
    let counts = SleepMutex::new((0usize, 0usize));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut guard = counts.lock();
                    let before = guard.0;
                    if round % 16 == 0 {
                        std::thread::yield_now();
                    }
                    guard.0 = before + 1;
                    guard.1 += 1;
                }
            });
        }
    });
    assert_eq!(*counts.lock(), (THREADS * ROUNDS, THREADS * ROUNDS));
}

/// Wake-ups that come for no reason do not let anybody in.
#[test]
fn spurious_wake_ups_change_nothing() {
    task::init();
    let value = Arc::new(SleepMutex::new(0));
    let guard = value.lock();
    let (tell, hear) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn({
        let value = value.clone();
        move || {
            tell.send(task::current()).expect("the test listens");
            *value.lock() += 1;
        }
    });
    let thread = hear.recv().expect("the waiter tells");
    for _ in 0..1_000 {
        thread.clone().wake();
        std::thread::yield_now();
    }
    assert_eq!(*guard, 0);
    drop(guard);
    waiter.join().expect("it gets the lock");
    assert_eq!(*value.lock(), 1);
}

#[test]
fn the_most_urgent_sleeper_is_taken_first() {
    let fifo = |number| Scheduling::new(Rule::Fifo, number, false).expect("a valid priority");
    let threads = [Scheduling::NORMAL, fifo(5), fifo(9), fifo(5), fifo(9)]
        .map(|scheduling| Thread::new(scheduling) as Arc<dyn Sleeper>);
    let mut list = List::new();
    for thread in &threads {
        list.enter(thread);
        // It is in already.
        list.enter(thread);
    }
    assert!(list.remove(&*threads[3]).is_some());
    assert!(list.remove(&*threads[3]).is_none());
    let order = [2, 4, 1, 0];
    for at in order {
        let taken = list.take_most_urgent().expect("not empty yet");
        assert!(Arc::ptr_eq(&taken, &threads[at]), "{at} is next");
    }
    assert!(list.take_most_urgent().is_none());
}
