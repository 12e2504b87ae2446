//! Threads that wake up go before those that run, and leave them their share: shown by orders and states, never by times. All threads of a
//! test share one CPU.

use std::process::ExitCode;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, Thread};
use std::time::Duration;

use shootdown_user::checks;
use shootdown_user::machine;
use shootdown_user::realtime;

const URGENT: i32 = 50;
const ROUNDS: u64 = 40;
/// A host that stops a virtual CPU for longer than a slice has it look as if the sleeper had run so long.
const MOST_LATE: u64 = ROUNDS / 4;
/// Between two rounds: less than a slice, so that somebody is always interrupted in his turn.
const PAUSE: Duration = Duration::from_millis(3);
/// Steps of a thread that never sleeps, beside one that often does, and takes so many in between: less and more than a tick takes.
const STEPS: u64 = 40_000_000;
const STEPS_BETWEEN: [u64; 3] = [10_000, 100_000, 500_000];
/// As many, and as many more for a host that gives one of them less than it says. (What is fair exactly: kernel/tests-host/tests/wake_budget.rs.)
const MOST_STEPS: u64 = 2 * STEPS;

fn pin() {
    let cpu = *machine::allowed_cpus().unwrap().last().unwrap();
    machine::pin_to(cpu).unwrap();
}

/// So many steps, which take everybody as long.
#[inline(never)]
fn take_steps(steps: &AtomicU64, count: u64) {
    for _ in 0..count {
        steps.fetch_add(1, Relaxed);
    }
}

/// Three threads and an urgent one.
#[derive(Default)]
struct Stage {
    /// Of the two that never sleep.
    steps: [AtomicU64; 2],
    /// As the urgent one saw them.
    seen: [AtomicU64; 2],
    /// Rounds in which one of the two went on before the sleeper.
    late: AtomicU64,
    /// The last round that has begun, and the last that the sleeper has seen.
    round: AtomicU64,
    seen_round: AtomicU64,
    is_there: AtomicBool,
    is_over: AtomicBool,
}

impl Stage {
    /// Sleeps until each round begins.
    fn sleep(&self) {
        pin();
        self.is_there.store(true, Release);
        for round in 1..=ROUNDS {
            while self.round.load(Acquire) < round {
                thread::park();
            }
            let both = self.steps.iter().zip(&self.seen);
            if both
                .map(|(steps, seen)| steps.load(Relaxed) - seen.load(Relaxed))
                .any(|went_on| went_on > 0)
            {
                self.late.fetch_add(1, Relaxed);
            }
            self.seen_round.store(round, Release);
        }
    }

    /// Looks how far the two are, and wakes the third, again and again.
    fn wake(&self, sleeper: &Thread) {
        pin();
        realtime::become_fifo(URGENT).unwrap();
        while !self.is_there.load(Acquire) {
            thread::sleep(PAUSE);
        }
        for round in 1..=ROUNDS {
            thread::sleep(PAUSE);
            for (steps, seen) in self.steps.iter().zip(&self.seen) {
                seen.store(steps.load(Relaxed), Relaxed);
            }
            self.round.store(round, Release);
            sleeper.unpark();
            while self.seen_round.load(Acquire) < round {
                thread::sleep(PAUSE);
            }
        }
        self.is_over.store(true, Release);
    }
}

/// A thread that is woken runs before those that were interrupted take a step, and these take turns as ever.
fn who_wakes_up_goes_first() {
    let stage = Stage::default();
    let stage = &stage;
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| stage.sleep()).thread().clone();
        for steps in &stage.steps {
            scope.spawn(|| {
                pin();
                while !stage.is_over.load(Acquire) {
                    take_steps(steps, 1);
                }
            });
        }
        scope.spawn(move || stage.wake(&sleeper));
    });
    let late = stage.late.load(Relaxed);
    assert!(
        late <= MOST_LATE,
        "in {late} of {ROUNDS} they went on first"
    );
    let [first, second] = stage.steps.each_ref().map(|steps| steps.load(Relaxed));
    assert!(
        first.min(second) > 0,
        "{first}, {second}: one had all turns"
    );
}

/// One thread sleeps a moment again and again, and takes steps in between; another one, which never sleeps, takes as many.
fn who_often_sleeps_leaves_others_their_share() {
    STEPS_BETWEEN
        .into_iter()
        .for_each(leaves_others_their_share);
}

fn leaves_others_their_share(steps_between: u64) {
    let (often, never) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            while never.load(Relaxed) < STEPS {
                thread::sleep(Duration::from_micros(1));
                take_steps(&often, steps_between);
            }
        });
        scope.spawn(|| {
            pin();
            while never.load(Relaxed) < STEPS {
                take_steps(&never, 1_000);
            }
        });
    });
    let often = often.into_inner();
    assert!(
        often < MOST_STEPS,
        "{often} steps, {steps_between} at a time, and {STEPS} of the other"
    );
}

fn main() -> ExitCode {
    checks::run(
        "t_wakeup",
        &checks::named![
            who_wakes_up_goes_first,
            who_often_sleeps_leaves_others_their_share,
        ],
    )
}
