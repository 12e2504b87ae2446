//! Virtual CPUs that change their CPU while they run, and CPUs that leave and come back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{hotplug, machine};

/// Between two changes, in microseconds.
const PAUSE_US: std::ops::Range<u64> = 0..3_000;
/// One change in this many takes a CPU offline.
const ONE_IN: u32 = 8;

/// A thread that does it. Dropping it stops that; all CPUs are online then.
#[derive(Debug)]
pub struct Churn {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    failure: Mutex<Option<io::Error>>,
}

impl Churn {
    /// Moves these threads among these CPUs, and takes those but the first offline for a moment now and then.
    ///
    /// # Errors
    /// No CPU can leave.
    pub fn start(threads: Vec<i32>, cpus: &[usize], seed: u64) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut changes = Changes {
            threads,
            cpus: cpus.to_vec(),
            leaving: hotplug::leaving(cpus)?,
            random: fastrand::Rng::with_seed(seed),
        };
        let of_thread = shared.clone();
        let thread = thread::Builder::new().spawn(move || {
            while !of_thread.is_over.load(Relaxed) {
                if let Err(error) = changes.next() {
                    let mut failure = of_thread.failure();
                    failure.get_or_insert(error);
                    break;
                }
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// What went wrong so far.
    ///
    /// # Errors
    /// The kernel refused a change.
    pub fn check(&self) -> io::Result<()> {
        self.shared.failure().take().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn failure(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ignored = thread.join();
        }
    }
}

/// What is changed.
struct Changes {
    threads: Vec<i32>,
    cpus: Vec<usize>,
    /// Those that can.
    leaving: Vec<usize>,
    random: fastrand::Rng,
}

impl Changes {
    fn next(&mut self) -> io::Result<()> {
        if self.random.u32(0..ONE_IN) > 0 {
            self.move_one()?;
        } else {
            let cpu = self.leaving[self.random.usize(0..self.leaving.len())];
            hotplug::take_offline(cpu)?;
            self.pause();
            // Also without it.
            let moved = self.move_one();
            hotplug::bring_online(cpu)?;
            moved?;
        }
        self.pause();
        Ok(())
    }

    /// One thread is on another CPU from now on, or stays where that one has left.
    fn move_one(&mut self) -> io::Result<()> {
        let thread = self.threads[self.random.usize(0..self.threads.len())];
        let cpu = self.cpus[self.random.usize(0..self.cpus.len())];
        match machine::pin_thread_to(thread, cpu) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            result => result,
        }
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_micros(self.random.u64(PAUSE_US)));
    }
}
