//! [`Mailbox`]: what small kernels do.

use shootdown::shim::{AtomicU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};
use crate::lock::TicketLock;

/// One message for the whole machine, under one lock. Each target is interrupted by itself, runs the function and adds one
/// to a counter, for which the initiator waits under the lock.
///
/// Weakness: one call at a time, whoever its targets are; a register write a target; an interrupt that nobody asked for
/// would be counted.
#[derive(Debug)]
pub struct Mailbox<P: Platform> {
    platform: P,
    lock: TicketLock,
    message: Message,
}

#[derive(Debug)]
#[repr(align(64))]
struct Message {
    function: Place,
    finished: AtomicU64,
}

impl<P: Platform> Mailbox<P> {
    /// An empty mailbox.
    pub fn new(platform: P) -> Self {
        Self {
            platform,
            lock: TicketLock::new(),
            message: Message {
                function: place(),
                finished: AtomicU64::new(0),
            },
        }
    }
}

impl<P: Platform> CrossCall<P::Cpus> for Mailbox<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        self.lock.with(&self.platform, || {
            // SAFETY: under the lock, and the targets of the call before have finished.
            unsafe { self.message.function.write(Borrowed::new(function)) };
            // ORDERING: publishes the function, with the interrupts; pairs with the addition in `handle_ipi`.
            self.message.finished.store(0, Ordering::Release);
            for target in others.iter() {
                caller.interrupt(target);
            }
            caller.run_here(is_named, function);
            // ORDERING: acquires what the targets did.
            caller.wait_until(|| {
                self.message.finished.load(Ordering::Acquire) == others.len() as u64
            });
        });
    }

    fn handle_ipi(&self) {
        // SAFETY: an interrupt comes only from a call, which waits for us before anybody writes again.
        let function = unsafe { self.message.function.read() };
        // SAFETY: 1. it waits for us.
        unsafe { function.run(self.platform.current_cpu()) };
        // ORDERING: publishes what the function did.
        self.message.finished.fetch_add(1, Ordering::AcqRel);
    }

    fn bytes(&self) -> usize {
        size_of_val(&self.lock) + size_of_val(&self.message)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&self.lock, address), "lock"),
            (touches(&self.message, address), "message"),
        ])
    }
}
