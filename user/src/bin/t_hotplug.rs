//! CPUs that leave and come back: what the files show, what is refused, and what becomes of threads and translations.
//!
//! Runs as the first process of a machine only: nobody wants the CPUs of a host taken away.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread;
use std::time::Duration;

use shootdown_user::checks::{self, error_of};
use shootdown_user::child::{Child, End};
use shootdown_user::hotplug;
use shootdown_user::machine::{self, current_cpu as here, run_on};
use shootdown_user::region::Region;

/// How often two threads turn the same CPU off and on.
const TURNS: usize = 10;

/// All CPUs, asked for before any left.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| machine::allowed_cpus().unwrap())
}

/// Those that can leave.
fn others() -> &'static [usize] {
    &cpus()[1..]
}

/// Runs `work` while `cpu` is offline.
fn without<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    hotplug::take_offline(cpu).unwrap();
    let result = work();
    hotplug::bring_online(cpu).unwrap();
    result
}

/// Waits until `word` exceeds `value`.
fn until_above(word: &AtomicU64, value: u64) {
    while word.load(Relaxed) <= value {
        thread::yield_now();
    }
}

fn the_files_agree() {
    let possible = hotplug::list("possible").unwrap();
    assert_eq!(hotplug::list("online").unwrap(), cpus());
    for &cpu in others() {
        let state = || std::fs::read_to_string(hotplug::switch(cpu)).unwrap();
        assert_eq!(state(), "1\n");
        without(cpu, || {
            let rest: Vec<usize> = cpus().iter().copied().filter(|&c| c != cpu).collect();
            assert_eq!(state(), "0\n");
            assert_eq!(hotplug::list("online").unwrap(), rest);
            assert_eq!(hotplug::processors().unwrap(), rest);
            assert_eq!(hotplug::list("possible").unwrap(), possible);
            hotplug::take_offline(cpu).expect("it is offline already");
        });
        assert_eq!(state(), "1\n");
        hotplug::bring_online(cpu).expect("it is online already");
        assert_eq!(run_on(cpu, here), cpu);
    }
    assert_eq!(hotplug::processors().unwrap(), cpus());
}

fn nonsense_is_refused() {
    let first = hotplug::take_offline(cpus()[0]);
    assert!(first.is_err(), "the first CPU left");
    let beyond = cpus().len() + 7;
    assert_eq!(error_of(hotplug::take_offline(beyond)), Some(libc::ENOENT));
    for &cpu in others() {
        for word in ["2", "x", "-1"] {
            let refused = error_of(hotplug::tell(cpu, word));
            assert_eq!(refused, Some(libc::EINVAL), "{word:?}");
        }
        without(cpu, || {
            assert_eq!(error_of(machine::pin_to(cpu)), Some(libc::EINVAL));
        });
    }
}

/// A thread that may run on this CPU only is let go to another one, whether it computes or sleeps.
fn pinned_threads_survive() {
    for &cpu in others() {
        for sleeps in [false, true] {
            let (steps, over) = (AtomicU64::new(0), AtomicBool::new(false));
            let at = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    machine::pin_to(cpu).unwrap();
                    while !over.load(Relaxed) {
                        if sleeps {
                            thread::sleep(Duration::from_micros(500));
                        }
                        at.store(here(), Relaxed);
                        steps.fetch_add(1, Relaxed);
                    }
                });
                until_above(&steps, 2);
                assert_eq!(at.load(Relaxed), cpu);
                without(cpu, || {
                    let before = steps.load(Relaxed);
                    until_above(&steps, before + 2);
                    assert_ne!(at.load(Relaxed), cpu);
                });
                until_above(&steps, steps.load(Relaxed));
                over.store(true, Relaxed);
            });
        }
    }
}

/// What a CPU had cached when it left is not what it uses when it is back.
fn nothing_is_remembered() {
    for &cpu in others() {
        let region = Region::new(2).unwrap();
        (0..2).for_each(|page| region.word(page, 0).store(1, Relaxed));
        assert_eq!(run_on(cpu, || region.word(1, 0).load(Relaxed)), 1);
        without(cpu, || {
            region.discard(2).unwrap();
            // Whoever is given the old frames now writes to them.
            let taker = Region::new(64).unwrap();
            (0..64).for_each(|page| taker.word(page, 0).store(7, Relaxed));
            region.word(0, 0).store(2, Relaxed);
        });
        let see = || [0, 1].map(|page| region.word(page, 0).load(Relaxed));
        assert_eq!(run_on(cpu, see), [2, 0]);
    }
}

/// Discards go on while a reader's CPU comes and goes: it never sees a value whose discard has returned.
fn flushes_go_on() {
    let (Some(&last), region) = (others().last(), Region::new(1).unwrap()) else {
        return;
    };
    let (gone, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                // When its CPU has left it runs elsewhere, and comes back to it.
                let _ignored = machine::pin_to(last);
                for _ in 0..100 {
                    let newest = gone.load(Acquire);
                    let seen = region.word(0, 0).load(Acquire);
                    assert!(seen == 0 || seen > newest, "{seen} after {newest}");
                }
            }
        });
        scope.spawn(|| {
            for _ in 0..TURNS {
                without(last, || thread::sleep(Duration::from_millis(1)));
            }
            over.store(true, Relaxed);
        });
        let mut value = 0;
        while !over.load(Relaxed) {
            value += 1;
            region.word(0, 0).store(value, Release);
            region.discard(1).unwrap();
            gone.store(value, Release);
        }
    });
}

/// Two at once: each is done or told that somebody else is at it.
fn requests_do_not_mix() {
    for &cpu in others() {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for turn in 0..2 * TURNS {
                        match hotplug::tell(cpu, ["0", "1"][turn % 2]) {
                            Ok(()) => {}
                            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EBUSY)),
                        }
                    }
                });
            }
        });
        hotplug::bring_online(cpu).unwrap();
        assert_eq!(run_on(cpu, here), cpu);
    }
}

/// One CPU is left: it does everything, and cannot leave.
fn the_last_one_stays() {
    for &cpu in others() {
        hotplug::take_offline(cpu).unwrap();
    }
    assert_eq!(hotplug::list("online").unwrap(), &cpus()[..1]);
    assert!(hotplug::take_offline(cpus()[0]).is_err());
    let sum: usize = thread::scope(|scope| {
        let look = || {
            thread::sleep(Duration::from_millis(1));
            here()
        };
        let threads = [(); 8].map(|()| scope.spawn(look));
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(sum, 8 * cpus()[0]);
    let child = Child::start(|| here() as i32).unwrap();
    assert_eq!(child.wait().unwrap(), End::Exited(cpus()[0] as i32));
    for &cpu in others() {
        hotplug::bring_online(cpu).unwrap();
        assert_eq!(run_on(cpu, here), cpu);
    }
}

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!(
            "t_hotplug: takes CPUs away: run it as the first process of a machine, by ./lab run"
        );
        return ExitCode::from(2);
    }
    cpus();
    checks::run(
        "t_hotplug",
        &checks::named![
            the_files_agree,
            nonsense_is_refused,
            pinned_threads_survive,
            nothing_is_remembered,
            flushes_go_on,
            requests_do_not_mix,
            the_last_one_stays,
        ],
    )
}
