//! Timers that send signals: when, how often, to whom, and what becomes of them as processes fork, run programs and end.

use std::io;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, errno};
use shootdown_user::child::{Child, End, sleep_for_ever};
use shootdown_user::timespec::{in_ns, timespec};
use shootdown_user::{machine, realtime, signals};

/// What a program started with these arguments does instead of the tests.
const SLEEP: &str = "sleep";
const LOOK: &str = "look";

/// Longer than any test.
const FAR_S: i64 = 10_000;

const MS: i64 = 1_000_000;

static HITS: AtomicI32 = AtomicI32::new(0);
static TOLD: [AtomicI32; 4] = [const { AtomicI32::new(0) }; 4];

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO valid information.
    let info = unsafe { &*info };
    // SAFETY: for a timer it is there; else some other number is.
    let value = unsafe { info.si_value() }.sival_ptr as usize as i32;
    let values = [signal, info.si_code, value, realtime::thread_id()];
    for (told, value) in TOLD.iter().zip(values) {
        told.store(value, Relaxed);
    }
    HITS.fetch_add(1, SeqCst);
}

fn catch(signal: i32) {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = note;
    HITS.store(0, SeqCst);
    // SAFETY: 1. the handler stores to atomics.
    unsafe { signals::handle(signal, handler as usize, libc::SA_SIGINFO) }.unwrap();
}

fn hits() -> i32 {
    HITS.load(SeqCst)
}

fn until_hits(count: i32) {
    let start = Instant::now();
    while hits() < count {
        thread::sleep(Duration::from_micros(300));
        assert!(start.elapsed() < Duration::from_secs(20), "no signal came");
    }
}

/// First, then again and again; what it was.
fn set_interval(which: i32, first_us: i64, period_us: i64) -> io::Result<(i64, i64)> {
    let time = |us: i64| libc::timeval {
        tv_sec: us / 1_000_000,
        tv_usec: us % 1_000_000,
    };
    let new = libc::itimerval {
        it_interval: time(period_us),
        it_value: time(first_us),
    };
    let mut old = new;
    // SAFETY: both are valid.
    machine::done(unsafe { libc::syscall(libc::SYS_setitimer, which, &new, &mut old) } as i32)?;
    let in_us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    Ok((in_us(old.it_value), in_us(old.it_interval)))
}

fn left_us(which: i32) -> i64 {
    let mut now = [0i64; 4];
    // SAFETY: room for a `struct itimerval`.
    machine::done(unsafe { libc::syscall(libc::SYS_getitimer, which, &mut now) } as i32).unwrap();
    now[2] * 1_000_000 + now[3]
}

fn alarm(seconds: u32) -> u32 {
    // SAFETY: takes a number.
    unsafe { libc::syscall(libc::SYS_alarm, seconds) as u32 }
}

/// The words of a `struct sigevent`.
type Event = [u64; 8];

fn event(kind: i32, signal: i32, value: u64, thread: i32) -> Event {
    let kinds = u64::from(signal as u32) | u64::from(kind as u32) << 32;
    [value, kinds, u64::from(thread as u32), 0, 0, 0, 0, 0]
}

/// The raw numbers, which the C library hides.
fn create(clock: i32, event: Option<&Event>) -> io::Result<i32> {
    let mut id = -1i32;
    let event = event.map_or(ptr::null(), |event| event.as_ptr());
    // SAFETY: null or an event, and a number of our own.
    let status = unsafe { libc::syscall(libc::SYS_timer_create, clock, event, &mut id) };
    machine::done(status as i32).map(|()| id)
}

fn set(id: i32, flags: i32, first_ns: i64, period_ns: i64) -> io::Result<(i64, i64)> {
    let new = [timespec(period_ns), timespec(first_ns)];
    let mut old = new;
    // SAFETY: two times each.
    let status = unsafe {
        libc::syscall(
            libc::SYS_timer_settime,
            id,
            flags,
            new.as_ptr(),
            old.as_mut_ptr(),
        )
    };
    machine::done(status as i32).map(|()| (in_ns(old[1]), in_ns(old[0])))
}

fn left(id: i32) -> io::Result<i64> {
    let mut now = [timespec(0); 2];
    // SAFETY: room for two times.
    let status = unsafe { libc::syscall(libc::SYS_timer_gettime, id, now.as_mut_ptr()) };
    machine::done(status as i32).map(|()| in_ns(now[1]))
}

fn overrun(id: i32) -> i32 {
    // SAFETY: takes a number.
    unsafe { libc::syscall(libc::SYS_timer_getoverrun, id) as i32 }
}

fn delete(id: i32) -> io::Result<()> {
    // SAFETY: takes a number.
    machine::done(unsafe { libc::syscall(libc::SYS_timer_delete, id) } as i32)
}

