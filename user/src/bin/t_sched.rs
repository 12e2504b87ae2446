//! `SCHED_FIFO`: who runs before whom, shown by orders and states, never by times; `t_preempt` looks inside system calls.
//!
//! All threads of a test share one CPU. A thread of priority 1 goes on only when all with more sleep or have ended:
//! so a director that lowers itself knows afterwards how far the others are.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use shootdown_user::checks::{self, error_of};
use shootdown_user::child::{Child, End};
use shootdown_user::machine;
use shootdown_user::realtime::{self, SELF};
use shootdown_user::region::Region;

/// Priorities: of the director as it prepares, of the threads that it directs, and of the director as it lets them run.
const HIGH: i32 = 50;
const MIDDLE: i32 = 10;
const LOW: i32 = 1;
/// Steps of a thread that others must not interrupt.
const STEPS: u64 = 100_000;
/// Processes that are killed while their threads wait for each other.
const KILLED: u64 = 10;

/// A system call that gets what no library function would pass on.
fn raw(number: libc::c_long, arguments: [usize; 3]) -> io::Result<i32> {
    let [first, second, third] = arguments;
    // SAFETY: the kernel checks what it is given.
    match unsafe { libc::syscall(number, first, second, third) } {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result as i32),
    }
}

/// Runs `work` as the director, on one CPU with all threads that it starts; the caller is as before then.
fn direct<T>(work: impl FnOnce() -> T + Send) -> T
where
    T: Send,
{
    let cpu = *machine::allowed_cpus().unwrap().last().unwrap();
    thread::scope(|scope| {
        let director = scope.spawn(|| {
            machine::pin_to(cpu).unwrap();
            realtime::become_fifo(HIGH).unwrap();
            work()
        });
        director.join().unwrap()
    })
}

/// Lets all others run until they sleep or end.
fn let_them_run() {
    realtime::become_fifo(LOW).unwrap();
    realtime::become_fifo(HIGH).unwrap();
}

/// Sleeps until the flag is up.
fn await_flag(flag: &AtomicBool) {
    while !flag.load(Acquire) {
        thread::park();
    }
}

fn nonsense_is_refused() {
    let invalid = Some(libc::EINVAL);
    for (policy, priority) in [
        (libc::SCHED_FIFO, 0),
        (libc::SCHED_FIFO, 100),
        (libc::SCHED_FIFO, -1),
        (libc::SCHED_RR, 0),
        (libc::SCHED_OTHER, 1),
        (77, 0),
        (-1, 0),
    ] {
        let refused = error_of(realtime::set_scheduler(SELF, policy, priority));
        assert_eq!(refused, invalid, "{policy}, {priority}");
    }
    let nobody = 1 << 20;
    let set = realtime::set_scheduler(nobody, libc::SCHED_FIFO, 1);
    assert_eq!(error_of(set), Some(libc::ESRCH));
    assert_eq!(error_of(realtime::scheduler(nobody)), Some(libc::ESRCH));
    assert_eq!(error_of(realtime::priority(nobody)), Some(libc::ESRCH));
    let refused = error_of(realtime::set_scheduler(-1, libc::SCHED_FIFO, 1));
    assert_eq!(refused, invalid);
    assert_eq!(error_of(realtime::scheduler(-1)), invalid);
    let fifo = libc::SCHED_FIFO as usize;
    for (pointer, code) in [(0, libc::EINVAL), (8, libc::EFAULT)] {
        let set = raw(libc::SYS_sched_setscheduler, [0, fifo, pointer]);
        assert_eq!(error_of(set), Some(code));
        let get = raw(libc::SYS_sched_getparam, [0, pointer, 0]);
        assert_eq!(error_of(get), Some(code));
    }
    assert_eq!(realtime::scheduler(SELF).unwrap(), libc::SCHED_OTHER);
}

fn limits_are_told() {
    let (least, most) = (
        libc::SYS_sched_get_priority_min,
        libc::SYS_sched_get_priority_max,
    );
    let limits = |policy: i32| [least, most].map(|call| raw(call, [policy as usize, 0, 0]));
    for policy in [libc::SCHED_FIFO, libc::SCHED_RR] {
        assert_eq!(limits(policy).map(Result::unwrap), [1, 99]);
    }
    assert_eq!(limits(libc::SCHED_OTHER).map(Result::unwrap), [0, 0]);
    assert_eq!(limits(77).map(error_of), [Some(libc::EINVAL); 2]);
}

/// What is set is told, of other threads too, and is what new threads and children begin with.
fn priorities_are_kept_and_inherited() {
    let state = |thread| {
        let policy = realtime::scheduler(thread).unwrap();
        (policy, realtime::priority(thread).unwrap())
    };
    direct(|| {
        let me = realtime::thread_id();
        for priority in [1, 99, 42] {
            realtime::set_scheduler(me, libc::SCHED_FIFO, priority).unwrap();
            assert_eq!(state(SELF), (libc::SCHED_FIFO, priority));
            let seen = thread::scope(|scope| scope.spawn(|| [state(SELF), state(me)]).join());
            assert_eq!(seen.unwrap(), [(libc::SCHED_FIFO, priority); 2]);
        }
        let child = Child::start(|| realtime::priority(SELF).unwrap_or(-1));
        assert_eq!(child.unwrap().wait().unwrap(), End::Exited(42));
        realtime::become_ordinary().unwrap();
        assert_eq!(state(SELF), (libc::SCHED_OTHER, 0));
    });
    assert_eq!(state(SELF), (libc::SCHED_OTHER, 0));
}

