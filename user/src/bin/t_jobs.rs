//! Processes that stop and go on, and what their parents learn of them: `wait4`, `waitid`, SIGCHLD, usage.

use std::io;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use shootdown_user::checks::{self, errno};
use shootdown_user::child::{Child, End, sleep_for_ever};
use shootdown_user::region::Region;
use shootdown_user::{machine, signals};

const MOMENT: Duration = Duration::from_millis(10);

/// Whose status came, and the status as it is; `None` if nobody's.
fn wait(pid: i32, options: i32) -> io::Result<Option<(i32, i32)>> {
    let mut status = 0;
    // SAFETY: an integer of our own.
    match unsafe { libc::waitpid(pid, &mut status, options) } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some((pid, status))),
        _ => Err(io::Error::last_os_error()),
    }
}

const fn stopped(signal: i32) -> i32 {
    signal << 8 | 0x7f
}

const CONTINUED: i32 = 0xffff;

#[track_caller]
fn expect_stop(child: &Child, signal: i32) {
    let told = wait(child.pid(), libc::WUNTRACED).unwrap();
    assert_eq!(told, Some((child.pid(), stopped(signal))));
}

#[track_caller]
fn expect_continue(child: &Child) {
    let told = wait(child.pid(), libc::WCONTINUED).unwrap();
    assert_eq!(told, Some((child.pid(), CONTINUED)));
}

/// Number, error, code, padding, child, user, status.
type Info = [i32; 32];

fn wait_id(kind: u32, id: i32, options: i32) -> io::Result<Info> {
    let mut info = [-1; 32];
    // SAFETY: room for a `siginfo_t`.
    let status = unsafe { libc::syscall(libc::SYS_waitid, kind, id, &mut info, options, 0) };
    machine::done(status as i32).map(|()| info)
}

#[track_caller]
fn expect_info(info: Info, child: &Child, code: i32, status: i32) {
    let told = [info[0], info[2], info[4], info[6]];
    assert_eq!(told, [libc::SIGCHLD, code, child.pid(), status]);
}

/// A counter that goes on as long as somebody runs.
fn is_counting(memory: &Region, word: usize) -> bool {
    let count = || memory.word(0, word).load(SeqCst);
    let before = count();
    thread::sleep(MOMENT);
    count() != before
}

fn until_counting(memory: &Region, word: usize) {
    let start = Instant::now();
    while !is_counting(memory, word) {
        assert!(start.elapsed() < Duration::from_secs(20), "it does not run");
    }
}

fn count(memory: &Region, word: usize) -> ! {
    loop {
        memory.word(0, word).fetch_add(1, SeqCst);
    }
}

fn all_threads_stop_and_go_on() {
    const THREADS: usize = 3;
    let memory = Region::shared(1).unwrap();
    let child = Child::start(|| {
        thread::scope(|scope| {
            (1..THREADS).for_each(|word| {
                let memory = &memory;
                scope.spawn(move || count(memory, word));
            });
            count(&memory, 0)
        })
    })
    .unwrap();
    (0..THREADS).for_each(|word| until_counting(&memory, word));
    for _ in 0..10 {
        assert_eq!(
            wait(child.pid(), libc::WUNTRACED | libc::WNOHANG).unwrap(),
            None
        );
        child.signal(libc::SIGSTOP).unwrap();
        expect_stop(&child, libc::SIGSTOP);
        assert!((0..THREADS).all(|word| !is_counting(&memory, word)));
        // It is told once; a second stop changes nothing.
        child.signal(libc::SIGSTOP).unwrap();
        let again = wait(child.pid(), libc::WUNTRACED | libc::WNOHANG);
        assert_eq!(again.unwrap(), None);
        child.signal(libc::SIGCONT).unwrap();
        expect_continue(&child);
        (0..THREADS).for_each(|word| until_counting(&memory, word));
    }
    child.signal(libc::SIGSTOP).unwrap();
    expect_stop(&child, libc::SIGSTOP);
    // Other signals wait, but the last one.
    child.signal(libc::SIGTERM).unwrap();
    thread::sleep(MOMENT);
    assert_eq!(wait(child.pid(), libc::WNOHANG).unwrap(), None);
    assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
}

fn other_signals_wait() {
    let child = Child::start(|| sleep_for_ever()).unwrap();
    child.signal(libc::SIGSTOP).unwrap();
    expect_stop(&child, libc::SIGSTOP);
    child.signal(libc::SIGTERM).unwrap();
    child.signal(libc::SIGCONT).unwrap();
    assert_eq!(child.wait().unwrap(), End::Killed(libc::SIGTERM));
}

