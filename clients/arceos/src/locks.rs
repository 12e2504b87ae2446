//! The test of locks that poll: one CPU waits for a flush while it holds a lock, another waits for the lock with interrupts off.

use core::sync::atomic::{AtomicBool, Ordering};

use axstd::thread;
use kspin::SpinNoIrq;
use shootdown::{FlushScope, FreedTables};

use crate::memory::{self, Flusher, Pages};
use crate::platform::SHOOTDOWN;
use crate::{clock, threads};

const ROUNDS: usize = 1000;
/// When there are no further rounds: an emulator with fewer cores than CPUs may take a tenth of a second for one.
const ENOUGH_NS: u64 = 3_000_000_000;

/// Whether there are further rounds.
static LOCK: SpinNoIrq<bool> = SpinNoIrq::new(true);
/// Somebody else waits for the lock now.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

/// Returns if all is well; the watchdog ends the machine otherwise.
pub fn check() {
    let other = threads::spawn_on(1, || {
        HAS_BEGUN.store(true, Ordering::Relaxed);
        while *LOCK.lock() {
            core::hint::spin_loop();
        }
    });
    let frame = memory::frames(1);
    let page = Pages::new(1, memory::address_of(&frame));
    // Otherwise the rounds may be over before.
    while !HAS_BEGUN.load(Ordering::Relaxed) {
        thread::yield_now();
    }
    let begin = clock::now_ns();
    for round in 1.. {
        let mut goes_on = LOCK.lock();
        SHOOTDOWN.flush(FlushScope::Kernel, page.range(), FreedTables::No);
        *goes_on = round < ROUNDS && clock::now_ns() - begin < ENOUGH_NS;
        if !*goes_on {
            break;
        }
    }
    other.join().expect("threads do not fail");
    page.unmap(Flusher::Engine);
}
