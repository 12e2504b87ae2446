//! A guest that runs in a thread of its own.

use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread;
use std::time::Duration;

use super::{Guest, Stop, abi};
use crate::{machine, signals};

/// Between two signals to a thread that is to leave its guest.
const AGAIN: Duration = Duration::from_millis(1);

extern "C" fn ignore(_: i32) {}

/// Has SIGUSR1 interrupt system calls and do nothing else.
pub fn catch_interruptions() {
    // SAFETY: the handler does nothing.
    unsafe { signals::handle(libc::SIGUSR1, ignore as *const () as usize, 0) }.unwrap();
}

impl Guest {
    /// Runs it in another thread, pinned to that CPU if one is named, while `work` is done; what that gives, and how the run ended: by itself, or with
    /// EINTR because the work was done.
    pub fn run_beside<R>(
        &self,
        cpu: Option<usize>,
        work: impl FnOnce() -> R,
    ) -> (R, io::Result<Stop>) {
        catch_interruptions();
        let runner = AtomicI32::new(0);
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                cpu.map_or(Ok(()), machine::pin_to).unwrap();
                // SAFETY: takes nothing.
                runner.store(unsafe { libc::gettid() }, Release);
                self.run()
            });
            while runner.load(Acquire) == 0 {
                thread::yield_now();
            }
            let done = work();
            self.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 1u8);
            while !running.is_finished() {
                interrupt(runner.load(Acquire));
                thread::sleep(AGAIN);
            }
            self.vcpu.write(abi::RUN_IMMEDIATE_EXIT, 0u8);
            (done, running.join().unwrap())
        })
    }
}

/// Sends a thread of this process the signal. It may have ended.
pub fn interrupt(thread: i32) {
    let process = std::process::id();
    // SAFETY: a signal with a handler, to a thread of this process.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGUSR1) };
}
