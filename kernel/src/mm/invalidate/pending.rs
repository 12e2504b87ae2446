//! Submitting a [`Gather`], and [`Pending`]: the flush under way with what it will free.

use super::gather::Gather;
use super::in_flight::InFlight;
use crate::mm::frames::{self, FrameChain, ShareList};
use crate::mm::space::{Inner, MemorySpace};
use crate::platform::KernelPlatform;
use crate::platform::SHOOTDOWN;
use shootdown::{
    FlushBatch, FlushTicket, FreedTables, PageSize,
    flushes::{BatchFull, Reclaimed},
};

/// What the flush is to free afterwards.
#[derive(Debug)]
enum Freed {
    /// Data or tables that nobody owns any more.
    Frames(FrameChain),
    /// Shares of frames that others may own.
    Shares(ShareList),
}

/// One chain of data frames, one of tables, and one list of shares.
const LOTS: usize = 3;

type Ticket = FlushTicket<'static, KernelPlatform, Reclaimed<Freed, LOTS>>;

/// A submitted flush. Finish it after the lock of the address space is released.
#[must_use = "translations are gone and frames are freed only after finish()"]
#[derive(Debug)]
pub struct Pending<'a>(State<'a>);

#[derive(Debug)]
enum State<'a> {
    Nothing,
    // The ticket is dropped first, which waits.
    Submitted(Ticket, InFlight),
    /// Only a deliberate break leaves the flush for later.
    #[cfg_attr(
        not(feature = "breaks"),
        expect(dead_code, reason = "made by mm::invalidate::breaks")
    )]
    Late(&'a MemorySpace, Gather<'a>),
}

impl MemorySpace {
    /// Submits the flush for what was gathered. `inner` proves that the lock under which the entries
    /// were changed is still held (I1). Waits for it here where that must be: [`Gather::note_writer`].
    pub(in crate::mm) fn submit<'a>(
        &'a self,
        inner: &mut Inner,
        gather: Gather<'a>,
    ) -> Pending<'a> {
        self.submit_in_passing(inner, gather)
    }

    /// The same while nobody has the lock, of what was gathered [so](Gather::in_passing).
    pub(in crate::mm) fn submit_in_passing<'a>(
        &'a self,
        inner: &Inner,
        mut gather: Gather<'a>,
    ) -> Pending<'a> {
        gather.add_what_is_in_flight();
        // Before whoever walks tables that are unlinked is asked to stop.
        self.publish_top(inner);
        if gather.is_empty() {
            return Pending::NOTHING;
        }
        #[cfg(feature = "breaks")]
        let mut gather = match super::breaks::apply(self, gather) {
            super::breaks::Rest::Flush(gather) => gather,
            super::breaks::Rest::FlushLater(gather) => return Pending(State::Late(self, gather)),
            super::breaks::Rest::Nothing => return Pending::NOTHING,
        };
        let must_wait = gather.lost_writers;
        let noted = gather.noted.take();
        let ticket = submit(self, gather);
        let noted = noted.unwrap_or_else(|| self.in_flight.clone());
        let pending = Pending(State::Submitted(ticket, noted));
        if must_wait {
            pending.finish();
            return Pending::NOTHING;
        }
        pending
    }

    /// The same for the right to write to a file's pages, which a sync takes away.
    pub(in crate::mm) fn submit_sync<'a>(
        &'a self,
        inner: &mut Inner,
        gather: Gather<'a>,
    ) -> Pending<'a> {
        #[cfg(feature = "breaks")]
        if super::breaks::forgets_syncs() {
            return Pending::NOTHING;
        }
        self.submit(inner, gather)
    }

    /// The same for the rights that a fork takes away.
    pub(in crate::mm) fn submit_fork<'a>(
        &'a self,
        inner: &mut Inner,
        gather: Gather<'a>,
    ) -> Pending<'a> {
        #[cfg(feature = "breaks")]
        if super::breaks::forgets_forks() {
            return Pending::NOTHING;
        }
        self.submit(inner, gather)
    }
}

impl Pending<'_> {
    /// Nothing was taken away.
    const NOTHING: Self = Self(State::Nothing);

    /// Waits until no CPU, in guest mode or not, can translate to the gathered frames (I5) nor walk the gathered tables
    /// (I4), then frees them.
    pub fn finish(self) {
        let (ticket, in_flight) = match self.0 {
            State::Nothing => return,
            State::Submitted(ticket, in_flight) => (ticket, in_flight),
            State::Late(space, gather) => {
                #[cfg(feature = "breaks")]
                super::breaks::dawdle();
                (submit(space, gather), space.in_flight.clone())
            }
        };
        let freed = ticket.wait();
        drop(in_flight);
        for freed in freed {
            frames::free_chain(match freed {
                Freed::Frames(chain) => chain,
                Freed::Shares(list) => list.release(),
            });
        }
    }
}

fn submit(space: &MemorySpace, gather: Gather<'_>) -> Ticket {
    let mut batch = FlushBatch::new(&space.engine);
    let range = gather.range();
    batch.range(range);
    if gather.freed_tables() == FreedTables::Yes {
        let tables = Freed::Frames(gather.tables);
        accepted(batch.table(range.start(), PageSize::SIZE_2M, tables));
    }
    if !gather.frames.is_empty() {
        let frames = Freed::Frames(gather.frames);
        accepted(batch.page(range.start(), PageSize::SIZE_4K, frames));
    }
    if !gather.shares.is_empty() {
        let shares = Freed::Shares(gather.shares);
        accepted(batch.page(range.start(), PageSize::SIZE_4K, shares));
    }
    SHOOTDOWN.submit_batch(&space.engine, batch)
}

/// A batch holds [`LOTS`] lots and gets no more.
fn accepted(added: Result<(), BatchFull<Freed>>) {
    assert!(added.is_ok(), "a flush batch of {LOTS} lots is full");
}