/// It sleeps as long as it wanted to, and nobody tells it that something was.
fn sleepers_do_not_notice() {
    let child = Child::start(|| {
        let start = Instant::now();
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 60_000_000,
        };
        // SAFETY: a valid time.
        let status = unsafe { libc::nanosleep(&time, ptr::null_mut()) };
        i32::from(status != 0 || start.elapsed() < Duration::from_millis(60))
    })
    .unwrap();
    thread::sleep(MOMENT);
    child.signal(libc::SIGSTOP).unwrap();
    expect_stop(&child, libc::SIGSTOP);
    child.signal(libc::SIGCONT).unwrap();
    expect_continue(&child);
    assert_eq!(child.wait().unwrap(), End::Exited(0));
}

static CODES: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO valid information.
    CODES[0].store(unsafe { (*info).si_code }, Relaxed);
    CODES[1].fetch_add(1, Relaxed);
    assert_ne!(signal, 0);
}

fn catch(signal: i32, flags: i32) {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = note;
    CODES.iter().for_each(|code| code.store(0, Relaxed));
    // SAFETY: 1. the handler stores to atomics.
    unsafe { signals::handle(signal, handler as usize, flags | libc::SA_SIGINFO) }.unwrap();
}

fn default(signal: i32) {
    // SAFETY: 1. no function.
    unsafe { signals::handle(signal, libc::SIG_DFL, 0) }.unwrap();
}

fn parents_are_told_by_signal() {
    let child = Child::start(|| sleep_for_ever()).unwrap();
    let step = |signal, options| {
        child.signal(signal).unwrap();
        wait(child.pid(), options).unwrap();
        thread::sleep(MOMENT);
        CODES.each_ref().map(|code| code.load(Relaxed))
    };
    catch(libc::SIGCHLD, libc::SA_RESTART);
    assert_eq!(step(libc::SIGSTOP, libc::WUNTRACED), [libc::CLD_STOPPED, 1]);
    assert_eq!(
        step(libc::SIGCONT, libc::WCONTINUED),
        [libc::CLD_CONTINUED, 2]
    );
    catch(libc::SIGCHLD, libc::SA_RESTART | libc::SA_NOCLDSTOP);
    assert_eq!(step(libc::SIGSTOP, libc::WUNTRACED), [0, 0]);
    assert_eq!(step(libc::SIGCONT, libc::WCONTINUED), [0, 0]);
    assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    default(libc::SIGCHLD);
}

/// SIGTSTP stops who does nothing about it, and only where somebody looks after its group.
fn the_terminals_signals_stop() {
    let parent = Child::start(|| {
        let child = Child::start(|| sleep_for_ever()).unwrap();
        // SAFETY: takes numbers.
        machine::done(unsafe { libc::setpgid(child.pid(), 0) }).unwrap();
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            child.signal(signal).unwrap();
            expect_stop(&child, signal);
            child.signal(libc::SIGCONT).unwrap();
            expect_continue(&child);
        }
        assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
        let alone = Child::start(|| {
            // SAFETY: takes nothing.
            let session = unsafe { libc::setsid() };
            i32::from(session < 0 || signals::send_self(libc::SIGTSTP).is_err())
        });
        assert_eq!(alone.unwrap().wait().unwrap(), End::Exited(0));
        let handled = Child::start(|| {
            catch(libc::SIGTSTP, 0);
            signals::send_self(libc::SIGTSTP).unwrap();
            CODES[1].load(Relaxed)
        });
        assert_eq!(handled.unwrap().wait().unwrap(), End::Exited(1));
        0
    });
    assert_eq!(parent.unwrap().wait().unwrap(), End::Exited(0));
}

fn stopping_and_going_on_undo_each_other() {
    // SAFETY: a zeroed set is empty.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in [libc::SIGTSTP, libc::SIGCONT] {
        // SAFETY: a valid set and signal.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    let is_pending = |signal| {
        // SAFETY: as above.
        let mut pending: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: valid sets and signals.
        unsafe { libc::sigpending(&mut pending) };
        // SAFETY: as above.
        unsafe { libc::sigismember(&pending, signal) == 1 }
    };
    for (first, second) in [
        (libc::SIGTSTP, libc::SIGCONT),
        (libc::SIGCONT, libc::SIGTSTP),
    ] {
        for signal in [first, second] {
            signals::send_self(signal).unwrap();
            assert!(is_pending(signal));
        }
        assert!(!is_pending(first));
    }
    signals::send_self(libc::SIGCONT).unwrap();
    // SAFETY: a valid set.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
}