fn now_ns(clock: i32) -> i64 {
    let mut now = timespec(0);
    // SAFETY: room for a time.
    machine::done(unsafe { libc::clock_gettime(clock, &mut now) }).unwrap();
    in_ns(now)
}

fn an_alarm_comes_once() {
    catch(libc::SIGALRM);
    assert_eq!((alarm(0), alarm(100)), (0, 0));
    assert_eq!((alarm(50), alarm(0)), (100, 50));
    let start = Instant::now();
    assert_eq!(set_interval(libc::ITIMER_REAL, 20_000, 0).unwrap(), (0, 0));
    assert!((1..=20_000).contains(&left_us(libc::ITIMER_REAL)));
    until_hits(1);
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(TOLD[0].load(Relaxed), libc::SIGALRM);
    assert_eq!(TOLD[1].load(Relaxed), libc::SI_KERNEL);
    assert_eq!(left_us(libc::ITIMER_REAL), 0);
    thread::sleep(Duration::from_millis(30));
    assert_eq!(hits(), 1);
}

fn intervals_come_again() {
    catch(libc::SIGALRM);
    let start = Instant::now();
    set_interval(libc::ITIMER_REAL, 1, 2_000).unwrap();
    until_hits(6);
    assert!(start.elapsed() >= Duration::from_millis(10));
    let (_, period) = set_interval(libc::ITIMER_REAL, 0, 0).unwrap();
    assert_eq!(period, 2_000);
    let stopped = hits();
    thread::sleep(Duration::from_millis(20));
    assert!(hits() <= stopped + 1, "at most the last one was on its way");
}

