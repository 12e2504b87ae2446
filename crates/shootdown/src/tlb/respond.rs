//! What a flush does on a CPU, its initiator's own too; and the responder's acknowledgement.

use crate::call::{Found, Kind};
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::memory::Here;
use crate::platform::{LocalFlush, Platform};
use crate::sync::{Ordering, fence};
use crate::tlb::{
    Attention, Changes, FlushRange, FlushRequest, FreedTables, PageSize, Seen, SpaceId,
};
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

/// Who does a flush, for the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
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

impl<P: Platform> Shootdown<P> {
    /// Serves a flush request. Interrupts are off.
    ///
    /// # Safety
    /// 1. The request names this CPU, which has not acknowledged it.
    pub(crate) unsafe fn serve_flush(&self, me: Here<'_, P>, found: Found) {
        // SAFETY: duty 1.
        let flush = unsafe { self.read_flush(found) };
        let early = me.early_acks.get();
        if found.kind.has(Kind::ACK_FIRST) && early < MOST_EARLY_ACKS {
            // I5: nothing on this CPU touches user memory before the flush: interrupts are off, functions wait for it, and
            // NMI-like contexts ask `UserMemory::access_ok`.
            me.early_acks.set(early + 1);
            // Before the acknowledgement: it panics at a mistake of the host's.
            let is_due = self.check_due(me, &flush);
            me.tlb.owes_flush.set(true);
            // Whoever asked for the flush gives frames away that this CPU uses until it is done.
            no_unwind("a responder unwound that owes a flush", || {
                self.acknowledge(me, found);
                if is_due {
                    self.flush_change(me, &flush, Role::Responder);
                }
            });
            me.tlb.owes_flush.set(false);
            me.counters.early_acks.add(1);
        } else {
            self.flush_here(me, &flush, Role::Responder);
            self.acknowledge(me, found);
        }
        // Behind the acknowledgement, for which the stores before it have to be done: the initiator waits for it.
        let beside = u64::from(found.kind.has(Kind::INDIRECT));
        me.counters.shared_lines_read.add(1 + beside);
    }

    /// What a flush request asks for.
    ///
    /// # Safety
    /// 1. As [`serve_flush`](Self::serve_flush).
    #[inline(always)]
    pub(super) unsafe fn read_flush(&self, found: Found) -> FlushRequest {
        // SAFETY: duty 1.
        let request = unsafe { self.slot_of(found).contents() };
        if found.kind.has(Kind::INDIRECT) {
            let beside = &self.state(found.initiator).beside[found.slot].0.flush;
            // SAFETY: written before the slot was published and not again before we acknowledge (I6).
            unsafe { beside.read() }
        } else {
            // SAFETY: flush requests carry a FlushRequest.
            unsafe { request.payload.get::<FlushRequest>() }
        }
    }

    /// Drops on this CPU what `request` names, as far as this CPU may still hold it. Interrupts are off.
    pub(super) fn flush_here(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        if request.space == SpaceId::KERNEL {
            let extent = match request.ranges.is_whole() {
                true => Extent::All,
                false => Extent::Pages(Changes::NONE),
            };
            self.carry_out(me, request, None, extent, role);
            if P::CONFIG.has_quiet {
                me.known.record(request.generation.as_u64());
            }
            return;
        }
        if self.check_due(me, request) {
            self.flush_change(me, request, role);
        }
    }

    /// Whether `request` is about the user space that is loaded here, and this CPU has not flushed since. Counts those that are not.
    #[inline]
    fn check_due(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        if P::CONFIG.has_reclaim && request.space == SpaceId::LOADED {
            return self.has_space_loaded(me, request);
        }
        if me.tlb.loaded() != request.space {
            if P::CONFIG.has_reach && request.space.is_region() {
                return self.is_region_due(me, request);
            }
            self.serve_stray(me, request);
            return false;
        }
        let is_due = request.generation > me.tlb.generation();
        if !is_due {
            me.counters.flushes_covered.add(1);
        }
        is_due
    }

    /// Whether a space is loaded here that this CPU may use before it looks what it has missed.
    #[cold]
    fn has_space_loaded(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        let is_due = me.tlb.loaded().is_space() && me.lazy.get() != Attention::Lazy;
        if !is_due {
            self.serve_stray(me, request);
        }
        is_due
    }

    /// Drops all of the space that is loaded here. No generation came with the request: the next request finds a gap (I3).
    #[cold]
    fn flush_loaded(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        let request = FlushRequest {
            space: me.tlb.loaded(),
            generation: me.tlb.generation(),
            ..*request
        };
        self.carry_out(me, &request, Some(&me.tlb.seen), Extent::All, role);
    }

    /// A flush of a space that is not loaded here, or a request that is none.
    #[cold]
    pub(super) fn serve_stray(&self, me: Here<'_, P>, request: &FlushRequest) {
        assert!(
            !me.tlb.host().is_being_left(),
            "{} polls, or flushes, between begin_switch and end_switch: keep interrupts off there, and take no lock that polls",
            me.cpu
        );
        match request.space {
            // ORDERING: what this CPU did before, against what it does from here on: the point that `barrier` promises.
            SpaceId::BARRIER => fence(Ordering::SeqCst),
            SpaceId::SERIALISE => self.synchronise(),
            SpaceId::ASK => {
                // SAFETY: its initiator lends it until we acknowledge.
                let asked = unsafe { &*request.lent() };
                // SAFETY: 1. as above.
                unsafe { self.run_asked(me, asked) };
            }
            _ => {}
        }
        me.counters.flushes_stray.add(1);
    }

