//! [`Request`]: the message of small kernels, which several models have.

use shootdown::shim::{AtomicU64, Ordering};

use crate::machine::context;
use crate::stories::stage::Stage;

/// A request to drop the page: a bit for each target, which the target clears once it has dropped it. One initiator at a time.
#[derive(Debug)]
pub(super) struct Request(AtomicU64);

impl Request {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Asks the CPUs of a set, but for the one that asks, and interrupts them.
    pub(super) fn send(&self, stage: &Stage, set: u64) {
        let targets = stage.others_in(set).fold(0, |bits, cpu| bits | 1 << cpu);
        // ORDERING: Release publishes the change of the page tables; pairs with the Acquire in `answer`.
        self.0.store(targets, Ordering::Release);
        stage
            .others_in(set)
            .for_each(|target| stage.interrupt(target));
    }

    /// What a target does in its interrupt.
    pub(super) fn answer(&self, stage: &Stage) {
        let bit = 1 << context().cpu();
        // ORDERING: Acquire: see `send`.
        if self.0.load(Ordering::Acquire) & bit != 0 {
            stage.drop_page();
            // ORDERING: Release: the page is dropped before; pairs with the Acquire in `is_answered`.
            self.0.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        // ORDERING: Acquire: see `answer`.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Until all targets have answered.
    pub(super) fn wait(&self) {
        while !self.is_answered() {
            Stage::spin();
        }
    }
}
