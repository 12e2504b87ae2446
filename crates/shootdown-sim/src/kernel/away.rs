//! CPUs that need no interrupt for a while: in system calls, where they defer flushes, and idle, where they look themselves.

use shootdown::{Capacity, Platform};

use crate::kernel::World;
use crate::machine::context;

impl<C: Capacity> World<C> {
    /// User code of this CPU makes a system call. It uses no user memory until [`leave_kernel`](Self::leave_kernel).
    pub(super) fn enter_kernel(&self) {
        let me = context().cpu();
        let Some(space) = self.current[me].borrow().clone() else {
            return;
        };
        if self.engine.user_memory().defer_flushes(&space.context()) {
            context().tell(|| format!("defers flushes of space {}", space.number));
            self.defers[me].set(true);
        }
    }

    /// The way back to user code, or a look at its memory on its behalf.
    pub(super) fn leave_kernel(&self) {
        let me = context().cpu();
        if !self.defers[me].replace(false) {
            return;
        }
        // It may be another one by now, or none: then nothing is deferred any more.
        let space = self.current[me].borrow().clone();
        if let Some(space) = space {
            context().tell(|| format!("catches up with space {}", space.number));
            self.engine.user_memory().catch_up(&space.context());
        }
    }

    /// This CPU is idle and polls, for so many looks or until something has come.
    pub(super) fn poll_idly(&self, looks: usize) {
        let mut left = looks;
        self.poll_while(|| {
            left = left.saturating_sub(1);
            left > 0
        });
    }

    /// Polls while `is_idle`, or until something has come. The idle task keeps its CPU until it has stopped polling.
    pub(super) fn poll_while(&self, mut is_idle: impl FnMut() -> bool) {
        context().preempt_disable();
        self.engine.poll_idle(|idle| {
            while is_idle() && !idle.has_work() {
                self.engine.platform().relax();
            }
        });
        // What has come may be a broadcast that its initiator is still announcing.
        self.engine.platform().relax();
        context().preempt_enable();
    }
}
