//! The initiator's half of a flush.
//!
//! Order (I1): the host has changed its page tables; bump the generation; full barrier; read the set of CPUs;
//! send; flush here while they work; wait.

use crate::call::{Kind, Payload, Request, SlotClass};
use crate::capacity::{Capacity, Cpus};
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::{Platform, RemoteFlush};
use crate::sync::{Ordering, fence};
use crate::tlb::respond::Role;
use crate::tlb::{
    AddressSpace, Attention, BatchTicket, FlushBatch, FlushRange, FlushRequest, FlushScope,
    FlushTicket, FreedTables, TlbGen,
};

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Makes every CPU forget `range` of `space`, here and elsewhere, and waits for it. The page tables were
    /// changed before. Interrupts and preemption in any state; spins, serving this CPU's inbox.
    ///
    /// Under a lock that others spin for with interrupts off, use [`submit_flush`](Self::submit_flush) and wait
    /// after unlocking.
    pub fn flush(&self, space: &AddressSpace<N>, range: FlushRange, freed: FreedTables) {
        self.submit_flush(space, range, freed).wait();
    }

    /// Starts what [`flush`](Self::flush) does and returns a ticket for the rest. Does not wait for other CPUs
    /// (it may wait for a request slot of this one, serving its inbox).
    ///
    /// Call it after changing the page tables and before releasing the lock that protects them.
    pub fn submit_flush(
        &self,
        space: &AddressSpace<N>,
        range: FlushRange,
        freed: FreedTables,
    ) -> FlushTicket<'_, P, N> {
        let range = match (range.is_empty(), freed) {
            (true, FreedTables::No) => return FlushTicket::done(self),
            // Tables without a range: in doubt, everything (I10).
            (true, FreedTables::Yes) => FlushRange::WHOLE,
            (false, _) => range,
        };
        let generation = space.bump();
        // ORDERING: PTE change and bump / read CPU set, against set CPU bit / read generation in `switch_to`
        // (I1, I2).
        fence(Ordering::SeqCst);
        let request = FlushRequest::new(FlushScope::Space(space.id(), generation), range, freed);
        self.begin_flush(request, || {
            let mut holders = space.cpu_set().load(Ordering::Acquire);
            self.spare(&mut holders, space, generation, freed);
            holders
        })
    }

    /// Those of `others` that are residents and elsewhere: they compare generations when they come back.
    #[cold]
    #[inline(never)]
    fn absent(&self, others: CpuMask<N>, space: &AddressSpace<N>) -> CpuMask<N> {
        let mut residents = space.residents();
        residents.intersect(&others);
        let mut absent = CpuMask::EMPTY;
        for cpu in residents.iter() {
            if !self.state(cpu).lazy.presence.is_in(space.id()) {
                absent.insert(cpu);
            }
        }
        if !absent.is_empty() {
            let irq = self.irq_guard();
            let counters = &self.state(self.platform.current_cpu()).counters;
            counters.absent_skipped.add(absent.len() as u64);
            drop(irq);
        }
        absent
    }

    /// Takes the CPUs out that a flush need not reach: those that will look before they use the space again, and those that have
    /// nothing left of what it is about.
    fn spare(
        &self,
        holders: &mut CpuMask<N>,
        space: &AddressSpace<N>,
        generation: TlbGen,
        freed: FreedTables,
    ) {
        // Perhaps stale already; this CPU flushes here anyway, and nobody is harmed who is not spared.
        let me = self.platform.current_cpu();
        let mut others = *holders;
        others.remove(me);
        if others.is_empty() {
            return;
        }
        if P::HAS_WINDOWS && space.has_residents() {
            let absent = self.absent(others, space);
            others.subtract(&absent);
            holders.subtract(&absent);
        }
        let policy = self.policy();
        let reads_marks = policy.is_lazy() || policy.defers();
        let (mut lazy, mut deferring, mut covered) = (0, 0, 0);
        for cpu in others
            .iter()
            .filter(|_| reads_marks || policy.checks_covered())
        {
            let state = self.state(cpu);
            let attention = match reads_marks {
                true => state.lazy.get(),
                false => Attention::Active,
            };
            let spared = match attention {
                Attention::Deferring if attention.skips(freed) => &mut deferring,
                _ if attention.skips(freed) => &mut lazy,
                _ if policy.checks_covered() && state.tlb.has_reached(space.id(), generation) => {
                    &mut covered
                }
                _ => continue,
            };
            *spared += 1;
            holders.remove(cpu);
        }
        if lazy + deferring + covered > 0 {
            let irq = self.irq_guard();
            let counters = &self.state(self.platform.current_cpu()).counters;
            counters.lazy_skipped.add(lazy);
            counters.deferring_skipped.add(deferring);
            counters.covered_skipped.add(covered);
            drop(irq);
        }
    }

    /// Makes every CPU forget a range of the kernel's part, which all spaces share, global pages included.
    /// Context as [`flush`](Self::flush).
    pub fn flush_kernel(&self, range: FlushRange) {
        self.submit_flush_kernel(range).wait();
    }

    /// Starts what [`flush_kernel`](Self::flush_kernel) does. As [`submit_flush`](Self::submit_flush).
    pub fn submit_flush_kernel(&self, range: FlushRange) -> FlushTicket<'_, P, N> {
        if range.is_empty() {
            return FlushTicket::done(self);
        }
        // ORDERING: PTE change / read ready, against set ready / flush in `online` (I1).
        fence(Ordering::SeqCst);
        let request = FlushRequest::new(FlushScope::Kernel, range, FreedTables::Yes);
        self.begin_flush(request, || self.ready_cpus())
    }

    /// One shootdown for everything in `batch`. Its frames and tables come back from the ticket's wait, and
    /// nowhere else (I4, I5). Call it as [`submit_flush`](Self::submit_flush).
    pub fn submit_batch<T, const CAP: usize>(
        &self,
        space: &AddressSpace<N>,
        batch: FlushBatch<T, CAP>,
    ) -> BatchTicket<'_, P, N, T, CAP> {
        let flush = self.submit_flush(space, batch.covered(), batch.freed_tables());
        BatchTicket::new(flush, batch)
    }

    /// Publishes the request to the CPUs that `holders` finds, and flushes here unless the policy puts that
    /// after the wait.
    fn begin_flush(
        &self,
        request: FlushRequest,
        holders: impl FnOnce() -> CpuMask<N>,
    ) -> FlushTicket<'_, P, N> {
        let mut holders = holders();
        if self.flush_without_interrupts(&request, &holders) {
            return FlushTicket::done(self);
        }
        let policy = self.policy();
        let is_pinned = !policy.is_concurrent() || !policy.waits_preemptibly();
        let preempt = is_pinned.then(|| self.preempt_guard());
        let slot = self.free_slot(SlotClass::Flush);
        let me = slot.initiator;
        // A CPU may have gone offline by now; from here to the publishing nobody's departure can complete.
        holders.intersect(&self.ready_cpus());
        let mut remote = holders;
        remote.remove(me);
        if remote.is_empty() {
            // The others are gone, or waiting for the slot has taken us to the one CPU that needs the flush.
            self.flush_here(me, &request, Role::Initiator);
            return FlushTicket::done(self);
        }
        let mut kind = Kind::FLUSH;
        if policy.acknowledges_early() && request.allows_early_ack() {
            kind = kind.ack_first();
        }
        let payload = if policy.is_inline() {
            Payload::of(request)
        } else {
            kind = kind.indirect();
            // SAFETY: the slot is free and stays ours (`FreeSlot`), so no target reads its description (I6).
            unsafe { self.state(me).indirect[slot.index].0.write(request) };
            Payload::EMPTY
        };
        if !policy.is_concurrent() {
            let published = self.publish(&slot, kind, Request::data(payload), &remote);
            return FlushTicket::published(self, published, preempt).with_local_due(request);
        }
        let published = self.publish(&slot, kind, Request::data(payload), &remote);
        self.flush_here(me, &request, Role::Initiator);
        let counters = &self.state(me).counters;
        if self.is_done(published) {
            counters.flushes_unwaited.add(1);
        } else {
            counters.flushes_overlapped.add(1);
        }
        FlushTicket::published(self, published, preempt)
    }

    /// Does the whole flush, without a request slot, when no other CPU holds anything or the platform reaches the
    /// others by itself; tells whether it did.
    fn flush_without_interrupts(&self, request: &FlushRequest, holders: &CpuMask<N>) -> bool {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        let mut remote = *holders;
        remote.remove(me);
        let is_covered = remote.is_empty()
            || self.platform.flush_remote(remote.as_set(), request) == RemoteFlush::Done;
        if is_covered {
            self.state(me)
                .counters
                .ipis_avoided
                .add(remote.len() as u64);
            self.flush_here(me, request, Role::Initiator);
        }
        drop(irq);
        is_covered
    }

    /// Flushes on this CPU what an initiator owes it (policies that are not concurrent).
    pub(crate) fn flush_owed(&self, request: &FlushRequest) {
        let irq = self.irq_guard();
        self.flush_here(self.platform.current_cpu(), request, Role::Initiator);
        drop(irq);
    }
}
