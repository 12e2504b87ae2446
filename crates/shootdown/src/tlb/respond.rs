//! What a flush does on a CPU, its initiator's own too; and the responder's acknowledgement.

use crate::call::{Kind, Place};
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::{LocalFlush, Platform};
use crate::tlb::{Attention, Changes, FlushRange, FlushRequest, FreedTables, PageSize, SpaceId};
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

/// So many flushes are acknowledged before they are done until the interrupted task can go on. Those that come then wait: if their initiators went on at
/// once, again and again, this CPU would do nothing but flush.
const MOST_EARLY_ACKS: u64 = 64;

/// How much a flush drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// The pages that it names, after which these changes count as dropped here.
    Pages(Changes),
    All,
}

/// A responder serves. It must not unwind while its CPU owes a flush that it has acknowledged: whoever asked for it gives frames away that this CPU still
/// uses (I5). The caller forgets it when it has served.
pub(crate) struct Serving<'a, P: Platform>(pub(crate) Here<'a, P>);

impl<P: Platform> Drop for Serving<'_, P> {
    fn drop(&mut self) {
        assert!(
            !self.0.tlb.owes_flush.get(),
            "a responder unwound that owes a flush"
        );
    }
}

impl<P: Platform> Shootdown<P> {
    /// Serves one flush request of this kind. Interrupts are off.
    ///
    /// # Safety
    /// 1. The request names this CPU, which has not acknowledged it.
    pub(crate) unsafe fn serve_flush(&self, me: Here<'_, P>, place: Place, kind: Kind) {
        // SAFETY: duty 1.
        let flush = unsafe { self.read_flush(me, place, kind) };
        let early = me.early_acks.get();
        if !kind.is_ack_first() || early == MOST_EARLY_ACKS {
            self.flush_here(me, &flush, Role::Responder);
            return self.acknowledge(me, place);
        }
        // I5: nothing on this CPU touches user memory before the flush: interrupts are off, functions wait for it, and
        // NMI-like contexts ask `UserMemory::access_ok`.
        me.early_acks.set(early + 1);
        me.counters.early_acks.add(1);
        // Before the acknowledgement: it panics at a mistake of the host's.
        let is_due = self.check_due(me, &flush);
        me.tlb.owes_flush.set(true);
        self.acknowledge(me, place);
        if is_due {
            self.flush_change(me, &flush, Role::Responder);
        }
        me.tlb.owes_flush.set(false);
    }

    /// What a flush request of this kind asks for.
    ///
    /// # Safety
    /// 1. As [`serve_flush`](Self::serve_flush).
    #[inline(always)]
    unsafe fn read_flush(&self, me: Here<'_, P>, place: Place, kind: Kind) -> FlushRequest {
        // SAFETY: duty 1.
        let request = unsafe { self.slot_at(place).contents() };
        if kind.is_indirect() {
            me.counters.shared_lines_read.add(2);
            // SAFETY: written before the slot was published and not again before we acknowledge (I6).
            unsafe { self.state(place.initiator).indirect[place.slot].0.read() }
        } else {
            me.counters.shared_lines_read.add(1);
            // SAFETY: flush requests carry a FlushRequest.
            unsafe { request.payload.get::<FlushRequest>() }
        }
    }

    /// Drops on this CPU what `request` names, as far as this CPU may still hold it. Interrupts are off.
    pub(crate) fn flush_here(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        if request.space == SpaceId::KERNEL {
            let extent = match request.ranges.ranges().is_whole() {
                true => Extent::All,
                false => Extent::Pages(Changes::NONE),
            };
            return self.carry_out(me, request, extent, role);
        }
        if self.check_due(me, request) {
            self.flush_change(me, request, role);
        }
    }

    /// As [`is_due`](Self::is_due), and counts those that are not.
    #[inline]
    fn check_due(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        let is_due = Self::is_due(me, request);
        if !is_due {
            match me.tlb.loaded() == request.space {
                true => me.counters.flushes_covered.add(1),
                false => self.count_stray(me),
            }
        }
        is_due
    }

    /// A flush of a space that is not loaded here.
    #[cold]
    fn count_stray(&self, me: Here<'_, P>) {
        assert!(
            !me.tlb.host().is_being_left(),
            "{} polls, or flushes, between begin_switch and end_switch: keep interrupts off there, and take no lock that polls",
            me.cpu
        );
        me.counters.flushes_stray.add(1);
    }

