//! The initiator's half of a flush.
//!
//! Order (I1): the host has changed its page tables; bump the generation; full barrier; read the set of CPUs;
//! send; flush here while they work; wait.

use crate::call::{FreeSlot, Kind, Payload, Request, WaitsFor};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::PreemptGuard;
use crate::mask::CpuMask;
use crate::platform::{LocalFlush, Platform};
use crate::policy::Policy;
use crate::sync::{Ordering, fence};
use crate::tlb::ranges::RangeWords;
use crate::tlb::respond::Role;
use crate::tlb::secondary::Notice;
use crate::tlb::ticket::DueHere;
use crate::tlb::{
    AddressSpace, FlushBatch, FlushRanges, FlushRequest, FlushScope, FlushTicket, FreedTables,
    Reclaimed, TlbGen,
};

impl<P: Platform> Shootdown<P> {
    /// Makes every CPU forget `ranges` of `scope`, here and elsewhere, and waits for it. The page tables were
    /// changed before. Interrupts and preemption in any state; spins, serving this CPU's flushes. It runs no functions, so locks may
    /// be held; one that others spin for with interrupts off only if they [poll](Self::poll), otherwise use
    /// [`submit_flush`](Self::submit_flush) and wait after unlocking.
    ///
    /// Without ranges and freed tables there is nothing to flush. The kernel's part may be flushed before any CPU is online, also on a CPU
    /// without [memory](Self::attach): it is local there. What only widens a guest's rights needs no flush: a processor that finds too few in its cache walks
    /// again, or the guest exits and finds them there.
    ///
    /// # Panics
    /// When the space or guest is another engine's. For a guest, when this CPU is in guest mode (inside [`GuestSpace::run`](crate::guest::GuestSpace::run)) or has no
    /// [memory](Self::attach).
    #[inline]
    #[track_caller]
    pub fn flush<'s>(
        &self,
        scope: impl Into<FlushScope<'s, P::Cpus>>,
        ranges: impl Into<FlushRanges>,
        freed: FreedTables,
    ) {
        self.submit_flush(scope, ranges, freed).wait();
    }

    /// Starts what [`flush`](Self::flush) does and returns a ticket for the rest. Does not wait for other CPUs
    /// (it may wait for a request slot of this one, serving its flushes).
    ///
    /// Call it after changing the page tables and before releasing the lock that protects them.
    ///
    /// # Panics
    /// As there.
    #[inline]
    #[track_caller]
    pub fn submit_flush<'s>(
        &self,
        scope: impl Into<FlushScope<'s, P::Cpus>>,
        ranges: impl Into<FlushRanges>,
        freed: FreedTables,
    ) -> FlushTicket<'_, P> {
        let (scope, mut ranges) = (scope.into(), ranges.into());
        self.check_scope(scope);
        if ranges.is_empty() {
            match freed {
                FreedTables::No => return FlushTicket::done(self),
                // Tables without a range: in doubt, everything (I10).
                FreedTables::Yes => ranges = FlushRanges::WHOLE,
            }
        }
        let request = match scope {
            FlushScope::Space(space) if P::CONFIG.has_reach && space.tracking().counts() => {
                self.count_tracked(space, ranges, freed)
            }
            _ => self.count_change(scope, ranges.requested(freed)),
        };
        let losses = self.losses(|cpu| self.may_use(cpu, scope));
        let notice = self.begin_notice(scope, &request, Notice::nothing::<P>());
        let ticket = match scope {
            FlushScope::Space(space) => self.begin_flush(request, Some(space), None),
            FlushScope::Kernel => self.begin_flush(request, None, None),
            FlushScope::Guest(guest) => self.submit_guest_flush(guest),
        };
        ticket.with_notice(notice, losses)
    }

    /// The tables of `scope` have been changed: counts that, and issues the barrier of I1.
    #[inline(always)]
    pub(super) fn count_change(
        &self,
        scope: FlushScope<'_, P::Cpus>,
        ranges: RangeWords,
    ) -> FlushRequest {
        let generation = match scope {
            FlushScope::Space(space) => space.bump(),
            FlushScope::Kernel => TlbGen::from_raw(self.count_flush()),
            FlushScope::Guest(guest) => guest.bump(),
        };
        // ORDERING: change and bump / read CPU set, against set CPU bit / read generation in `join` (I1, I2); read marks, against store mark / read generation in
        // `GuestSpace::run`; for the kernel's part read ready, against set ready / flush in `online`.
        fence(Ordering::SeqCst);
        FlushRequest {
            space: scope.id(),
            generation,
            ranges,
        }
    }

    /// Whether a lost CPU may use translations of `scope`.
    #[cold]
    fn may_use(&self, cpu: CpuId, scope: FlushScope<'_, P::Cpus>) -> bool {
        match scope {
            // ORDERING: Acquire: one that has left has walked for the last time; pairs with `leave`.
            FlushScope::Space(space) => space.cpu_set().contains(cpu, Ordering::Acquire),
            FlushScope::Kernel => true,
            FlushScope::Guest(_) => self.state(cpu).lazy.guest() == scope.id(),
        }
    }

    /// One shootdown for everything in `batch`. Its frames and tables come back from the ticket's wait, and
    /// nowhere else (I4, I5). Call it as [`submit_flush`](Self::submit_flush).
    ///
    /// # Panics
    /// As there, and when the batch was made for another scope.
    #[inline]
    #[track_caller]
    pub fn submit_batch<'s, T, const CAP: usize>(
        &self,
        scope: impl Into<FlushScope<'s, P::Cpus>>,
        batch: FlushBatch<T, CAP>,
    ) -> FlushTicket<'_, P, Reclaimed<T, CAP>> {
        let scope = scope.into();
        batch.check_owner(scope.id());
        let flush = self.submit_flush(scope, batch.ranges(), batch.freed_tables());
        flush.hold(batch.reclaim())
    }

    /// Checks that a space or guest is this engine's.
    #[inline]
    #[track_caller]
    pub(super) fn check_scope(&self, scope: FlushScope<'_, P::Cpus>) {
        if !matches!(scope, FlushScope::Kernel) {
            self.check_owner(scope.id());
        }
    }

    /// Publishes the request, which is about `space`, the many spaces of `holders`, or the kernel's part, to the CPUs that it has to reach, and
    /// flushes here unless the policy puts that after the wait. Without others, and where the platform takes them all, it publishes nothing.
    pub(super) fn begin_flush(
        &self,
        request: FlushRequest,
        space: Option<&AddressSpace<P::Cpus>>,
        holders: Option<&CpuMask<P::Cpus>>,
    ) -> FlushTicket<'_, P> {
        let policy = self.policy();
        let is_pinned = !policy.is_concurrent() || !policy.waits_preemptibly();
        let (mut preempt, mut wait) = (None, None);
        let mut asks_platform = self.platform.flushes_remotely();
        loop {
            let irq = self.irq_guard();
            let Some(here) = self.here_if_attached(&irq) else {
                return self.flush_early();
            };
            if request.must_reach_all() {
                self.forbid_in_walk(here);
            }
            // The platform is asked in the first turn only: after a wait for a slot all targets are interrupted.
            let asks = core::mem::replace(&mut asks_platform, false);
            let is_everywhere =
                asks && space.is_some_and(|space| self.flush_everywhere(here, &request, space));
            if is_everywhere && !space.is_some_and(|space| self.may_be_walked(&request, space)) {
                return FlushTicket::done(self);
            }
            self.find_targets(here, &request, space, holders);
            if is_everywhere {
                self.keep_walkers(here);
            }
            let is_flushed = is_everywhere || asks && self.take_targets(here, &request, space);
            if here.targets.is_empty() {
                if !is_flushed {
                    self.flush_here(here, &request, Role::Initiator);
                }
                return FlushTicket::done(self);
            }
            if is_pinned && preempt.is_none() {
                preempt = Some(PreemptGuard::new(&self.platform));
            }
            if let Some(slot) = self.free_slot_of(irq, here, WaitsFor::Flush) {
                if slot.departure.is_some() {
                    // From here on nobody goes offline.
                    self.find_targets(here, &request, space, holders);
                    if is_everywhere {
                        self.keep_walkers(here);
                    }
                }
                return self.publish_flush(&slot, request, policy, preempt);
            }
            // The next turn may be on another CPU.
            self.wait_a_turn(WaitsFor::Flush, wait.get_or_insert_default());
        }
    }

    /// A flush on a CPU without memory. While no CPU is online, none but this one has cached anything that concerns it: one that comes online
    /// drops everything. Interrupts are off.
    #[cold]
    fn flush_early(&self) -> FlushTicket<'_, P> {
        if !self.ready_cpus().is_empty() {
            // Panics.
            self.state(self.platform.current_cpu());
        }
        self.drop_local(LocalFlush::All);
        FlushTicket::done(self)
    }

    fn publish_flush<'a>(
        &'a self,
        slot: &FreeSlot<'_, P>,
        request: FlushRequest,
        policy: Policy,
        preempt: Option<PreemptGuard<'a, P>>,
    ) -> FlushTicket<'a, P> {
        let here = slot.here;
        let mut kind = Kind::FLUSH;
        if policy.acknowledges_early() && request.allows_early_ack() {
            kind = kind.with(Kind::ACK_FIRST);
        }
        let mut payload = Payload::EMPTY;
        if policy.is_inline() {
            payload = Payload::of(request);
        } else {
            kind = kind.with(Kind::INDIRECT);
            let beside = &here.beside[slot.index].0.flush;
            // SAFETY: the slot is free and stays ours (`FreeSlot`), so no target reads its description (I6).
            unsafe { beside.write(request) };
        }
        let published = self.publish(slot, kind, Request::data(payload), None);
        let is_concurrent = policy.is_concurrent();
        let due_here = preempt.map(|preempt| DueHere {
            engine: self,
            flush: (!is_concurrent).then_some(request),
            _preempt: preempt,
        });
        let ticket = FlushTicket::new(self, Some(published), due_here);
        if is_concurrent {
            self.flush_here(here, &request, Role::Initiator);
            match self.is_done(published) {
                true => here.counters.flushes_unwaited.add(1),
                false => here.counters.flushes_overlapped.add(1),
            }
        }
        ticket
    }
}
