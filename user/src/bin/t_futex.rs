//! Futexes: a word is one futex wherever it is seen, and whoever waits is woken, moved, or gives up.

use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Duration;

use shootdown_user::checks::{self, expect};
use shootdown_user::child::{Child, End};
use shootdown_user::kvm::{catch_interruptions, interrupt};
use shootdown_user::memory_file;
use shootdown_user::region::{PAGE_BYTES, PAGE_WORDS, Region};

/// Long enough for whoever is to be there in time.
const PATIENCE: Duration = Duration::from_secs(20);
/// Short enough to be waited for.
const SHORT: Duration = Duration::from_millis(20);
/// Words that are tried: their addresses lead to different lists of waiters.
const WORDS: usize = 40;

/// The first half of a word, which is what a futex has.
fn place(region: &Region, word: usize) -> usize {
    region.address() + word * 8
}

fn futex(at: usize, operation: i32, value: usize, more: [usize; 3]) -> io::Result<usize> {
    let [timeout, second, third] = more;
    let operation = operation as usize;
    // SAFETY: the words are atomics, and the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            at,
            operation,
            value,
            timeout,
            second,
            third,
        )
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn wait(at: usize, flags: i32, timeout: Duration) -> io::Result<usize> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs() as i64,
        tv_nsec: i64::from(timeout.subsec_nanos()),
    };
    futex(
        at,
        libc::FUTEX_WAIT | flags,
        0,
        [&raw const timeout as usize, 0, 0],
    )
}

/// Wakes until somebody was woken.
fn wake_one(at: usize, flags: i32) {
    while futex(at, libc::FUTEX_WAKE | flags, 1, [0; 3]).unwrap() == 0 {
        thread::yield_now();
    }
}

/// Moves waiters until so many were.
fn requeue(from: usize, to: usize, count: usize) {
    let mut moved = 0;
    while moved < count {
        moved += futex(from, libc::FUTEX_REQUEUE, 0, [count, to, 0]).map_or(0, |_| waiting(to));
        thread::yield_now();
    }
}

/// How many wait there: all are moved from the word to itself, and counted.
fn waiting(at: usize) -> usize {
    futex(at, libc::FUTEX_CMP_REQUEUE, 0, [usize::MAX >> 33, at, 0]).unwrap()
}

fn file() -> File {
    memory_file::create(c"t_futex", PAGE_BYTES as u64).unwrap()
}

/// Seen at two addresses, in one process or two.
fn a_word_is_one_futex_at_all_addresses() {
    let file = file();
    let (one, other) = (
        Region::of_file(&file, 1).unwrap(),
        Region::of_file(&file, 1).unwrap(),
    );
    for word in (0..PAGE_WORDS).step_by(PAGE_WORDS / WORDS) {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(place(&one, word), 0, PATIENCE).unwrap());
            wake_one(place(&other, word), 0);
            waiter.join().unwrap();
        });
    }
    let child = Child::start(|| i32::from(wait(place(&one, 5), 0, PATIENCE).is_err())).unwrap();
    wake_one(place(&other, 5), 0);
    assert_eq!(child.wait().unwrap(), End::Exited(0));
}

/// The same address of two processes, each with memory of its own.
fn private_words_are_two_futexes() {
    let (own, go) = (Region::new(1).unwrap(), Region::shared(1).unwrap());
    own.word(0, 1).store(0, Release);
    for flags in [0, libc::FUTEX_PRIVATE_FLAG] {
        let child = Child::start(|| {
            go.word(0, 0).store(1, Release);
            i32::from(wait(place(&own, 1), flags, 5 * SHORT).is_ok())
        })
        .unwrap();
        while go.word(0, 0).load(Acquire) == 0 {
            thread::yield_now();
        }
        let woken: usize = (0..20)
            .map(|_| {
                thread::sleep(SHORT / 10);
                futex(place(&own, 1), libc::FUTEX_WAKE | flags, 1, [0; 3]).unwrap()
            })
            .sum();
        assert_eq!((woken, child.wait().unwrap()), (0, End::Exited(0)));
        go.word(0, 0).store(0, Release);
    }
}

/// Whoever was moved to another word is woken there, gives up in time, and hears signals.
fn who_was_moved_waits_as_before() {
    catch_interruptions();
    let memory = Region::shared(1).unwrap();
    // On Linux, whoever wakes up for nothing goes back to where it waited first.
    let mut found_at_first = 0;
    for word in (2..PAGE_WORDS).step_by(PAGE_WORDS / WORDS) {
        let (from, to) = (place(&memory, 0), place(&memory, word));
        let thread = AtomicI32::new(0);
        let waits = |timeout| {
            // SAFETY: takes nothing.
            thread.store(unsafe { libc::gettid() }, Release);
            wait(from, 0, timeout)
        };
        thread::scope(|scope| {
            let waiter = scope.spawn(|| waits(PATIENCE));
            requeue(from, to, 1);
            match futex(from, libc::FUTEX_WAKE, 1, [0; 3]).unwrap() {
                0 => wake_one(to, 0),
                _ => found_at_first += 1,
            }
            waiter.join().unwrap().unwrap();

            let waiter = scope.spawn(|| waits(PATIENCE));
            requeue(from, to, 1);
            interrupt(thread.load(Acquire));
            expect(libc::EINTR, waiter.join().unwrap());

            // It may give up before it is moved.
            let waiter = scope.spawn(|| waits(SHORT));
            while !waiter.is_finished() {
                futex(from, libc::FUTEX_REQUEUE, 0, [1, to, 0]).unwrap();
                thread::yield_now();
            }
            expect(libc::ETIMEDOUT, waiter.join().unwrap());
            assert_eq!((waiting(from), waiting(to)), (0, 0));
        });
    }
    assert!(
        found_at_first < WORDS / 4,
        "{found_at_first} were not moved"
    );
}

/// As many as are asked for, no more.
fn as_many_are_woken_as_are_asked_for() {
    const WAITERS: usize = 5;
    let memory = Region::shared(1).unwrap();
    let at = place(&memory, 7);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| scope.spawn(|| wait(at, 0, PATIENCE)))
            .collect();
        while waiting(at) < WAITERS {
            thread::yield_now();
        }
        assert_eq!(futex(at, libc::FUTEX_WAKE, 2, [0; 3]).unwrap(), 2);
        assert_eq!(waiting(at), WAITERS - 2);
        assert_eq!(
            futex(at, libc::FUTEX_WAKE, WAITERS, [0; 3]).unwrap(),
            WAITERS - 2
        );
        waiters
            .into_iter()
            .for_each(|waiter| assert_eq!(waiter.join().unwrap().unwrap(), 0));
    });
}

fn main() -> ExitCode {
    checks::run(
        "t_futex",
        &checks::named![
            a_word_is_one_futex_at_all_addresses,
            private_words_are_two_futexes,
            who_was_moved_waits_as_before,
            as_many_are_woken_as_are_asked_for,
        ],
    )
}
