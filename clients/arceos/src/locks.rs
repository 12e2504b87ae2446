//! The test of locks that poll: one CPU waits for a flush while it holds a lock, another waits for the lock with interrupts off.

use kspin::SpinNoIrq;
use shootdown::FreedTables;

use crate::memory::{self, Flusher, Pages};
use crate::platform::SHOOTDOWN;
use crate::threads;

const ROUNDS: usize = 1000;

static LOCK: SpinNoIrq<usize> = SpinNoIrq::new(0);

/// Returns if all is well; the watchdog ends the machine otherwise.
pub fn check() {
    let other = threads::spawn_on(1, || {
        while *LOCK.lock() < ROUNDS {
            core::hint::spin_loop();
        }
    });
    let frame = memory::frames(1);
    let page = Pages::new(1, memory::address_of(&frame));
    for _ in 0..ROUNDS {
        let mut rounds = LOCK.lock();
        SHOOTDOWN.flush_kernel(page.range(), FreedTables::No);
        *rounds += 1;
    }
    other.join().expect("threads do not fail");
    page.unmap(Flusher::Engine);
}