    /// A partial flush is enough when this CPU has dropped every change before. Where one is missing, whose own request is on its way, the bits of those that were dropped
    /// before it are noted. (With more than one, one whole flush for all is quicker.)
    ///
    /// Linux asks also that the request be the space's newest, to merge several partial flushes into one full one; that costs every
    /// responder a line of the space, so it is not done here: the requests that follow are cheap to
    /// serve, and after a full flush they are covered.
    #[inline]
    fn flush_change(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        if P::CONFIG.has_reclaim && request.space == SpaceId::LOADED {
            return self.flush_loaded(me, request, role);
        }
        if P::CONFIG.has_reach
            && request.space.is_region() | self.has_private_loaded(me.state)
            && self.flush_tracked(me, request, role)
        {
            return;
        }
        self.flush_counted(me, request, &me.tlb.seen, role);
    }

    /// Drops everything of the loaded space, or lets go of it.
    #[cold]
    pub(super) fn flush_all(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: Option<&Seen>,
        role: Role,
    ) {
        match request.freed_tables() == FreedTables::Yes && me.lazy.get() == Attention::Lazy {
            true => self.detach(me),
            false => self.carry_out(me, request, seen, Extent::All, role),
        }
    }

    /// The same by the count that the request's generation is of.
    #[inline]
    pub(super) fn flush_counted(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: &Seen,
        role: Role,
    ) {
        let changes = seen.change(request.generation);
        if request.freed_tables() == FreedTables::Yes && me.lazy.get() == Attention::Lazy {
            // Nothing here uses the space: instead of flushing now and again, let go of it.
            return self.detach(me);
        }
        if !seen.apart().and(changes).follow() {
            return self.flush_after_gap(me, request, seen, changes, role);
        }
        let extent = match self.may_go_by_page(me, request) {
            true => Extent::Pages(changes),
            false => Extent::All,
        };
        self.carry_out(me, request, Some(seen), extent, role);
    }

    #[inline]
    fn may_go_by_page(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        !request.ranges.is_whole() && self.tag_due(me.state, request.space).is_none()
    }

    /// It goes page by page only if that is right whatever the change that is missing did to the tables. It may have put another table in the place of one that is
    /// cached here: cached tables go, too. A private root would keep the top entries of before, and what was one large page may be cached as small ones.
    #[cold]
    #[inline(never)]
    fn flush_after_gap(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: &Seen,
        changes: Changes,
        role: Role,
    ) {
        let is_small = |range: FlushRange| range.page_size() == PageSize::SIZE_4K;
        let keeps_top = self.has_private_loaded(me.state) && self.own_root(me.state).is_none();
        let overtakes = seen.apart().and(changes).lack_one_at_most()
            && self.policy().flushes_out_of_order()
            && !keeps_top
            && request.ranges().all(is_small)
            && self.may_go_by_page(me, request);
        let mut with_tables = *request;
        with_tables.ranges = request.ranges.with_freed();
        match overtakes {
            true => self.carry_out(me, &with_tables, Some(seen), Extent::Pages(changes), role),
            false => self.carry_out(me, request, Some(seen), Extent::All, role),
        }
    }

    #[inline]
    fn carry_out(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: Option<&Seen>,
        extent: Extent,
        role: Role,
    ) {
        match self.has_private_loaded(me.state) {
            false => self.flush_root::<false>(me, request, seen, extent, role),
            true => self.flush_private_root(me, request, seen, extent, role),
        }
    }

    /// Out of the way of flushes without windows.
    #[cold]
    #[inline(never)]
    fn flush_private_root(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: Option<&Seen>,
        extent: Extent,
        role: Role,
    ) {
        self.flush_root::<true>(me, request, seen, extent, role);
    }

    /// As [`carry_out`](Self::carry_out), without `WINDOWS` where no private root is loaded. `seen` is told of it.
    fn flush_root<const WINDOWS: bool>(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        seen: Option<&Seen>,
        extent: Extent,
        role: Role,
    ) {
        let (state, cpu, counters) = (me.state, me.cpu, &me.counters);
        let (space, freed) = (request.space, request.freed_tables());
        let before = me.activity.begins(Entry::FLUSH);
        self.platform
            .on_trace(TraceEvent::FlushStarted { cpu, space });
        match extent {
            Extent::Pages(changes) => {
                let pages = request.ranges.page_count();
                counters.pages_flushed.add(pages as u64);
                for range in request.ranges() {
                    if WINDOWS && freed == FreedTables::Yes && space != SpaceId::KERNEL {
                        self.copy_top(state, range);
                    }
                    self.drop_range(state, range, freed);
                }
                if space != SpaceId::KERNEL {
                    // I3: the request named the change, the flush is done, now it may be recorded.
                    seen.inspect(|seen| seen.record_changes(changes));
                } else if freed == FreedTables::Yes || !P::KERNEL_PAGES_ARE_GLOBAL {
                    // Other tags may still have entries of tables that were freed, or the pages themselves.
                    state.tlb.others_void.set(true);
                }
            }
            Extent::All => {
                counters.full_flushes.add(1);
                if space == SpaceId::KERNEL {
                    self.drop_local(LocalFlush::All);
                } else {
                    match self.tag_due(state, space) {
                        Some(asid) => self.load_under(me, asid),
                        None => self.drop_loaded::<WINDOWS>(state),
                    }
                    // I3: the generation came with the request, the flush is done, now it may be recorded.
                    seen.inspect(|seen| seen.record_whole(request.generation));
                }
            }
        }
        me.activity.begins(before);
        match role {
            Role::Initiator => counters.local_flushes.add(1),
            Role::Responder => counters.remote_flushes.add(1),
        }
        self.platform
            .on_trace(TraceEvent::FlushFinished { cpu, space });
    }
}