/// Both are woken, the ordinary thread first: the other one runs all of its steps before it.
fn the_urgent_one_runs_first() {
    let (go, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let ordinary_steps = AtomicU64::new(0);
    direct(|| {
        thread::scope(|scope| {
            let ordinary = scope.spawn(|| {
                realtime::become_ordinary().unwrap();
                await_flag(&go);
                while !over.load(Acquire) {
                    ordinary_steps.fetch_add(1, Relaxed);
                }
                ordinary_steps.fetch_add(1, Relaxed);
            });
            let urgent = scope.spawn(|| {
                realtime::become_fifo(MIDDLE).unwrap();
                await_flag(&go);
                for _ in 0..STEPS {
                    let seen = ordinary_steps.load(Relaxed);
                    assert_eq!(seen, 0, "an ordinary thread ran before an urgent one");
                }
                over.store(true, Release);
            });
            let_them_run();
            go.store(true, Release);
            ordinary.thread().unpark();
            urgent.thread().unpark();
            let_them_run();
            assert!(over.load(Acquire), "it has run when the director goes on");
            assert_eq!(ordinary_steps.load(Relaxed), 0);
        });
    });
    assert_eq!(ordinary_steps.load(Relaxed), 1);
}

/// Threads of one priority run in the order in which they were woken, each until it sleeps.
fn equals_run_first_come_first_served() {
    const THREADS: usize = 7;
    let flags = [const { AtomicBool::new(false) }; THREADS];
    let log = Mutex::new(Vec::new());
    let woken = [3, 0, 6, 1, 5, 2, 4];
    direct(|| {
        thread::scope(|scope| {
            let threads: [_; THREADS] = std::array::from_fn(|index| {
                let (flags, log) = (&flags, &log);
                scope.spawn(move || {
                    realtime::become_fifo(MIDDLE).unwrap();
                    await_flag(&flags[index]);
                    for _ in 0..3 {
                        log.lock().unwrap().push(index);
                    }
                })
            });
            let_them_run();
            assert!(log.lock().unwrap().is_empty());
            for index in woken {
                flags[index].store(true, Release);
                threads[index].thread().unpark();
            }
            let is_empty = log.lock().unwrap().is_empty();
            assert!(is_empty, "they ran before their director");
            let_them_run();
            let expected: Vec<usize> = woken.iter().flat_map(|&index| [index; 3]).collect();
            assert_eq!(*log.lock().unwrap(), expected);
        });
    });
}

/// A thread that yields goes behind its equals, and stays before everybody else.
fn yielding_lets_equals_run() {
    let (go, log) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    direct(|| {
        thread::scope(|scope| {
            let threads: [_; 3] = std::array::from_fn(|index| {
                let (go, log) = (&go, &log);
                scope.spawn(move || {
                    let priority = if index == 2 { LOW + 1 } else { MIDDLE };
                    realtime::become_fifo(priority).unwrap();
                    await_flag(go);
                    for _ in 0..3 {
                        log.lock().unwrap().push(index);
                        thread::yield_now();
                    }
                })
            });
            let_them_run();
            go.store(true, Release);
            threads.iter().for_each(|thread| thread.thread().unpark());
            let_them_run();
            assert_eq!(*log.lock().unwrap(), [0, 1, 0, 1, 0, 1, 2, 2, 2]);
        });
    });
}

/// A loop of high priority keeps its CPU, but not from those above it, and not from its end.
fn an_endless_loop_can_be_killed() {
    let shared = Region::shared(1).unwrap();
    direct(|| {
        realtime::become_fifo(HIGH + 1).unwrap();
        let child = Child::start(|| {
            // Refused or not, it loops.
            let _ignored = realtime::become_fifo(MIDDLE);
            loop {
                shared.word(0, 0).fetch_add(1, Relaxed);
            }
        });
        let child = child.unwrap();
        while shared.word(0, 0).load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    });
}

/// Threads that wait for their address space, because another one changes it, end when their process is killed.
fn the_killed_do_not_wait() {
    for round in 0..KILLED {
        let child = Child::start(|| {
            for index in 0..6 {
                let change = move || {
                    loop {
                        let region = Region::new(64 << (index % 3)).unwrap();
                        (0..region.pages()).for_each(|page| region.word(page, 0).store(1, Relaxed));
                        region.discard(region.pages() / 2).unwrap();
                        if index == 0 {
                            let _ended = Child::start(|| 0).and_then(Child::wait);
                        }
                    }
                };
                // A refused thread is one fewer.
                let _ignored = thread::Builder::new().spawn(change);
            }
            loop {
                thread::park();
            }
        });
        thread::sleep(Duration::from_millis(2 + round * 2));
        let child = child.unwrap();
        assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    }
}

fn main() -> ExitCode {
    checks::run(
        "t_sched",
        &checks::named![
            nonsense_is_refused,
            limits_are_told,
            priorities_are_kept_and_inherited,
            the_urgent_one_runs_first,
            equals_run_first_come_first_served,
            yielding_lets_equals_run,
            an_endless_loop_can_be_killed,
            the_killed_do_not_wait,
        ],
    )
}
