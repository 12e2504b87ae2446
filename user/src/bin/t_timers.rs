//! Sleeps by the clock: never early, at once when the moment has passed, in order, and ended by signals.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use shootdown_user::checks;
use shootdown_user::child::{Child, End};
use shootdown_user::machine;
use shootdown_user::realtime::{self, Moment};
use shootdown_user::signals;

const FAR: Duration = Duration::from_secs(10_000);

/// As the kernel has it; the library's functions know some errors by themselves.
fn clock_nanosleep(
    clock: i32,
    flags: i32,
    time: *const libc::timespec,
    rest: *mut libc::timespec,
) -> i32 {
    // SAFETY: the kernel checks the pointers.
    match unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, rest) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap(),
    }
}

fn timespec(seconds: i64, nanoseconds: i64) -> libc::timespec {
    libc::timespec {
        tv_sec: seconds as _,
        tv_nsec: nanoseconds as _,
    }
}

fn the_past_is_over() {
    let now = Moment::now();
    now.wait().unwrap();
    let (zero, one) = (timespec(0, 0), timespec(1, 0));
    for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
        for time in [&zero, &one] {
            let rest = std::ptr::null_mut();
            assert_eq!(clock_nanosleep(clock, libc::TIMER_ABSTIME, time, rest), 0);
        }
    }
    realtime::sleep_for(Duration::ZERO).unwrap();
}

fn nobody_wakes_early() {
    let lengths_us = [1, 20, 70, 300, 1000, 2500, 9999];
    for index in 0..10 * lengths_us.len() {
        let us = lengths_us[index % lengths_us.len()];
        let length = Duration::from_micros(us + index as u64);
        let until = Moment::now().after(length);
        until.wait().unwrap();
        assert!(Moment::now() >= until, "absolute, {length:?}");
        let until = Moment::now().after(length);
        realtime::sleep_for(length).unwrap();
        assert!(Moment::now() >= until, "relative, {length:?}");
    }
}

fn timeouts_of_waits_are_not_early() {
    let word = AtomicU32::new(0);
    for us in [1, 100, 1_700, 4_000] {
        let length = timespec(0, us * 1000);
        let until = Moment::now().after(Duration::from_micros(us as u64));
        // SAFETY: waits on our own word, with a valid time.
        let result = unsafe { libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAIT, 0, &length) };
        let error = io::Error::last_os_error().raw_os_error();
        assert_eq!((result, error), (-1, Some(libc::ETIMEDOUT)));
        assert!(Moment::now() >= until, "futex, {us} us");
    }
}

fn nonsense_is_refused() {
    let (fine, none) = (timespec(0, 1), std::ptr::null_mut());
    let monotonic = libc::CLOCK_MONOTONIC;
    for bad in [timespec(0, 1_000_000_000), timespec(0, -1), timespec(-1, 0)] {
        assert_eq!(clock_nanosleep(monotonic, 0, &bad, none), libc::EINVAL);
        let refused = clock_nanosleep(monotonic, libc::TIMER_ABSTIME, &bad, none);
        assert_eq!(refused, libc::EINVAL);
    }
    assert_eq!(clock_nanosleep(77, 0, &fine, none), libc::EINVAL);
    let wild = std::ptr::without_provenance(8);
    assert_eq!(clock_nanosleep(monotonic, 0, wild, none), libc::EFAULT);
}

