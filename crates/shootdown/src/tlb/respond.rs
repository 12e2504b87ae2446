//! The responder's half of a flush.

use crate::call::{Kind, Place};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{Attention, FlushRange, FreedTables, PageSize, SpaceId, TlbGen};
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

/// One flush as it travels to its targets. Forty bytes: it fits into the request's own line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushRequest {
    space: SpaceId,
    generation: TlbGen,
    start: usize,
    end: usize,
    page_size: PageSize,
    freed_tables: FreedTables,
}

/// Whose translations a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlushScope {
    /// One user space, at the generation that the change made.
    Space(SpaceId, TlbGen),
    /// The kernel's part, which every CPU has loaded always.
    Kernel,
}

impl FlushRequest {
    /// Names nothing; fills unused memory.
    pub(crate) const NONE: Self = Self {
        space: SpaceId::KERNEL,
        generation: TlbGen::from_raw(0),
        start: 0,
        end: 0,
        page_size: PageSize::SIZE_4K,
        freed_tables: FreedTables::No,
    };

    pub(crate) const fn new(
        scope: FlushScope,
        range: FlushRange,
        freed_tables: FreedTables,
    ) -> Self {
        let (space, generation) = match scope {
            FlushScope::Space(space, generation) => (space, generation),
            FlushScope::Kernel => (SpaceId::KERNEL, TlbGen::from_raw(0)),
        };
        Self {
            space,
            generation,
            start: range.start(),
            end: range.end(),
            page_size: range.page_size(),
            freed_tables,
        }
    }

    /// The user space, or `None` for the kernel's part of every space.
    pub fn space(&self) -> Option<SpaceId> {
        (self.space != SpaceId::KERNEL).then_some(self.space)
    }

    /// The generation that the change made; zero for kernel ranges.
    pub fn generation(&self) -> TlbGen {
        self.generation
    }

    /// What to drop.
    pub fn range(&self) -> FlushRange {
        FlushRange::new(self.start, self.end, self.page_size)
    }

    /// Whether page-table pages were unlinked.
    pub fn freed_tables(&self) -> FreedTables {
        self.freed_tables
    }

    /// Whether a target may acknowledge before it has flushed (I4, I5): only user leaf entries, which nothing
    /// on the target uses before its interrupt handler returns.
    pub(crate) fn allows_early_ack(&self) -> bool {
        self.space != SpaceId::KERNEL && self.freed_tables == FreedTables::No
    }
}

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
    pub(crate) unsafe fn serve_flush(&self, me: CpuId, place: Place, kind: Kind) {
        // SAFETY: duty 1.
        let request = unsafe { self.slot_at(place).contents() };
        let state = self.state(me);
        let flush = if kind.is_indirect() {
            state.counters.shared_lines_read.add(2);
            // SAFETY: written before the slot was published and not again before we acknowledge (I6).
            unsafe { self.state(place.initiator).indirect[place.index].0.read() }
        } else {
            state.counters.shared_lines_read.add(1);
            // SAFETY: flush requests carry a FlushRequest.
            unsafe { request.payload.get::<FlushRequest>() }
        };
        if kind.is_ack_first() {
            // I5: nothing on this CPU touches user memory before the flush below: interrupts are off, and
            // NMI-like contexts ask `user_access_ok`.
            state.tlb.set_owes_flush(true);
            state.counters.early_acks.add(1);
            self.acknowledge(me, place);
            self.flush_here(me, &flush, Role::Responder);
            state.tlb.set_owes_flush(false);
        } else {
            self.flush_here(me, &flush, Role::Responder);
            self.acknowledge(me, place);
        }
    }

    /// Notes the newest change of the loaded space that any of `fresh` asks for by its inbox: one full flush serves all of them.
    /// Interrupts are off; the caller forgets it when it has looked at them.
    pub(crate) fn note_newest(&self, me: CpuId, fresh: &CpuMask<N>) {
        let tlb = &self.state(me).tlb;
        let mut newest = tlb.newest();
        for initiator in fresh.iter() {
            let slots = &self.state(initiator).slots;
            for index in slots[0].others().with_first() {
                let slot = &slots[index];
                let kind = slot.kind_for(me);
                let is_plain = |kind: &Kind| {
                    kind.is_flush() && !kind.is_indirect() && !slot.is_in_ring_of(me, *kind)
                };
                if !kind.as_ref().is_some_and(is_plain) {
                    continue;
                }
                // SAFETY: 1. just seen, and this CPU does nothing meanwhile.
                let request = unsafe { slot.contents() };
                // SAFETY: flush requests carry a FlushRequest.
                let flush = unsafe { request.payload.get::<FlushRequest>() };
                if flush.space == tlb.loaded() && flush.space != SpaceId::KERNEL {
                    newest = newest.max(flush.generation);
                }
            }
        }
        tlb.set_newest(newest);
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
        let state = self.state(me);
        let counters = &state.counters;
        let range = request.range();
        let partial = if request.space == SpaceId::KERNEL {
            !range.exceeds_ceiling()
        } else {
            if state.tlb.loaded() != request.space {
                counters.flushes_stray.add(1);
                return;
            }
            if state.lazy.get() == Attention::Lazy && request.freed_tables == FreedTables::Yes {
                // Nothing here uses the space: instead of flushing now and again, let go of it.
                self.detach(me);
                return;
            }
            let local = state.tlb.generation();
            if request.generation <= local {
                counters.flushes_covered.add(1);
                return;
            }
            request.generation.follows(local) && !range.exceeds_ceiling()
        };
        let before = state.diary.begins(Entry::FLUSH);
        self.platform.on_trace(TraceEvent::FlushStarted {
            cpu: me,
            space: request.space,
        });
        if partial {
            counters.pages_flushed.add(range.page_count() as u64);
        } else {
            counters.full_flushes.add(1);
        }
        match (request.space, partial) {
            (SpaceId::KERNEL, false) => self.platform.local_flush(LocalFlush::All),
            (SpaceId::KERNEL, true) => {
                self.drop_loaded::<WINDOWS>(state, Some(range));
                // Other tags may still have entries of tables that were freed.
                state.tlb.void_others();
            }
            (_, true) => {
                if WINDOWS && request.freed_tables == FreedTables::Yes {
                    self.copy_top(state, range);
                }
                self.drop_loaded::<WINDOWS>(state, Some(range));
            }
            (_, false) => self.drop_loaded::<WINDOWS>(state, None),
        }
        if request.space != SpaceId::KERNEL {
            // I3: the generation came with the request, the flush is done, now it may be recorded. What was dropped whole serves
            // all that were there before.
            state.tlb.record(match partial {
                true => request.generation,
                false => request.generation.max(state.tlb.newest()),
            });
        }
        state.diary.begins(before);
        match role {
            Role::Initiator => counters.local_flushes.add(1),
            Role::Responder => counters.remote_flushes.add(1),
        }
        self.platform.on_trace(TraceEvent::FlushFinished {
            cpu: me,
            space: request.space,
        });
    }
}
