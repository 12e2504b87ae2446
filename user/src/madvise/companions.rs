//! Threads that busy-wait in user mode, each pinned to a CPU, while thread 0 measures.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::machine;

/// Busy-waiting threads; they end when this is dropped.
#[derive(Debug)]
pub struct Companions {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// Alone on its cache line: the companions read `stop` all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shared {
    stop: AtomicBool,
    ready: AtomicUsize,
    failed: AtomicUsize,
}

impl Companions {
    /// Starts one thread on each of `cpus` and returns when all of them spin.
    pub fn start(cpus: &[usize]) -> io::Result<Self> {
        let mut companions = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for &cpu in cpus {
            let shared = Arc::clone(&companions.shared);
            let thread = thread::Builder::new().spawn(move || shared.spin(cpu))?;
            companions.threads.push(thread);
        }
        // ORDERING: pairs with the Release increments in `spin`.
        while companions.shared.ready.load(Ordering::Acquire) < cpus.len() {
            thread::yield_now();
        }
        match companions.shared.failed.load(Ordering::Relaxed) {
            0 => Ok(companions),
            count => Err(io::Error::other(format!(
                "{count} threads could not be pinned"
            ))),
        }
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A companion cannot panic; if it did, there is nothing to clean up.
            let _ignored = thread.join();
        }
    }
}

/// A companion is busy, so it pauses now and then, for emulators whose processors take turns at a PAUSE, and not
/// at every look: under QEMU's multi-threaded TCG each PAUSE takes the emulator's one big lock, which every
/// exception of every processor takes too, so that the page faults of the measured thread would wait for it.
const LOOKS_PER_PAUSE: usize = 256;

impl Shared {
    fn spin(&self, cpu: usize) {
        if machine::pin_to(cpu).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        // ORDERING: publishes `failed`; pairs with the Acquire load in `start`.
        self.ready.fetch_add(1, Ordering::Release);
        while !self.stopped_within(LOOKS_PER_PAUSE) {
            std::hint::spin_loop();
        }
    }

    fn stopped_within(&self, looks: usize) -> bool {
        (0..looks).any(|_| self.stop.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_start_and_end() {
        let cpus = machine::allowed_cpus().unwrap();
        drop(Companions::start(&cpus[..1]).unwrap());
    }

    #[test]
    fn an_impossible_cpu_is_an_error_and_not_a_hang() {
        assert!(Companions::start(&[usize::MAX]).is_err());
    }
}
