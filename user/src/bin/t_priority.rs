//! Fixed priorities: who runs, who is made to wait, and what the calls answer. Everything happens on one CPU.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use shootdown_user::checks;
use shootdown_user::child::{Child, End};
use shootdown_user::{machine, realtime};

/// Turns of a loop that takes milliseconds, whatever runs it.
const LONG_LOOP: u64 = 3_000_000;
const RESET_ON_FORK: i32 = 0x4000_0000;

/// The woken thread is more urgent than the writer: it has read before the write returns.
fn a_woken_thread_runs_before_its_waker_goes_on() {
    const ROUNDS: u64 = 200;
    static READ: AtomicU64 = AtomicU64::new(0);
    let (mut from, mut to) = io::pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            realtime::become_fifo(10).unwrap();
            let mut byte = [0];
            while from.read(&mut byte).unwrap() == 1 {
                READ.fetch_add(1, Relaxed);
            }
        });
        // It has the CPU until it sleeps in its first read.
        thread::sleep(Duration::from_millis(5));
        for round in 1..=ROUNDS {
            to.write_all(&[1]).unwrap();
            assert_eq!(READ.load(Relaxed), round);
        }
        drop(to);
    });
}

/// As long as a more urgent thread runs, no other one does.
fn a_loop_keeps_the_less_urgent_waiting() {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !DONE.load(Relaxed) {
                COUNT.fetch_add(1, Relaxed);
            }
        });
        while COUNT.load(Relaxed) == 0 {
            thread::yield_now();
        }
        realtime::become_fifo(1).unwrap();
        let before = COUNT.load(Relaxed);
        spin();
        let after = COUNT.load(Relaxed);
        realtime::become_ordinary().unwrap();
        DONE.store(true, Relaxed);
        assert_eq!(before, after, "an ordinary thread ran beside SCHED_FIFO");
    });
}

/// Of equally urgent threads each runs to its end, and a yield lets the next one in.
fn equals_take_turns_only_if_they_want_to() {
    const THREADS: usize = 4;
    for yields in [false, true] {
        let log = Mutex::new(Vec::new());
        thread::scope(|scope| {
            realtime::become_fifo(60).unwrap();
            for index in 0..THREADS {
                let log = &log;
                scope.spawn(move || {
                    realtime::become_fifo(10).unwrap();
                    for _ in 0..2 {
                        log.lock().unwrap().push(index);
                        spin();
                        if yields {
                            thread::yield_now();
                        }
                    }
                });
            }
            // All are ready before this thread lets go of the CPU.
        });
        realtime::become_ordinary().unwrap();
        let log = log.into_inner().unwrap();
        let pairs = log.chunks(2).filter(|pair| pair[0] == pair[1]).count();
        assert_eq!(log.len(), 2 * THREADS);
        let wanted = if yields { 0 } else { THREADS };
        assert_eq!(pairs, wanted, "yields: {yields}, {log:?}");
    }
}

/// Threads and processes start as what made them, unless that asked for something else.
fn children_inherit() {
    for (flag, expected) in [(0, libc::SCHED_FIFO), (RESET_ON_FORK, libc::SCHED_OTHER)] {
        realtime::set_scheduler(realtime::SELF, libc::SCHED_FIFO | flag, 7).unwrap();
        let policy = realtime::scheduler(realtime::SELF).unwrap();
        assert_eq!(policy, libc::SCHED_FIFO | flag);
        assert_eq!(realtime::priority(realtime::SELF).unwrap(), 7);
        let own = thread::spawn(|| realtime::scheduler(realtime::SELF).unwrap());
        assert_eq!(own.join().unwrap(), expected);
        let child = Child::start(|| realtime::scheduler(realtime::SELF).unwrap_or(-1)).unwrap();
        assert_eq!(child.wait().unwrap(), End::Exited(expected));
        realtime::become_ordinary().unwrap();
    }
}

fn spin() {
    for turn in 0..LONG_LOOP {
        std::hint::black_box(turn);
    }
}

fn main() -> ExitCode {
    machine::prepare();
    // Linux leaves ordinary threads a share, unless it is told not to.
    let _no_such_file = std::fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1");
    machine::pin_to(*machine::allowed_cpus().unwrap().last().unwrap()).unwrap();
    checks::run(
        "t_priority",
        &checks::named![
            children_inherit,
            a_woken_thread_runs_before_its_waker_goes_on,
            a_loop_keeps_the_less_urgent_waiting,
            equals_take_turns_only_if_they_want_to,
        ],
    )
}
