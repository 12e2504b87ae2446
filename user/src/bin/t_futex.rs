//! Futexes: a word is one futex wherever it is seen, and whoever waits is woken, moved, or gives up.

use std::fs::File;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use shootdown_user::checks::{self, expect};
use shootdown_user::child::{Child, End, sleep_for_ever};
use shootdown_user::kvm::{catch_interruptions, interrupt};
use shootdown_user::region::{PAGE_BYTES, PAGE_WORDS, Region};
use shootdown_user::{machine, memory_file, realtime, signals};

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
    waiting_for(at, 0)
}

/// The same of a word that holds `value`.
fn waiting_for(at: usize, value: u32) -> usize {
    let more = [usize::MAX >> 33, at, value as usize];
    futex(at, libc::FUTEX_CMP_REQUEUE, 0, more).unwrap()
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

/// What a program started with this argument does instead of the tests.
const SLEEP: &str = "sleep";

/// Where in a shared page what is: a flag, the head of the list, entries of two words each.
const FLAG: usize = 0;
const HEAD: usize = 2;
const ENTRY: usize = 8;

fn set_robust_list(at: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: the kernel reads it as this thread ends.
    let status = unsafe { libc::syscall(libc::SYS_set_robust_list, at, bytes) };
    machine::done(status as i32)
}

/// Makes a list of locks that hold these words, and the last one an entry that is only just being added.
fn hold(memory: &Region, locks: &[u32]) {
    let entry = |index: usize| place(memory, ENTRY + 2 * index) as u64;
    let word = |at: usize| memory.word(0, at);
    for (index, lock) in locks.iter().enumerate() {
        let is_last_listed = index + 2 == locks.len();
        let next = match is_last_listed {
            true => place(memory, HEAD) as u64,
            false => entry(index + 1),
        };
        word(ENTRY + 2 * index).store(next, Relaxed);
        word(ENTRY + 2 * index + 1).store(u64::from(*lock), Relaxed);
    }
    word(HEAD).store(entry(0), Relaxed);
    word(HEAD + 1).store(8, Relaxed);
    word(HEAD + 2).store(entry(locks.len() - 1), Relaxed);
    set_robust_list(place(memory, HEAD), 24).unwrap();
}

fn lock_of(memory: &Region, index: usize) -> u32 {
    memory.word(0, ENTRY + 2 * index + 1).load(Acquire) as u32
}

const WAITERS: u32 = libc::FUTEX_WAITERS;
const DIED: u32 = libc::FUTEX_OWNER_DIED;

/// Locks of a thread that ends, in a process or alone, or that runs another program, say so; those of others stay as they are.
fn locks_of_the_dead_say_so() {
    for way in 0..4 {
        let memory = Region::shared(1).unwrap();
        let work = || {
            let own = realtime::thread_id() as u32;
            hold(&memory, &[own | WAITERS, own, own + 1, own | DIED, own]);
            memory.word(0, FLAG).store(u64::from(own), Release);
            while waiting_for(place(&memory, ENTRY + 1), own | WAITERS) == 0 {
                thread::yield_now();
            }
        };
        let child = Child::start(|| match way {
            0 => {
                work();
                0
            }
            1 => {
                thread::scope(|scope| scope.spawn(work).join().unwrap());
                0
            }
            2 => {
                work();
                signals::send_self(libc::SIGKILL).unwrap();
                sleep_for_ever()
            }
            _ => {
                work();
                run_sleeper()
            }
        })
        .unwrap();
        while memory.word(0, FLAG).load(Acquire) == 0 {
            thread::yield_now();
        }
        let owner = memory.word(0, FLAG).load(Acquire) as u32;
        let timeout = libc::timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let more = [&raw const timeout as usize, 0, 0];
        let expected = (owner | WAITERS) as usize;
        // It may have ended before.
        let woken = futex(place(&memory, ENTRY + 1), libc::FUTEX_WAIT, expected, more);
        assert_eq!(woken.unwrap(), 0, "way {way}");
        let end = match way {
            0 | 1 => child.wait(),
            _ => {
                while lock_of(&memory, 4) == owner {
                    thread::yield_now();
                }
                child.kill()
            }
        };
        let expected = if way < 2 {
            End::Exited(0)
        } else {
            End::Killed(libc::SIGKILL)
        };
        assert_eq!(end.unwrap(), expected);
        let locks = [0, 1, 2, 3, 4].map(|index| lock_of(&memory, index));
        assert_eq!(
            locks,
            [WAITERS | DIED, DIED, owner + 1, DIED, DIED],
            "way {way}"
        );
    }
}

fn run_sleeper() -> i32 {
    let own = std::env::current_exe().unwrap();
    let words = [own.to_str().unwrap(), SLEEP];
    let words = words.map(|word| std::ffi::CString::new(word).unwrap());
    let pointers = [words[0].as_ptr(), words[1].as_ptr(), std::ptr::null()];
    // SAFETY: null-terminated strings in a null-terminated array.
    unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
    200
}

/// Lists that lead nowhere, to themselves, to where nothing may be written, or that are no lists: their threads end all the same.
fn wild_lists_are_no_harm() {
    let memory = Region::shared(1).unwrap();
    let entry = place(&memory, ENTRY) as u64;
    for (first, next, offset, pending) in [
        (entry, entry, 8, 0),
        (entry | 1, entry | 1, 8, entry | 1),
        (entry, 8, 8, 0),
        (8, 0, 8, entry),
        (entry, u64::MAX - 7, 8, 0),
        (entry, 0x8000_0000_0000_0000, 3, 0),
        (entry, entry, u64::MAX, u64::MAX),
        (0x7fff_ffff_fff8, 0, 1 << 63, 0xffff_8000_0000_0000),
    ] {
        let child = Child::start(|| {
            memory.word(0, ENTRY).store(next, Relaxed);
            let own = realtime::thread_id() as u64;
            memory.word(0, ENTRY + 1).store(own, Relaxed);
            memory.word(0, HEAD).store(first, Relaxed);
            memory.word(0, HEAD + 1).store(offset, Relaxed);
            memory.word(0, HEAD + 2).store(pending, Relaxed);
            set_robust_list(place(&memory, HEAD), 24).unwrap();
            5
        });
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(5));
    }
    for head in [8, 0x7fff_ffff_fff8, usize::MAX - 7, 1 << 63, 1] {
        let child = Child::start(|| {
            set_robust_list(head, 24).unwrap();
            5
        });
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(5));
    }
    expect(libc::EINVAL, set_robust_list(0, 23));
    set_robust_list(place(&memory, HEAD), 24).unwrap();
    let (mut head, mut bytes) = (0usize, 0usize);
    // SAFETY: two numbers of our own.
    let status = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &mut head, &mut bytes) };
    assert_eq!((status, head, bytes), (0, place(&memory, HEAD), 24));
    set_robust_list(0, 24).unwrap();
}

