//! OSTD's flushes, done by the engine. The script puts this file in the place of OSTD's own.
//!
//! OSTD keeps a set of CPUs for each space, the engine one of its own, which this file does not see: it flushes all CPUs, as a kernel's range.

use alloc::vec::Vec;
use core::ops::Range;

use shootdown::{FlushRange, FlushRanges, FlushScope, FlushTicket, FreedTables, PageSize};

use super::{
    PAGE_SIZE, Vaddr,
    frame::{Frame, meta::AnyFrameMeta},
};
use crate::{
    cpu::{AtomicCpuSet, PinCurrentCpu},
    smp::{IPI_SENDER, Ostd, SHOOTDOWN},
    sync::RcuDrop,
};

/// What is dropped after a flush, and after the readers of RCU that may look at it.
struct Frames(Vec<Frame<dyn AnyFrameMeta>>);

impl Drop for Frames {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            let _ = RcuDrop::new(core::mem::take(&mut self.0));
        }
    }
}

/// Gathers what has changed, and flushes it.
pub struct TlbFlusher<'a, G: PinCurrentCpu> {
    _target_cpus: &'a AtomicCpuSet,
    /// What has been issued and not dispatched.
    ranges: Option<FlushRanges>,
    frames: Frames,
    /// What has been dispatched. It waits when it is dropped.
    ticket: Option<FlushTicket<'static, Ostd, Frames>>,
    _pin_current: G,
}

impl<'a, G: PinCurrentCpu> TlbFlusher<'a, G> {
    /// One with nothing to do.
    pub fn new(target_cpus: &'a AtomicCpuSet, pin_current_guard: G) -> Self {
        Self {
            _target_cpus: target_cpus,
            ranges: None,
            frames: Frames(Vec::new()),
            ticket: None,
            _pin_current: pin_current_guard,
        }
    }

    /// Has the next dispatch flush this, too.
    pub fn issue_tlb_flush(&mut self, op: TlbFlushOp) {
        match (&mut self.ranges, op.0) {
            (Some(ranges), Some(range)) => ranges.add(range),
            (None, Some(range)) => self.ranges = Some(range.into()),
            (_, None) => self.ranges = Some(FlushRanges::WHOLE),
        }
    }

    /// The same, and keeps a frame until that is done.
    pub fn issue_tlb_flush_with(
        &mut self,
        op: TlbFlushOp,
        drop_after_flush: RcuDrop<Frame<dyn AnyFrameMeta>>,
    ) {
        self.frames.0.reserve(1);
        // SAFETY: `Frames` drops it after the grace period.
        let (frame, panic_guard) = unsafe { RcuDrop::into_inner(drop_after_flush) };
        self.frames.0.push(frame);
        panic_guard.forget();
        self.issue_tlb_flush(op);
    }

    /// Flushes what has been issued, here and elsewhere; frames may be tables, so all are taken for such.
    pub fn dispatch_tlb_flush(&mut self) {
        let Some(ranges) = self.ranges.take() else {
            return;
        };
        let frames = Frames(core::mem::take(&mut self.frames.0));
        if IPI_SENDER.get().is_none() {
            // No other CPU runs anything yet.
            crate::arch::mm::tlb_flush_all_including_global();
            return;
        }
        let ticket = SHOOTDOWN.submit_flush(FlushScope::Kernel, ranges, FreedTables::Yes);
        self.ticket = Some(ticket.hold(frames));
    }

    /// Waits until all CPUs have done what was dispatched.
    pub fn sync_tlb_flush(&mut self) {
        drop(self.ticket.take().map(FlushTicket::wait));
    }
}

/// Something to flush: a range, or everything.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TlbFlushOp(Option<FlushRange>);

impl TlbFlushOp {
    /// Does it on this CPU only.
    pub fn perform_on_current(&self) {
        match self.0 {
            Some(range) if !range.exceeds_ceiling() => {
                crate::arch::mm::tlb_flush_addr_range(&(range.start()..range.end()));
            }
            _ => crate::arch::mm::tlb_flush_all_excluding_global(),
        }
    }

    /// Everything but global translations.
    pub const fn for_all() -> Self {
        Self(None)
    }

    /// The page at an address.
    pub const fn for_single(addr: Vaddr) -> Self {
        Self(Some(FlushRange::pages(addr, 1, PageSize::SIZE_4K)))
    }

    /// Pages.
    ///
    /// # Panics
    /// For part of a page, or none.
    pub const fn for_range(range: Range<Vaddr>) -> Self {
        assert!(range.start.is_multiple_of(PAGE_SIZE) && range.end.is_multiple_of(PAGE_SIZE));
        assert!(range.start < range.end);
        Self(Some(FlushRange::new(
            range.start,
            range.end,
            PageSize::SIZE_4K,
        )))
    }
}