/// Threads of one priority on one CPU run in the order in which their moments came.
fn sleepers_wake_in_order() {
    const SLEEPERS: usize = 24;
    let cpu = *machine::allowed_cpus().unwrap().last().unwrap();
    let is_ordered = |lead: Duration| -> Option<Vec<usize>> {
        let (ready, base) = (Barrier::new(SLEEPERS), Mutex::new(None));
        let (is_late, has_fifo) = (AtomicBool::new(false), AtomicBool::new(true));
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for index in 0..SLEEPERS {
                // They begin in another order.
                let place = index * 7 % SLEEPERS;
                let (ready, base, order, is_late, has_fifo) =
                    (&ready, &base, &order, &is_late, &has_fifo);
                scope.spawn(move || {
                    machine::pin_to(cpu).unwrap();
                    if realtime::become_fifo(10).is_err() {
                        has_fifo.store(false, Relaxed);
                    }
                    ready.wait();
                    let first = || Moment::now().after(lead);
                    let base = *base.lock().unwrap().get_or_insert_with(first);
                    let until = base.after(Duration::from_micros(300) * place as u32);
                    // Who comes late may not sleep yet at its moment, which proves nothing.
                    is_late.fetch_or(Moment::now().after(lead / 2) >= base, Relaxed);
                    until.wait().unwrap();
                    order.lock().unwrap().push(place);
                });
            }
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), SLEEPERS, "somebody did not wake up");
        if !has_fifo.load(Relaxed) {
            println!("t_timers: without SCHED_FIFO no order is promised");
            return Some((0..SLEEPERS).collect());
        }
        (!is_late.load(Relaxed)).then_some(order)
    };
    let leads = [60, 200, 600, 1800].map(Duration::from_millis);
    let order = leads.into_iter().find_map(is_ordered);
    let order = order.expect("the host left no time to fall asleep in");
    assert!(order.is_sorted(), "{order:?}");
}

extern "C" fn note(_: i32) {
    HITS.fetch_add(1, Relaxed);
}
static HITS: AtomicUsize = AtomicUsize::new(0);

/// A handler ends a sleep, also if it was installed to restart calls; a relative one says what was left of it.
fn signals_end_sleeps() {
    let handler = note as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: 1. the handler adds to an atomic.
    unsafe { signals::handle(libc::SIGUSR1, handler, libc::SA_RESTART) }.unwrap();
    for is_absolute in [false, true] {
        let (sleeper, result) = (AtomicI32::new(0), AtomicI32::new(-1));
        let mut rest = timespec(-1, -1);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (flags, time) = match is_absolute {
                    true => (libc::TIMER_ABSTIME, timespec(i64::from(i32::MAX), 0)),
                    false => (0, timespec(FAR.as_secs() as i64, 0)),
                };
                sleeper.store(realtime::thread_id(), Release);
                let ended = clock_nanosleep(libc::CLOCK_MONOTONIC, flags, &time, &mut rest);
                result.store(ended, Release);
            });
            // The first ones may come before it sleeps.
            while result.load(Acquire) == -1 {
                let (process, thread) = (std::process::id(), sleeper.load(Acquire));
                if thread != 0 {
                    // SAFETY: the thread is not joined before it has noted its result.
                    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        assert_eq!(result.load(Relaxed), libc::EINTR);
        let left = (rest.tv_sec, rest.tv_nsec);
        match is_absolute {
            true => assert_eq!(left, (-1, -1), "an absolute sleep has no rest"),
            false => assert!((1..=FAR.as_secs() as i64).contains(&left.0), "{left:?}"),
        }
    }
    assert!(HITS.load(Relaxed) >= 2);
}

/// Many deadlines on every CPU, and a process that ends before most of them.
fn the_dead_have_no_deadlines() {
    let child = Child::start(|| {
        for length in [FAR, Duration::from_millis(3), Duration::from_secs(2)] {
            for _ in 0..8 {
                // A refused thread is one sleeper less.
                let _ignored = thread::Builder::new().spawn(move || realtime::sleep_for(length));
            }
        }
        thread::sleep(Duration::from_millis(5));
        7
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(7));
}

fn main() -> ExitCode {
    checks::run(
        "t_timers",
        &checks::named![
            the_past_is_over,
            nobody_wakes_early,
            timeouts_of_waits_are_not_early,
            nonsense_is_refused,
            sleepers_wake_in_order,
            signals_end_sleeps,
            the_dead_have_no_deadlines,
        ],
    )
}
