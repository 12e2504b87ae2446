//! A program of ArceOS's own, if the build was given one: it runs while a thread calls all CPUs and flushes.

use core::sync::atomic::{AtomicBool, Ordering};

use axstd::{println, thread};
use shootdown::{CallTargets, FlushScope, FreedTables};

use crate::memory::{self, Flusher, Pages};
use crate::platform::SHOOTDOWN;
use crate::threads;

#[cfg(example)]
mod program {
    include!(env!("EXAMPLE_SOURCE"));

    pub fn run() {
        main();
    }
}

#[cfg(not(example))]
mod program {
    pub fn run() {}
}

static HAS_ENDED: AtomicBool = AtomicBool::new(false);

/// Runs it; false if there is none.
pub fn run() -> bool {
    if !cfg!(example) {
        return false;
    }
    let disturber = threads::spawn_on(0, disturb);
    program::run();
    HAS_ENDED.store(true, Ordering::Relaxed);
    let rounds = disturber.join().expect("threads do not fail");
    println!("arceos: the example has ended; meanwhile {rounds} calls and flushes of all CPUs");
    true
}

/// Calls and flushes until the example has ended; how often.
fn disturb() -> u64 {
    let frame = memory::frames(1);
    let page = Pages::new(1, memory::address_of(&frame));
    let mut rounds = 0;
    while !HAS_ENDED.load(Ordering::Relaxed) {
        SHOOTDOWN.call_many(CallTargets::Online, &|_| ());
        SHOOTDOWN.flush(FlushScope::Kernel, page.range(), FreedTables::No);
        rounds += 1;
        thread::yield_now();
    }
    page.unmap(Flusher::Engine);
    rounds
}