fn waits_by_kind() {
    let (all, one, group) = (libc::P_ALL, libc::P_PID, libc::P_PGID);
    let invalid = libc::EINVAL;
    checks::expect(libc::ECHILD, wait_id(all, 0, libc::WEXITED));
    checks::expect(invalid, wait_id(all, 0, 0));
    checks::expect(invalid, wait_id(all, 0, libc::WNOHANG));
    checks::expect(invalid, wait_id(one, 0, libc::WEXITED));
    checks::expect(invalid, wait_id(77, 1, libc::WEXITED));
    checks::expect(invalid, wait_id(all, 0, libc::WEXITED | 0x10));
    let child = Child::start(|| sleep_for_ever()).unwrap();
    let pid = child.pid();
    // SAFETY: takes numbers.
    machine::done(unsafe { libc::setpgid(pid, 0) }).unwrap();
    let nothing = wait_id(all, 0, libc::WEXITED | libc::WNOHANG).unwrap();
    assert_eq!((nothing[0], nothing[4]), (0, 0));
    checks::expect(libc::ECHILD, wait_id(group, 0, libc::WEXITED));
    child.signal(libc::SIGSTOP).unwrap();
    for options in [libc::WNOWAIT, libc::WNOWAIT, 0] {
        let info = wait_id(group, pid, libc::WSTOPPED | options).unwrap();
        expect_info(info, &child, libc::CLD_STOPPED, libc::SIGSTOP);
    }
    child.signal(libc::SIGCONT).unwrap();
    let info = wait_id(all, 0, libc::WCONTINUED | libc::WEXITED).unwrap();
    expect_info(info, &child, libc::CLD_CONTINUED, libc::SIGCONT);
    child.signal(libc::SIGKILL).unwrap();
    for options in [libc::WNOWAIT, 0] {
        let info = wait_id(one, pid, libc::WEXITED | options).unwrap();
        expect_info(info, &child, libc::CLD_KILLED, libc::SIGKILL);
    }
    checks::expect(libc::ECHILD, wait_id(one, pid, libc::WEXITED));
    let child = Child::start(|| 9).unwrap();
    let info = wait_id(one, child.pid(), libc::WEXITED).unwrap();
    expect_info(info, &child, libc::CLD_EXITED, 9);
}

fn usage(who: i32) -> libc::rusage {
    // SAFETY: made of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    machine::done(unsafe { libc::getrusage(who, &mut used) }).unwrap();
    used
}

fn run_us(used: &libc::rusage) -> i64 {
    let in_us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    in_us(used.ru_utime) + in_us(used.ru_stime)
}

fn usage_is_handed_up() {
    const PAGES: usize = 64;
    let before = usage(libc::RUSAGE_CHILDREN);
    let child = Child::start(|| {
        let memory = Region::new(PAGES).unwrap();
        let faults = usage(libc::RUSAGE_SELF).ru_minflt;
        (0..PAGES).for_each(|page| memory.word(page, 0).store(1, Relaxed));
        let faults = usage(libc::RUSAGE_SELF).ru_minflt - faults;
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(80) {}
        // A page may be larger on Linux.
        i32::from(faults < 1) + 2 * i32::from(run_us(&usage(libc::RUSAGE_SELF)) < 20_000)
    });
    let pid = child.unwrap().pid();
    let (mut status, mut used) = (0, before);
    // SAFETY: two values of our own.
    let ended = unsafe { libc::wait4(pid, &mut status, 0, &mut used) };
    assert_eq!((ended, status), (pid, 0));
    assert!(run_us(&used) >= 20_000 && used.ru_minflt > 0);
    let after = usage(libc::RUSAGE_CHILDREN);
    assert!(run_us(&after) - run_us(&before) >= 20_000);
    assert!(after.ru_minflt - before.ru_minflt >= used.ru_minflt);
    // SAFETY: made of integers.
    let mut times: libc::tms = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    assert!(unsafe { libc::times(&mut times) } >= 0 || errno() == 0);
    assert!(times.tms_cutime + times.tms_cstime >= 2);
}

/// What others send reaches the first process only where it handles it.
fn the_first_process_is_sheltered() {
    if std::process::id() != 1 {
        return;
    }
    let child = Child::start(|| {
        let sent = [libc::SIGHUP, libc::SIGTERM, libc::SIGKILL, libc::SIGSTOP].map(|signal| {
            // SAFETY: the process must survive it.
            unsafe { libc::kill(1, signal) }
        });
        i32::from(sent != [0; 4])
    });
    let end = child.expect("a child").wait();
    assert_eq!(end.expect("its end"), End::Exited(0));
}

fn main() -> ExitCode {
    checks::run(
        "t_jobs",
        &checks::named![
            waits_by_kind,
            other_signals_wait,
            all_threads_stop_and_go_on,
            sleepers_do_not_notice,
            parents_are_told_by_signal,
            the_terminals_signals_stop,
            stopping_and_going_on_undo_each_other,
            usage_is_handed_up,
            the_first_process_is_sheltered,
        ],
    )
}