    /// Whether `request` is about the user space that is loaded here, and this CPU has not flushed since.
    #[inline]
    fn is_due(me: Here<'_, P>, request: &FlushRequest) -> bool {
        me.tlb.loaded() == request.space && request.generation > me.tlb.generation()
    }

    /// A partial flush is enough when this CPU has dropped every change before. Where one is missing, whose own request is on its way, it is remembered that these
    /// were dropped before it. (With more than one, one whole flush for all is quicker.)
    ///
    /// Linux asks also that the request be the space's newest, to merge several partial flushes into one full one; that costs every
    /// responder a line of the space, so it is not done here: the requests that follow are cheap to
    /// serve, and after a full flush they are covered.
    #[inline]
    fn flush_change(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        let changes = me.tlb.change(request.generation);
        if request.freed_tables() == FreedTables::Yes && me.lazy.get() == Attention::Lazy {
            // Nothing here uses the space: instead of flushing now and again, let go of it.
            return self.detach(me);
        }
        let known = me.tlb.apart().and(changes);
        if !known.follow() {
            return self.flush_after_gap(me, request, changes, known, role);
        }
        let extent = match self.may_go_by_page(me, request) {
            true => Extent::Pages(changes),
            false => Extent::All,
        };
        self.carry_out(me, request, extent, role);
    }

    #[inline]
    fn may_go_by_page(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        !request.ranges.ranges().is_whole() && self.tag_due(me.state, request.space).is_none()
    }

    /// It goes page by page only if that is right whatever the change that is missing did to the tables. It may have put another table in the place of one that is
    /// cached here: cached tables go, too. A private root would keep the top entries of before, and what was one large page may be cached as small ones.
    #[cold]
    #[inline(never)]
    fn flush_after_gap(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        changes: Changes,
        known: Changes,
        role: Role,
    ) {
        let is_small = |range: FlushRange| range.page_size() == PageSize::SIZE_4K;
        let overtakes = known.lack_one_at_most()
            && self.policy().flushes_out_of_order()
            && !self.has_private_loaded(me.state)
            && request.ranges().all(is_small)
            && self.may_go_by_page(me, request);
        match overtakes {
            true => self.carry_out(me, &request.with_tables(), Extent::Pages(changes), role),
            false => self.carry_out(me, request, Extent::All, role),
        }
    }

    #[inline]
    fn carry_out(&self, me: Here<'_, P>, request: &FlushRequest, extent: Extent, role: Role) {
        match self.has_private_loaded(me.state) {
            false => self.flush_root::<false>(me, request, extent, role),
            true => self.flush_private_root(me, request, extent, role),
        }
    }

    /// Out of the way of flushes without windows.
    #[cold]
    #[inline(never)]
    fn flush_private_root(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        extent: Extent,
        role: Role,
    ) {
        self.flush_root::<true>(me, request, extent, role);
    }

    /// As [`carry_out`](Self::carry_out), without `WINDOWS` where no private root is loaded.
    fn flush_root<const WINDOWS: bool>(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        extent: Extent,
        role: Role,
    ) {
        let counters = &me.counters;
        let before = me.activity.begins(Entry::FLUSH);
        let space = request.space;
        self.platform
            .on_trace(TraceEvent::FlushStarted { cpu: me.cpu, space });
        match extent {
            Extent::Pages(_) => counters
                .pages_flushed
                .add(request.ranges.ranges().page_count() as u64),
            Extent::All => counters.full_flushes.add(1),
        }
        self.drop_requested::<WINDOWS>(me, request, extent);
        if space != SpaceId::KERNEL {
            // I3: the generation came with the request, the flush is done, now it may be recorded.
            match extent {
                Extent::Pages(changes) => me.tlb.record_changes(changes),
                Extent::All => me.tlb.record_whole(request.generation),
            }
        }
        me.activity.begins(before);
        match role {
            Role::Initiator => counters.local_flushes.add(1),
            Role::Responder => counters.remote_flushes.add(1),
        }
        self.platform
            .on_trace(TraceEvent::FlushFinished { cpu: me.cpu, space });
    }

    /// Drops what `request` names, page by page or as a whole.
    #[inline]
    fn drop_requested<const WINDOWS: bool>(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        extent: Extent,
    ) {
        let (state, freed) = (me.state, request.freed_tables());
        if extent == Extent::All {
            return match request.space == SpaceId::KERNEL {
                true => self.drop_local(LocalFlush::All),
                false => match self.tag_due(state, request.space) {
                    Some(asid) => self.load_under(me, asid),
                    None => self.drop_loaded::<WINDOWS>(state),
                },
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
            state.tlb.others_void.set(true);
        }
    }
}