fn nobody_waits_is_the_end() {
    let child = Child::start(|| {
        // SAFETY: 1. the default.
        unsafe { signals::handle(libc::SIGALRM, libc::SIG_DFL, 0) }.unwrap();
        set_interval(libc::ITIMER_REAL, 5_000, 0).unwrap();
        sleep_for_ever()
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Killed(libc::SIGALRM));
}

fn children_have_none() {
    set_interval(libc::ITIMER_REAL, FAR_S * 1_000_000, 0).unwrap();
    let id = create(libc::CLOCK_MONOTONIC, None).unwrap();
    let child = Child::start(|| {
        let none = left(id).is_err() && errno() == libc::EINVAL;
        let far = left_us(libc::ITIMER_REAL) == 0;
        i32::from(!none) + 2 * i32::from(!far)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
    assert!(left_us(libc::ITIMER_REAL) > 0);
    set_interval(libc::ITIMER_REAL, 0, 0).unwrap();
    delete(id).unwrap();
}

/// Runs this program anew, with an argument.
fn run(argument: &str) -> i32 {
    let own = std::env::current_exe().unwrap();
    let words = [own.to_str().unwrap(), argument];
    let words = words.map(|word| std::ffi::CString::new(word).unwrap());
    let pointers = [words[0].as_ptr(), words[1].as_ptr(), ptr::null()];
    // SAFETY: null-terminated strings in a null-terminated array.
    unsafe { libc::execv(pointers[0], pointers.as_ptr()) };
    200
}

fn programs_keep_the_interval_timer() {
    let child = Child::start(|| {
        set_interval(libc::ITIMER_REAL, 60_000, 0).unwrap();
        run(SLEEP)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Killed(libc::SIGALRM));
    let child = Child::start(|| {
        let id = create(libc::CLOCK_MONOTONIC, None).unwrap();
        set(id, 0, 20 * MS, MS).unwrap();
        run(LOOK)
    });
    assert_eq!(child.unwrap().wait().unwrap(), End::Exited(0));
}

/// What the program does that was started by the test above: time goes by, and no timer is there.
fn look() -> ExitCode {
    thread::sleep(Duration::from_millis(40));
    let is_gone = (0..4).all(|id| left(id).is_err() && errno() == libc::EINVAL);
    ExitCode::from(u8::from(!is_gone))
}

fn run_time_is_counted() {
    for (which, signal) in [
        (libc::ITIMER_VIRTUAL, libc::SIGVTALRM),
        (libc::ITIMER_PROF, libc::SIGPROF),
    ] {
        catch(signal);
        let start = now_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        set_interval(which, 60_000, 0).unwrap();
        thread::sleep(Duration::from_millis(80));
        assert_eq!(hits(), 0, "asleep it does not run");
        assert!(left_us(which) > 0);
        let patience = Instant::now();
        while hits() == 0 {
            assert!(patience.elapsed() < Duration::from_secs(20), "{signal}");
        }
        let ran = now_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - start;
        assert!(ran >= 50 * MS, "{signal} after {ran} ns");
        assert_eq!(set_interval(which, 0, 0).unwrap(), (0, 0));
    }
}

fn timers_say_who_they_are() {
    let signal = libc::SIGRTMIN() + 3;
    catch(signal);
    for clock in [
        libc::CLOCK_MONOTONIC,
        libc::CLOCK_REALTIME,
        libc::CLOCK_BOOTTIME,
    ] {
        let asked = event(libc::SIGEV_SIGNAL, signal, 4711, 0);
        let id = create(clock, Some(&asked)).unwrap();
        for is_absolute in [false, true] {
            HITS.store(0, SeqCst);
            let start = now_ns(clock);
            let flags = i32::from(is_absolute) * libc::TIMER_ABSTIME;
            let first = if is_absolute { start } else { 0 } + 15 * MS;
            assert_eq!(set(id, flags, first, 0).unwrap(), (0, 0));
            assert!((1..=15 * MS).contains(&left(id).unwrap()));
            until_hits(1);
            assert!(now_ns(clock) - start >= 15 * MS);
            let told = [0, 1, 2].map(|at| TOLD[at].load(Relaxed));
            assert_eq!(told, [signal, libc::SI_TIMER, 4711]);
            assert_eq!(left(id).unwrap(), 0);
        }
        // Long past: at once.
        HITS.store(0, SeqCst);
        set(id, libc::TIMER_ABSTIME, 1, 0).unwrap();
        until_hits(1);
        // What it was set to is told, and 0 stops it.
        set(id, 0, FAR_S * 1_000 * MS, 7 * MS).unwrap();
        let (left, period) = set(id, 0, 0, 0).unwrap();
        assert!(left > (FAR_S - 100) * 1_000 * MS && period == 7 * MS);
        delete(id).unwrap();
    }
}

fn nobody_is_told_but_asked() {
    let asked = event(libc::SIGEV_NONE, 0, 0, 0);
    let id = create(libc::CLOCK_MONOTONIC, Some(&asked)).unwrap();
    set(id, 0, 5 * MS, 0).unwrap();
    thread::sleep(Duration::from_millis(10));
    assert_eq!(left(id).unwrap(), 0);
    delete(id).unwrap();
}

fn one_thread_is_told() {
    let signal = libc::SIGRTMIN() + 4;
    catch(signal);
    let (ready, done) = (AtomicI32::new(0), AtomicI32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            ready.store(realtime::thread_id(), SeqCst);
            while done.load(SeqCst) == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        });
        while ready.load(SeqCst) == 0 {
            thread::yield_now();
        }
        let thread = ready.load(SeqCst);
        let asked = event(libc::SIGEV_THREAD_ID, signal, 0, thread);
        let id = create(libc::CLOCK_MONOTONIC, Some(&asked)).unwrap();
        set(id, 0, 1, 2 * MS).unwrap();
        until_hits(3);
        assert_eq!(TOLD[3].load(Relaxed), thread);
        delete(id).unwrap();
        done.store(1, SeqCst);
    });
    // Of no thread of this process.
    let asked = event(libc::SIGEV_THREAD_ID, signal, 0, 1 << 21);
    checks::expect(libc::EINVAL, create(libc::CLOCK_MONOTONIC, Some(&asked)));
}

fn missed_turns_are_counted() {
    let signal = libc::SIGRTMIN() + 5;
    // Threads of the test before may be on their way out still, and do not block it.
    catch(signal);
    // SAFETY: a zeroed set is empty.
    let mut set_of_one: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a valid set and signal.
    unsafe { libc::sigaddset(&mut set_of_one, signal) };
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set_of_one, ptr::null_mut()) };
    let asked = event(libc::SIGEV_SIGNAL, signal, 1, 0);
    let id = create(libc::CLOCK_MONOTONIC, Some(&asked)).unwrap();
    set(id, 0, MS, MS).unwrap();
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(40));
        let mut info = [0u32; 32];
        // SAFETY: a valid set, and room for the information.
        let taken =
            unsafe { libc::sigwaitinfo(&set_of_one, info.as_mut_ptr().cast::<libc::siginfo_t>()) };
        assert_eq!(taken, signal);
        assert!(info[5] >= 30, "overrun {}", info[5]);
        assert!(overrun(id) >= 30, "{}", overrun(id));
    }
    delete(id).unwrap();
    // SAFETY: one may be pending still.
    unsafe { signals::handle(signal, libc::SIG_IGN, 0) }.unwrap();
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set_of_one, ptr::null_mut()) };
}