/// A word changes, and what it was decides whether its waiters are woken, too.
fn a_change_wakes_by_what_was() {
    // Operation, operand, comparison, compared; before, after, whether it compares.
    let cases: [(i64, i64, i64, i64, u32, u32, bool); 9] = [
        (0, 7, 0, 5, 5, 7, true),
        (1, 7, 1, 5, 5, 12, false),
        (1, -1, 2, 1, 0, u32::MAX, true),
        (2, 6, 3, 5, 5, 7, true),
        (3, 1, 4, 4, 5, 4, true),
        (4, 12, 5, 6, 5, 9, false),
        (8, 4, 0, 0, 0, 16, true),
        (8 | 1, 35, 0, 1, 0, 8, false),
        (0, 0, 4, -1, 0, 0, true),
    ];
    for (operation, operand, comparison, compared, before, after, compares) in cases {
        let memory = Region::shared(1).unwrap();
        let (first, second) = (place(&memory, 1), place(&memory, 2));
        memory.word(0, 2).store(u64::from(before), Relaxed);
        let bits = operation << 28 | comparison << 24 | (operand & 0xfff) << 12 | compared & 0xfff;
        thread::scope(|scope| {
            let waiter = scope.spawn(|| wait(first, 0, PATIENCE));
            while waiting(first) == 0 {
                thread::yield_now();
            }
            let other = compares.then(|| {
                scope.spawn(move || futex(second, libc::FUTEX_WAIT, before as usize, [0; 3]))
            });
            while other.is_some() && waiting_for(second, before) == 0 {
                thread::yield_now();
            }
            let woken = futex(first, libc::FUTEX_WAKE_OP, 1, [1, second, bits as usize]);
            assert_eq!(woken.unwrap(), 1 + usize::from(compares));
            waiter.join().unwrap().unwrap();
            if let Some(other) = other {
                other.join().unwrap().unwrap();
            }
        });
        assert_eq!(memory.word(0, 2).load(Acquire), u64::from(after));
    }
    let memory = Region::shared(1).unwrap();
    let at = place(&memory, 1);
    for bits in [5usize << 28, 6 << 24] {
        expect(
            libc::ENOSYS,
            futex(at, libc::FUTEX_WAKE_OP, 1, [1, at, bits]),
        );
    }
    expect(
        libc::EFAULT,
        futex(at, libc::FUTEX_WAKE_OP, 1, [1, 0x1000, 0]),
    );
    expect(
        libc::EINVAL,
        futex(at, libc::FUTEX_WAKE_OP, 1, [1, at + 1, 0]),
    );
}

fn no_memory_is_no_futex() {
    let private = libc::FUTEX_PRIVATE_FLAG;
    for at in [0x1000, 0x2222_0000_0000, 1 << 63, usize::MAX - 3] {
        expect(libc::EFAULT, wait(at, 0, SHORT));
        expect(libc::EFAULT, wait(at, private, SHORT));
        expect(libc::EFAULT, futex(at, libc::FUTEX_WAKE, 1, [0; 3]));
    }
    for at in [1 << 63, usize::MAX - 3] {
        expect(
            libc::EFAULT,
            futex(at, libc::FUTEX_WAKE | private, 1, [0; 3]),
        );
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(SLEEP) {
        sleep_for_ever();
    }
    checks::run(
        "t_futex",
        &checks::named![
            a_word_is_one_futex_at_all_addresses,
            private_words_are_two_futexes,
            who_was_moved_waits_as_before,
            as_many_are_woken_as_are_asked_for,
            locks_of_the_dead_say_so,
            wild_lists_are_no_harm,
            a_change_wakes_by_what_was,
            no_memory_is_no_futex,
        ],
    )
}
