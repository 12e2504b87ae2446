//! The responder's half of a flush.

use crate::call::{Kind, Place};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{Attention, FlushRequest, FreedTables, SpaceId, TlbGen};
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

/// Who does a flush, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// On behalf of this CPU's own request.
    Initiator,
    /// On behalf of another CPU's.
    Responder,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Serves one flush request of this kind. Interrupts are off.
    ///
    /// # Safety
    /// 1. The request names this CPU, which has not acknowledged it.
    pub(crate) unsafe fn serve_flush(&self, me: Here<'_, N>, place: Place, kind: Kind) {
        // SAFETY: duty 1.
        let request = unsafe { self.slot_at(place).contents() };
        let flush = if kind.is_indirect() {
            me.counters.shared_lines_read.add(2);
            // SAFETY: written before the slot was published and not again before we acknowledge (I6).
            unsafe {
                self.state(place.initiator()).indirect[place.slot()]
                    .0
                    .read()
            }
        } else {
            me.counters.shared_lines_read.add(1);
            // SAFETY: flush requests carry a FlushRequest.
            unsafe { request.payload.get::<FlushRequest>() }
        };
        if kind.is_ack_first() {
            // I5: nothing on this CPU touches user memory before the flush below: interrupts are off, and
            // NMI-like contexts ask `user_access_ok`.
            me.tlb.set_owes_flush(true);
            me.counters.early_acks.add(1);
            self.acknowledge(me, place);
            self.flush_here(me.cpu, &flush, Role::Responder);
            me.tlb.set_owes_flush(false);
        } else {
            self.flush_here(me.cpu, &flush, Role::Responder);
            self.acknowledge(me, place);
        }
    }

    /// Notes the newest change of the loaded space that any of those who wait asks for by its inbox: one full flush serves all of
    /// them. Interrupts are off; [`forget_newest`](Self::forget_newest) follows when they have been looked at.
    pub(crate) fn note_newest(&self, me: Here<'_, N>) {
        let mut newest = me.tlb.newest();
        for initiator in me.waiting.iter_from(me.cpu) {
            let slots = &self.state(initiator).slots;
            for index in slots[0].others().with_first() {
                let slot = &slots[index];
                let kind = slot.kind_for(me.cpu);
                if !kind.is_some_and(|kind| kind.is_flush() && !kind.is_indirect()) {
                    continue;
                }
                // SAFETY: 1. just seen, and this CPU does nothing meanwhile.
                let request = unsafe { slot.contents() };
                // SAFETY: flush requests carry a FlushRequest.
                let flush = unsafe { request.payload.get::<FlushRequest>() };
                if flush.space == me.tlb.loaded() && flush.space != SpaceId::KERNEL {
                    newest = newest.max(flush.generation);
                }
            }
        }
        me.tlb.set_newest(newest);
    }

    /// The flushes that [`note_newest`](Self::note_newest) found have been served.
    pub(crate) fn forget_newest(&self, me: Here<'_, N>) {
        me.tlb.set_newest(TlbGen::from_raw(0));
    }

    /// Drops on this CPU what `request` names, as far as this CPU may still hold it. Interrupts are off.
    ///
    /// A partial flush is enough only when this CPU has seen every generation before this one; after a gap
    /// it could hide a change that another request, still on its way, is about. Linux asks also that the
    /// request be the space's newest, to merge several partial flushes into one full one; that costs every
    /// responder a line of the space, so it is not done here: the requests that follow are cheap to
    /// serve, and after a full flush they are covered.
    pub(crate) fn flush_here(&self, me: CpuId, request: &FlushRequest, role: Role) {
        match self.has_private_loaded(self.state(me)) {
            false => self.flush_root::<false>(me, request, role),
            true => self.flush_private_root(me, request, role),
        }
    }

    /// Out of the way of flushes without windows.
    #[cold]
    #[inline(never)]
    fn flush_private_root(&self, me: CpuId, request: &FlushRequest, role: Role) {
        self.flush_root::<true>(me, request, role);
    }

    /// As [`flush_here`](Self::flush_here), without `WINDOWS` where no private root is loaded.
    fn flush_root<const WINDOWS: bool>(&self, me: CpuId, request: &FlushRequest, role: Role) {
        let Some(is_partial) = self.decide(me, request) else {
            return;
        };
        let state = self.state(me);
        let counters = &state.counters;
        let before = state.activity.begins(Entry::FLUSH);
        let space = request.space;
        self.platform
            .on_trace(TraceEvent::FlushStarted { cpu: me, space });
        match is_partial {
            true => counters
                .pages_flushed
                .add(request.ranges.ranges().page_count() as u64),
            false => counters.full_flushes.add(1),
        }
        self.drop_requested::<WINDOWS>(me, request, is_partial);
        if space != SpaceId::KERNEL {
            // I3: the generation came with the request, the flush is done, now it may be recorded. What was dropped whole serves
            // all that were there before.
            state.tlb.record(match is_partial {
                true => request.generation,
                false => request.generation.max(state.tlb.newest()),
            });
        }
        state.activity.begins(before);
        match role {
            Role::Initiator => counters.local_flushes.add(1),
            Role::Responder => counters.remote_flushes.add(1),
        }
        self.platform
            .on_trace(TraceEvent::FlushFinished { cpu: me, space });
    }

    /// Whether this CPU may drop page by page; `None` if it has nothing to drop.
    #[inline]
    fn decide(&self, me: CpuId, request: &FlushRequest) -> Option<bool> {
        let state = self.state(me);
        let counters = &state.counters;
        if request.space == SpaceId::KERNEL {
            return Some(!request.ranges.ranges().is_whole());
        }
        if state.tlb.loaded() != request.space {
            counters.flushes_stray.add(1);
            return None;
        }
        if request.freed_tables() == FreedTables::Yes && state.lazy.get() == Attention::Lazy {
            // Nothing here uses the space: instead of flushing now and again, let go of it.
            self.detach(me);
            return None;
        }
        let local = state.tlb.generation();
        if request.generation <= local {
            counters.flushes_covered.add(1);
            return None;
        }
        Some(request.generation.follows(local) && !request.ranges.ranges().is_whole())
    }

    /// Drops what `request` names, page by page or as a whole.
    #[inline]
    fn drop_requested<const WINDOWS: bool>(
        &self,
        me: CpuId,
        request: &FlushRequest,
        is_partial: bool,
    ) {
        let (state, freed) = (self.state(me), request.freed_tables());
        if !is_partial {
            return match request.space == SpaceId::KERNEL {
                true => self.platform.local_flush(LocalFlush::All),
                false => self.drop_loaded::<WINDOWS>(state),
            };
        }
        for range in request.ranges() {
            if WINDOWS && freed == FreedTables::Yes && request.space != SpaceId::KERNEL {
                self.copy_top(state, range);
            }
            self.drop_range(state, range, freed);
        }
        if request.space == SpaceId::KERNEL
            && (freed == FreedTables::Yes || !P::KERNEL_PAGES_ARE_GLOBAL)
        {
            // Other tags may still have entries of tables that were freed, or the pages themselves.
            state.tlb.void_others();
        }
    }
}
