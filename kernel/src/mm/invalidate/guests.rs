//! [`GuestPending`]: the flush of a virtual machine under way.

use crate::cpus::MAX_CPUS;
use crate::mm::frames::{self, FrameChain};
use crate::platform::{KernelPlatform, SHOOTDOWN};
use shootdown::{FlushTicket, guest::GuestSpace};

/// A submitted flush of a guest, and the nested tables that are free after it. Dropping it waits, and loses them.
#[must_use = "virtual CPUs may run on the old translations, and tables are freed, only after finish()"]
#[derive(Debug)]
pub struct GuestPending(FlushTicket<'static, KernelPlatform, MAX_CPUS, FrameChain>);

impl GuestPending {
    /// A slot of `guest` was removed, or is to be logged, and `tables` are taken out, under a lock that is still held.
    pub(in crate::mm) fn submit(guest: &GuestSpace<MAX_CPUS>, tables: FrameChain) -> Self {
        Self(SHOOTDOWN.submit_guest_flush(guest).hold(tables))
    }

    /// Nested tables followed what a space has lost, under a lock that is still held. There is always one, but for deliberate mistakes.
    pub(in crate::mm) fn submit_narrowed(guest: &GuestSpace<MAX_CPUS>) -> Option<Self> {
        #[cfg(feature = "breaks")]
        if super::breaks::keeps_guests() {
            return None;
        }
        Some(Self::submit(guest, FrameChain::new()))
    }

    /// The same for the right to write that the log takes away.
    pub(in crate::mm) fn submit_cleaned(guest: &GuestSpace<MAX_CPUS>) -> Option<Self> {
        #[cfg(feature = "breaks")]
        if super::breaks::keeps_writers() {
            return None;
        }
        Some(Self::submit(guest, FrameChain::new()))
    }

    /// Waits until no virtual CPU runs on what was there before; then frees the tables (I4).
    pub(in crate::mm) fn finish(self) {
        let tables = self.0.wait();
        if !tables.is_empty() {
            frames::free_chain(tables);
        }
    }
}
