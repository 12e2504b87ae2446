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
/// Between two rounds: less than a slice, so that somebody is always interrupted in his turn.
const PAUSE: Duration = Duration::from_millis(3);
/// Steps of a thread that never sleeps, beside one that often does, and takes so many in between.
const STEPS: u64 = 40_000_000;
const STEPS_BETWEEN: u64 = 100_000;
/// Somewhat more than as many, and some slices.
const MOST_STEPS: u64 = 4 * STEPS;

fn pin() {
    let cpu = *machine::allowed_cpus().unwrap().last().unwrap();
    machine::pin_to(cpu).unwrap();
}

/// Takes steps until it is told that all is over.
fn take_steps(steps: &AtomicU64, is_over: &AtomicBool) {
    pin();
    while !is_over.load(Acquire) {
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
    round: AtomicU64,
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
            assert_eq!(self.round.load(Acquire), round, "woken again before it ran");
            for (steps, seen) in self.steps.iter().zip(&self.seen) {
                let went_on = steps.load(Relaxed) - seen.load(Relaxed);
                assert_eq!(went_on, 0, "round {round}: they went on first");
            }
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
        }
        thread::sleep(PAUSE);
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
            scope.spawn(|| take_steps(steps, &stage.is_over));
        }
        scope.spawn(move || stage.wake(&sleeper));
    });
    let [first, second] = stage.steps.each_ref().map(|steps| steps.load(Relaxed));
    assert!(
        first.min(second) > 0,
        "{first}, {second}: one had all turns"
    );
}

/// One thread sleeps a moment again and again, and takes steps in between; another one, which never sleeps, takes not many fewer.
fn who_often_sleeps_leaves_others_their_share() {
    let (often, never) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            pin();
            while never.load(Relaxed) < STEPS {
                thread::sleep(Duration::from_micros(1));
                for _ in 0..STEPS_BETWEEN {
                    often.fetch_add(1, Relaxed);
                }
            }
        });
        scope.spawn(|| {
            pin();
            while never.fetch_add(1, Relaxed) < STEPS {}
        });
    });
    let often = often.into_inner();
    assert!(
        often < MOST_STEPS,
        "{often} steps, and {STEPS} of the other"
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
