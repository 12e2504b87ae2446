//! [`GuestPending`]: the flush of a virtual machine under way.

use super::InFlight;
use crate::cpus::Cpus;
use crate::mm::frames::{self, FrameChain};
use crate::platform::{KernelPlatform, SHOOTDOWN};
use shootdown::{FlushRange, FlushTicket, FreedTables, guest::GuestSpace};

/// A submitted flush of a guest, and the nested tables that are free after it. Dropping it waits, and loses them.
#[must_use = "virtual CPUs may run on the old translations, and tables are freed, only after finish()"]
#[derive(Debug)]
pub struct GuestPending {
    // Dropped first, which waits.
    ticket: FlushTicket<'static, KernelPlatform, FrameChain>,
    in_flight: InFlight,
}

impl GuestPending {
    /// A slot of `guest` was removed, or is to be logged, and `tables` were taken out; `in_flight` are its flushes, among which this was noted before.
    pub(in crate::mm) fn submit(
        guest: &GuestSpace<Cpus>,
        in_flight: &InFlight,
        tables: FrameChain,
    ) -> Self {
        Self {
            ticket: SHOOTDOWN
                .submit_flush(guest, FlushRange::WHOLE, FreedTables::No)
                .hold(tables),
            in_flight: in_flight.clone(),
        }
    }

    /// Nested tables have followed what a space has lost. There is always one, but for deliberate mistakes.
    pub(in crate::mm) fn submit_narrowed(
        guest: &GuestSpace<Cpus>,
        in_flight: &InFlight,
    ) -> Option<Self> {
        #[cfg(feature = "breaks")]
        if super::breaks::keeps_guests() {
            return None;
        }
        Some(Self::submit(guest, in_flight, FrameChain::new()))
    }

    /// The same for the right to write that the log takes away.
    pub(in crate::mm) fn submit_cleaned(
        guest: &GuestSpace<Cpus>,
        in_flight: &InFlight,
    ) -> Option<Self> {
        #[cfg(feature = "breaks")]
        if super::breaks::keeps_writers() {
            return None;
        }
        Some(Self::submit(guest, in_flight, FrameChain::new()))
    }

    /// Waits until no virtual CPU runs on what was there before; then frees the tables (I4).
    pub(in crate::mm) fn finish(self) {
        let tables = self.ticket.wait();
        drop(self.in_flight);
        if !tables.is_empty() {
            frames::free_chain(tables);
        }
    }
}
