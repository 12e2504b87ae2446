//! Threads that stay on one CPU.

use alloc::vec::Vec;

use axstd::os::arceos::api::task::{AxCpuMask, ax_set_current_affinity};
use axstd::thread::{self, JoinHandle};

use crate::platform::CPUS;

/// The running thread goes to `cpu`, and stays there.
pub fn stay_on(cpu: usize) {
    ax_set_current_affinity(AxCpuMask::one_shot(cpu)).expect("the CPU exists");
}

/// A thread that stays on `cpu`.
pub fn spawn_on<T: Send + 'static>(
    cpu: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    thread::spawn(move || {
        stay_on(cpu);
        work()
    })
}

/// Has every CPU do `work`, and waits.
pub fn on_each_cpu(work: fn()) {
    let threads: Vec<_> = (0..CPUS).map(|cpu| spawn_on(cpu, work)).collect();
    for thread in threads {
        thread.join().expect("threads do not fail");
    }
}
