//! The threads of all virtual CPUs, which start and stop together.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::vcpu::{STOP, Tally, Vcpu};
use crate::machine;

/// Threads that have settled and are stopped or running.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How often they were started.
    starts: u64,
    is_running: bool,
    /// They shall end.
    is_over: bool,
    /// Threads that have seen the last start.
    awake: usize,
    /// Threads that do not run.
    stopped: usize,
    /// The kernel's numbers of threads.
    numbers: Vec<i32>,
    tally: Tally,
    failure: Option<io::Error>,
}

impl Crew {
    /// A thread for each of these, on its CPU. They are stopped.
    pub fn start(vcpus: Vec<(Vcpu, usize)>) -> io::Result<Self> {
        let mut crew = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for (vcpu, cpu) in vcpus {
            let shared = Arc::clone(&crew.shared);
            let thread = thread::Builder::new().spawn(move || shared.live(vcpu, cpu))?;
            crew.threads.push(thread);
        }
        crew.wait_until_stopped().map(|_| crew)
    }

    /// The kernel's numbers of its threads.
    pub fn threads(&self) -> Vec<i32> {
        self.shared.lock().numbers.clone()
    }

    /// Lets all run, and waits until all threads are on their way into their guests.
    pub fn run(&self) {
        let mut state = self.shared.lock();
        state.starts += 1;
        state.is_running = true;
        state.awake = 0;
        state.stopped = 0;
        self.shared.changed.notify_all();
        let is_slow = |state: &mut State| state.awake < self.threads.len();
        // What a poisoned lock guards is sums and counts, which are right at any time.
        let _poisoned = self.shared.changed.wait_while(state, is_slow);
    }

    /// Stops all, and waits until they have stopped. What they did since they were started.
    pub fn stop(&self) -> io::Result<Tally> {
        let mut state = self.shared.lock();
        state.is_running = false;
        for &number in &state.numbers {
            send_stop(number)?;
        }
        drop(state);
        self.wait_until_stopped()
    }

    fn wait_until_stopped(&self) -> io::Result<Tally> {
        let is_busy = |state: &mut State| state.stopped < self.threads.len();
        let state = self.shared.changed.wait_while(self.shared.lock(), is_busy);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let tally = std::mem::take(&mut state.tally);
        state.failure.take().map_or(Ok(tally), Err)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // A thread that cannot be stopped ends with the process; the memory would go before.
        let _ignored = self.stop();
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // It does not panic.
            let _ignored = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn live(&self, mut vcpu: Vcpu, cpu: usize) {
        vcpu.settle();
        let mut result = machine::pin_to(cpu).map(|()| Tally::default());
        // SAFETY: takes nothing.
        self.lock().numbers.push(unsafe { libc::gettid() });
        let mut starts = 0;
        while let Some(started) = self.wait(result, starts) {
            starts = started;
            result = vcpu.run(|| self.lock().is_running);
        }
    }

    /// Tells what came of the last run and waits for the next one.
    fn wait(&self, result: io::Result<Tally>, starts: u64) -> Option<u64> {
        let mut state = self.lock();
        match result {
            Ok(tally) => state.tally.add(tally),
            Err(error) => state.failure = Some(error),
        }
        state.stopped += 1;
        self.changed.notify_all();
        let waits = |state: &mut State| state.starts == starts && !state.is_over;
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.awake += 1;
        self.changed.notify_all();
        (!state.is_over).then_some(state.starts)
    }
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.returns += other.returns;
        self.writes += other.writes;
        self.wrong += other.wrong;
    }
}

fn send_stop(thread: i32) -> io::Result<()> {
    let process = std::process::id() as i32;
    // SAFETY: the signal has a handler, which touches its own thread's memory only.
    match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, STOP) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