fn run_time_of_the_process_is_a_clock() {
    let signal = libc::SIGRTMIN() + 6;
    catch(signal);
    let asked = event(libc::SIGEV_SIGNAL, signal, 0, 0);
    let id = create(libc::CLOCK_PROCESS_CPUTIME_ID, Some(&asked)).unwrap();
    set(id, 0, 40 * MS, 0).unwrap();
    let start = Instant::now();
    while hits() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert!(start.elapsed() >= Duration::from_millis(30));
    delete(id).unwrap();
}

fn nonsense_is_refused() {
    let invalid = libc::EINVAL;
    checks::expect(invalid, create(77, None));
    let bad = [
        event(libc::SIGEV_SIGNAL, 0, 0, 0),
        event(libc::SIGEV_SIGNAL, 65, 0, 0),
        event(77, libc::SIGUSR1, 0, 0),
    ];
    for event in &bad {
        checks::expect(invalid, create(libc::CLOCK_MONOTONIC, Some(event)));
    }
    let id = create(libc::CLOCK_MONOTONIC, None).unwrap();
    checks::expect(invalid, set(id, 0, -1, 0));
    checks::expect(invalid, set(id + 1000, 0, 1, 0));
    checks::expect(invalid, left(-1));
    let new = [timespec(0), timespec(0)];
    let wild = ptr::without_provenance_mut::<libc::timespec>(8);
    // SAFETY: the kernel refuses the pointer.
    let status = unsafe { libc::syscall(libc::SYS_timer_settime, id, 0, wild, wild) };
    assert_eq!((status, errno()), (-1, libc::EFAULT));
    // SAFETY: as above.
    let status = unsafe { libc::syscall(libc::SYS_timer_settime, id, 0, 0, 0) };
    assert_eq!((status, errno()), (-1, libc::EINVAL));
    // SAFETY: as above: done, but not told.
    let status = unsafe { libc::syscall(libc::SYS_timer_settime, id, 0, new.as_ptr(), wild) };
    assert_eq!((status, errno()), (-1, libc::EFAULT));
    delete(id).unwrap();
    checks::expect(invalid, delete(id));
    for _ in 0..500 {
        // SAFETY: as above; nothing is left of the timer.
        let status = unsafe { libc::syscall(libc::SYS_timer_create, 1, 0, 8) };
        assert_eq!((status, errno()), (-1, libc::EFAULT));
    }
    checks::expect(invalid, set_interval(3, 1, 0));
    checks::expect(invalid, set_interval(libc::ITIMER_REAL, -1, 0));
}

/// So many that they must end somewhere; all run, and as often as they like.
fn a_swarm_is_contained() {
    const MANY: usize = 100;
    let signal = libc::SIGRTMIN() + 7;
    catch(signal);
    let asked = event(libc::SIGEV_SIGNAL, signal, 0, 0);
    let mut ids = Vec::new();
    for _ in 0..MANY {
        let id = create(libc::CLOCK_MONOTONIC, Some(&asked)).unwrap();
        set(id, 0, 1, 1).unwrap();
        ids.push(id);
    }
    while ids.len() < 10 * MANY
        && let Ok(id) = create(libc::CLOCK_MONOTONIC, Some(&asked))
    {
        ids.push(id);
    }
    if machine::is_reference_kernel() {
        assert_eq!(errno(), libc::EAGAIN);
    }
    until_hits(100);
    for id in ids {
        delete(id).unwrap();
    }
    let id = create(libc::CLOCK_MONOTONIC, Some(&asked)).unwrap();
    delete(id).unwrap();
}

fn the_dead_leave_nothing() {
    checks::must_not_lose_again(5, 64, || {
        for _ in 0..8 {
            let child = Child::start(|| {
                // SAFETY: 1. nothing runs.
                unsafe { signals::handle(libc::SIGALRM, libc::SIG_IGN, 0) }.unwrap();
                for _ in 0..100 {
                    let id = create(libc::CLOCK_MONOTONIC, None).unwrap();
                    set(id, 0, 1, 100_000).unwrap();
                }
                set_interval(libc::ITIMER_PROF, FAR_S * 1_000_000, 0).unwrap();
                3
            });
            assert_eq!(child.unwrap().wait().unwrap(), End::Exited(3));
        }
    });
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(SLEEP) => sleep_for_ever(),
        Some(LOOK) => return look(),
        _ => {}
    }
    checks::run(
        "t_alarms",
        &checks::named![
            nobody_waits_is_the_end,
            programs_keep_the_interval_timer,
            an_alarm_comes_once,
            intervals_come_again,
            children_have_none,
            run_time_is_counted,
            timers_say_who_they_are,
            nobody_is_told_but_asked,
            one_thread_is_told,
            missed_turns_are_counted,
            run_time_of_the_process_is_a_clock,
            nonsense_is_refused,
            a_swarm_is_contained,
            the_dead_leave_nothing,
        ],
    )
}
