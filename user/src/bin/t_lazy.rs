//! Idle CPUs: flushes leave them alone, they see the newest contents when they wake up, and they keep nothing of a
//! process that has ended.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use shootdown_user::checks;
use shootdown_user::child::{Child, End};
use shootdown_user::counters::{CounterSource, grown};
use shootdown_user::machine;
use shootdown_user::policy::PolicySwitch;
use shootdown_user::region::Region;

/// Discards while a CPU sleeps.
const DISCARDS: u64 = 500;
/// Naps of a thread whose pages change meanwhile.
const NAPS: u64 = 100;
const NAP: Duration = Duration::from_millis(2);

/// All CPUs, asked for before any thread pins itself.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| machine::allowed_cpus().unwrap())
}

/// Runs `awake` on the first CPU while a thread of the process sleeps on the last; `None` where there is but one.
fn while_one_sleeps<T>(awake: impl FnOnce() -> T) -> Option<T> {
    let cpus = cpus();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    if first == last {
        return None;
    }
    machine::pin_to(first).unwrap();
    let (ready, wake) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin_to(last).unwrap();
            ready.wait();
            wake.wait();
        });
        ready.wait();
        // It has this long to fall asleep.
        thread::sleep(10 * NAP);
        let result = awake();
        wake.wait();
        Some(result)
    })
}

fn sleepers_are_left_alone() {
    let mut source = CounterSource::of_this_kernel();
    let is_ours = machine::is_reference_kernel();
    let region = Region::new(4).unwrap();
    let counted = while_one_sleeps(|| {
        let before = source.read();
        for _ in 0..DISCARDS {
            region.word(1, 1).store(7, Relaxed);
            region.discard(4).unwrap();
        }
        let middle = source.read();
        // A page far from all others: its tables go with it.
        drop(Region::new(1 << 18).map(|far| far.word(1 << 17, 0).store(1, Relaxed)));
        (before, middle, source.read())
    });
    let Some((before, middle, after)) = counted.filter(|_| is_ours) else {
        return;
    };
    let skipped = grown("lazy_skipped", &before, &middle);
    let sent = grown("ipis_sent", &before, &middle);
    println!("t_lazy: {DISCARDS} discards passed {skipped} CPUs by and interrupted {sent}");
    assert!(skipped >= DISCARDS * 9 / 10 && sent <= DISCARDS / 10);
    let detached = grown("lazy_detached", &middle, &after) > 0;
    assert!(detached, "freed tables reach sleepers");
}

fn sleepers_wake_up_to_the_newest_contents() {
    let cpus = cpus();
    let region = Region::new(2).unwrap();
    let written = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            machine::pin_to(*cpus.last().unwrap()).unwrap();
            while written.load(Acquire) < NAPS {
                thread::sleep(NAP);
                let published = written.load(Acquire);
                for page in 0..2 {
                    let seen = region.word(page, 3).load(Acquire);
                    assert!(seen >= published || seen == 0, "{seen} after {published}");
                }
            }
        });
        machine::pin_to(cpus[0]).unwrap();
        for value in 1..=NAPS {
            for page in 0..2 {
                region.discard(page + 1).unwrap();
                (0..=page).for_each(|page| region.word(page, 3).store(value, Release));
            }
            written.store(value, Release);
            thread::sleep(NAP / 3 * (value % 4) as u32);
        }
    });
}

/// A child sleeps on each CPU in turn, and is killed there: the CPU is left idle in its space.
fn dead_processes_leave_nothing() {
    const PAGES: usize = 512;
    let killed_on = |cpu| {
        let ready = Region::shared(1).unwrap();
        let child = Child::start(|| {
            machine::pin_to(cpu).unwrap();
            let region = Region::new(PAGES).unwrap();
            (0..PAGES).for_each(|page| region.word(page, 0).store(7, Relaxed));
            ready.word(0, 0).store(1, Release);
            loop {
                thread::sleep(Duration::from_secs(1000));
            }
        });
        while ready.word(0, 0).load(Acquire) == 0 {
            thread::yield_now();
        }
        thread::sleep(NAP);
        let child = child.unwrap();
        assert_eq!(child.kill().unwrap(), End::Killed(libc::SIGKILL));
    };
    checks::must_not_lose(1024, || cpus().iter().copied().for_each(killed_on));
}

fn main() -> ExitCode {
    checks::fail_on_panic("t_lazy");
    machine::prepare();
    cpus();
    let switch = PolicySwitch::of_this_kernel();
    let checks: [checks::Check; 3] = checks::named![
        sleepers_are_left_alone,
        sleepers_wake_up_to_the_newest_contents,
        dead_processes_leave_nothing,
    ];
    let policies = ["published", "best"].map(str::to_owned);
    for policy in switch.resolve(&policies).unwrap() {
        switch.select(&policy).unwrap();
        checks::run_all(&format!("t_lazy: {policy}"), &checks);
    }
    println!("t_lazy: OK");
    ExitCode::SUCCESS
}
