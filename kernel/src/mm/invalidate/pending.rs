//! Submitting a [`Gather`], and [`Pending`]: the flush under way with what it will free.

use super::gather::Gather;
use crate::mm::frames::{self, FrameChain};
use crate::mm::space::{Inner, MemorySpace};
use crate::platform::KernelPlatform;
use crate::platform::{MAX_CPUS, SHOOTDOWN};
use shootdown::{BatchFull, BatchTicket, FlushBatch, FreedTables, PageSize};

/// One chain of data frames and one of tables.
const CHAINS: usize = 2;

type Ticket = BatchTicket<'static, KernelPlatform, MAX_CPUS, FrameChain, CHAINS>;

/// A submitted flush. Finish it after the lock of the address space is released.
#[must_use = "translations are gone and frames are freed only after finish()"]
#[derive(Debug)]
pub struct Pending<'a>(State<'a>);

#[derive(Debug)]
enum State<'a> {
    Nothing,
    Submitted(Ticket),
    /// Only a deliberate break leaves the flush for later.
    #[cfg_attr(
        not(feature = "breaks"),
        expect(dead_code, reason = "made by mm::invalidate::breaks")
    )]
    Late(&'a MemorySpace, Gather),
}

impl MemorySpace {
    /// Submits the flush for what was gathered. `inner` proves that the lock under which the entries
    /// were changed is still held (I1).
    pub(in crate::mm) fn submit(&self, inner: &mut Inner, gather: Gather) -> Pending<'_> {
        let _ = inner;
        if gather.is_empty() {
            return Pending(State::Nothing);
        }
        #[cfg(feature = "breaks")]
        let gather = match super::breaks::apply(self, gather) {
            super::breaks::Rest::Flush(gather) => gather,
            super::breaks::Rest::FlushLater(gather) => return Pending(State::Late(self, gather)),
            super::breaks::Rest::Nothing => return Pending(State::Nothing),
        };
        Pending(State::Submitted(submit(self, gather)))
    }
}

impl Pending<'_> {
    /// Waits until no CPU can translate to the gathered frames (I5) nor walk the gathered tables
    /// (I4), then frees them.
    pub fn finish(self) {
        let ticket = match self.0 {
            State::Nothing => return,
            State::Submitted(ticket) => ticket,
            State::Late(space, gather) => submit(space, gather),
        };
        for chain in ticket.wait() {
            frames::free_chain(chain);
        }
    }
}

fn submit(space: &MemorySpace, gather: Gather) -> Ticket {
    let mut batch = FlushBatch::new();
    let range = gather.range();
    batch.range(range);
    if gather.freed_tables() == FreedTables::Yes {
        accepted(batch.table(range.start(), PageSize::SIZE_2M, gather.tables));
    }
    if !gather.frames.is_empty() {
        accepted(batch.page(range.start(), PageSize::SIZE_4K, gather.frames));
    }
    SHOOTDOWN.submit_batch(&space.engine, batch)
}

/// A batch holds [`CHAINS`] chains and gets no more.
fn accepted(added: Result<(), BatchFull<FrameChain>>) {
    assert!(added.is_ok(), "a flush batch of {CHAINS} chains is full");
}
