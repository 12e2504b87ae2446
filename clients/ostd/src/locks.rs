//! The test of locks that poll: one CPU waits for a flush while it holds a lock, another waits for the lock with interrupts off.
//!
//! The lock is ours. OSTD's own have no hook, and OSTD forbids a wait for other CPUs with interrupts off for that reason.

use core::sync::atomic::{AtomicBool, Ordering};

use shootdown::{FlushRange, FlushScope, FreedTables, PageSize, Platform};
use shootdown_x86::irq;

use crate::cpus;
use crate::options::{Mistake, Options};
use crate::platform::SHOOTDOWN;

const ROUNDS: usize = 1000;
/// When there are no further rounds.
const ENOUGH_NS: u64 = 3_000_000_000;

static LOCK: AtomicBool = AtomicBool::new(false);
static GOES_ON: AtomicBool = AtomicBool::new(true);
/// Somebody else waits for the lock now.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static POLLS: AtomicBool = AtomicBool::new(true);

/// Runs `work` with the lock and without interrupts.
fn locked<R>(work: impl FnOnce() -> R) -> R {
    let before = irq::save();
    // ORDERING: Acquire: sees what the last holder did.
    while LOCK.swap(true, Ordering::Acquire) {
        if POLLS.load(Ordering::Relaxed) {
            SHOOTDOWN.poll();
        }
        core::hint::spin_loop();
    }
    let result = work();
    // ORDERING: Release: publishes it to the next one.
    LOCK.store(false, Ordering::Release);
    // SAFETY: 1. from `save` above.
    unsafe { irq::restore(before) };
    result
}

/// Returns if all is well; the watchdog ends the machine otherwise.
pub fn check(options: &Options) {
    POLLS.store(options.mistake != Mistake::NoPoll, Ordering::Relaxed);
    cpus::begin(1, || {
        HAS_BEGUN.store(true, Ordering::Relaxed);
        while locked(|| GOES_ON.load(Ordering::Relaxed)) {}
    });
    let range = FlushRange::pages(0xffff_8000_0000_0000, 1, PageSize::SIZE_4K);
    let now_ns = || SHOOTDOWN.platform().now_ns();
    // Otherwise the rounds may be over before.
    while !HAS_BEGUN.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    let begin = now_ns();
    for round in 1.. {
        let goes_on = round < ROUNDS && now_ns() - begin < ENOUGH_NS;
        locked(|| {
            SHOOTDOWN.flush(FlushScope::Kernel, range, FreedTables::No);
            GOES_ON.store(goes_on, Ordering::Relaxed);
        });
        if !goes_on {
            break;
        }
    }
    cpus::end(1);
}
