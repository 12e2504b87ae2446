//! The responder's half of a call: what the interrupt handler does.
//!
//! It neither allocates, locks nor logs, and every loop here has a bound (I9). Flushes come before functions in the same
//! interrupt; those that arrive while functions run wait for one that is slow, or for a few that are not ([`Pace`]).
//! Functions that arrive then wait for the next interrupt. Those that are found run at once, each responder beginning with the initiator
//! that follows it, so low CPU numbers have no advantage. Where functions are slow they are taken one at a time, the
//! oldest first, so that the targets of two calls agree which goes first: if they did not, both calls would end
//! late. (That is worth up to 10 % of the whole time where two callers share 64 targets: docs/systems/t5.md.)
//!
//! Functions run in the interrupt, and where a task waits for functions itself. Everything else that looks serves flushes only: they
//! take no lock of the host, so they may be served under any.

use crate::call::SLOTS;
use crate::call::look::Serve;
use crate::call::pace::Pace;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::tlb::Serving;
use crate::trace::TraceEvent;

/// That of two requests in a row. A slot is a line, so its address has no such bit.
pub(crate) const SERVED_AGAIN: u64 = 1;
/// Turns of the serving loop in one interrupt, per CPU of the machine: enough for every slot of every
/// initiator once. What is left then is served by another interrupt that the responder sends itself.
const TURNS_PER_CPU: usize = SLOTS;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// The body of the engine's interrupt vector. Call it there, with interrupts off. A controller that keeps one bit is acknowledged before; one that
    /// queues (x86: EOI to the local APIC) before or after. Does not block; runs the functions that were called here, on the handler's stack.
    pub fn handle_ipi(&self) {
        let _irq = self.irq_guard();
        let me = self.here();
        self.platform
            .on_trace(TraceEvent::HandlerEntered { cpu: me.cpu });
        if Self::prefetches(self.policy()) {
            // An initiator has just written our inbox, and we are about to empty it: asking for its line for
            // writing saves the second transfer that a look before the taking costs.
            self.prefetch_inbox(&me.inbox, me.cpu);
            let slot = me.served_slot.get();
            if slot & SERVED_AGAIN != 0 {
                self.platform.prefetch_write(slot as usize);
            }
        }
        let serving = Serving(me);
        let served = self.serve(me);
        core::mem::forget(serving);
        if !me.met.is_empty() && me.inbox.is_quiet(me.cpu) {
            // Nobody keeps the interrupted task from going on.
            me.met.clear();
        }
        me.counters.ipis_received.add(1);
        if !served {
            me.counters.ipis_spurious.add(1);
        }
        self.platform
            .on_trace(TraceEvent::HandlerLeft { cpu: me.cpu });
    }

    /// Serves the flushes that wait for this CPU; true if anything waited. Any context; does not block. Functions that were called
    /// here are left to the interrupt: none runs under the caller's locks.
    ///
    /// Call it in every loop that spins with interrupts off for something that another CPU holds (a lock): that
    /// CPU may be waiting until this one has flushed. A CPU that holds such a lock may wait for flushes; it must not wait for
    /// functions ([`call_many`](Self::call_many) and its like), because those who spin for the lock run none.
    ///
    /// On a CPU that has no memory yet ([`attach`](Self::attach)) nothing can wait, so a host's locks may poll from the beginning.
    #[inline]
    pub fn poll(&self) -> bool {
        // A stale CPU number here costs one empty look, or one missed look that the interrupt makes up for.
        let cpu = self.platform.current_cpu();
        let Some(state) = self.attached(cpu) else {
            return false;
        };
        // Some of `waiting` are not searched yet only while functions run, of which one polls.
        let is_urgent = state.inbox.is_urgent() || state.is_unsearched.get();
        if !is_urgent && !self.is_broadcast_due(Here { cpu, state }, true) {
            return false;
        }
        self.poll_with(Self::serve_flushes)
    }

    /// Serves all that waits for this CPU, functions too: where the caller waits for functions itself.
    pub(crate) fn poll_functions(&self) -> bool {
        let me = self.here();
        let is_idle = me.inbox.is_quiet(me.cpu) && me.posted.0.is_empty();
        if is_idle && !self.is_broadcast_due(me, false) {
            return false;
        }
        self.poll_with(Self::serve)
    }

    fn poll_with(&self, serve: impl FnOnce(&Self, Here<'_, N>) -> bool) -> bool {
        let _irq = self.irq_guard();
        let me = self.here();
        me.met.clear();
        let serving = Serving(me);
        let served = serve(self, me);
        core::mem::forget(serving);
        if served {
            me.counters.polls_served.add(1);
        }
        served
    }

    /// Serves what is there, but not the functions that come meanwhile: the interrupted task, or the waiter that polls, must get
    /// on too when others go on calling. True if there was anything. Interrupts are off.
    pub(crate) fn serve(&self, me: Here<'_, N>) -> bool {
        if me.in_function.get() {
            me.look_again.set(true);
            return self.serve_flushes(me);
        }
        // What it was for is served now.
        me.owes_interrupt_since.set(0);
        let mut served = self.look_around(me);
        if !me.backlog.is_empty() {
            self.run_backlog(me);
        }
        if !me.posted.0.is_empty() {
            served |= self.run_posted(me);
        }
        served
    }

    /// Empties inbox and ring, and serves what is found, as far as it does not wait for its turn in the backlog; true if there was
    /// anything.
    fn look_around(&self, me: Here<'_, N>) -> bool {
        let mut served = self.read_ring(me, Serve::Flushes);
        let (waiting, mut only) = (&me.waiting, None);
        let is_urgent = me.inbox.is_urgent();
        let came = me.inbox.take(me.cpu, false, |group, word| {
            if word.is_power_of_two() && only.is_none() && waiting.is_empty() {
                only = Some(<Cpus<N> as Capacity>::cpu(group, word.trailing_zeros()));
            } else {
                only.take().into_iter().for_each(|only| waiting.add(only));
                waiting.add_group(group, word);
            }
        });
        if let Some(only) = only {
            // The backlog is empty, and has room for all that one initiator may ask for.
            self.expect(me, only);
            self.look_at(me, only, Serve::All);
        } else if came {
            me.is_unsearched.set(true);
            if is_urgent {
                self.serve_waiting(me);
            }
            self.refill(me, &mut self.begin_pace());
        }
        served |= came;
        if me.ring.has_functions() {
            served |= self.read_ring(me, Serve::All);
        }
        served
    }

    /// `initiator` is served, and nobody else: after twice in a row the next interrupt asks for its slot before it looks.
    #[inline]
    fn expect(&self, me: Here<'_, N>, initiator: CpuId) {
        let slot = core::ptr::from_ref(&self.state(initiator).slots[0]).addr() as u64;
        let is_again = me.served_slot.get() & !SERVED_AGAIN == slot;
        (me.served_slot).set(slot | if is_again { SERVED_AGAIN } else { 0 });
    }

    /// Serves those that wait, as long as the backlog has room for what is to wait for its turn.
    #[inline]
    fn refill(&self, me: Here<'_, N>, pace: &mut Pace) {
        for (group, word) in me.waiting.groups_from(me.cpu) {
            let left = self.look_at_group(me, (group, word), Serve::All, |engine| {
                engine.keep_pace(me, pace);
            });
            me.waiting.set_group(group, left);
            if left != 0 {
                return;
            }
        }
        me.is_unsearched.set(false);
    }

    /// Looks at the initiators `word` of a group; returns those that have something left. `each` runs after each of the others.
    #[inline]
    fn look_at_group(
        &self,
        me: Here<'_, N>,
        (group, word): (usize, u64),
        serve: Serve,
        mut each: impl FnMut(&Self),
    ) -> u64 {
        let mut left = word;
        for lane in ones_from(word, <Cpus<N> as Capacity>::bit(me.cpu) - 1) {
            if self.look_at(me, <Cpus<N> as Capacity>::cpu(group, lane), serve) {
                left &= !(1 << lane);
                each(self);
            } else if serve == Serve::All {
                // No room for the others either.
                break;
            }
        }
        left
    }

    /// Runs the backlog, and what there was no room for, oldest first.
    #[cold]
    fn run_backlog(&self, me: Here<'_, N>) {
        // Those that come meanwhile are left, too.
        let is_ring_left = me.ring.has_functions();
        let mut pace = self.begin_pace();
        for _ in 0..TURNS_PER_CPU * N {
            if !self.run_oldest(me) {
                break;
            }
            self.keep_pace(me, &mut pace);
            self.refill(me, &mut pace);
        }
        self.end_pace(me, &pace);
        // What was taken out of inbox and ring is in no other place.
        while self.run_oldest(me) {}
        if is_ring_left {
            self.read_ring(me, Serve::All);
            while self.run_oldest(me) {}
        }
        if !me.waiting.is_empty() {
            self.put_waiting_back(me);
        }
    }

    /// Serves the flushes that have come while functions ran.
    pub(super) fn serve_urgent(&self, me: Here<'_, N>) {
        if me.inbox.is_urgent() || self.is_broadcast_due(me, true) {
            self.serve_flushes(me);
        }
    }

    /// Serves the flushes of those that wait. Those that are acknowledged only when they are done are served by one flush, after
    /// the others.
    #[cold]
    fn serve_waiting(&self, me: Here<'_, N>) {
        // What they ask for from now on, they announce in inbox or ring.
        me.is_unsearched.set(false);
        self.look_at_waiting(me, Serve::EarlyFlushes);
        if me.tlb.owed.is_awaited() {
            self.look_at_waiting(me, Serve::Flushes);
            me.tlb.owed.forget_awaited();
        }
        self.flush_owed(me);
    }

    fn look_at_waiting(&self, me: Here<'_, N>, serve: Serve) {
        for (group, word) in me.waiting.groups_from(me.cpu) {
            let left = self.look_at_group(me, (group, word), serve, |_| ());
            me.waiting.set_group(group, left);
        }
    }

    /// Serves flushes only. Functions stay in inbox and ring, and their interrupt is on its way. True if there was anything. Interrupts
    /// are off.
    pub(crate) fn serve_flushes(&self, me: Here<'_, N>) -> bool {
        let mut served = self.read_ring(me, Serve::Flushes);
        served |= self.take_flushes(me);
        if me.is_unsearched.get() {
            // A function runs, and these were taken out of the inbox before it.
            let before = me.served.get();
            self.serve_waiting(me);
            served |= me.served.get() != before;
        }
        if me.owes_interrupt_since.get() != 0 {
            self.interrupt_self(me);
        }
        served
    }

    /// Empties the inbox, serves its flushes and puts the initiators of functions back; true if there was anything.
    fn take_flushes(&self, me: Here<'_, N>) -> bool {
        let inbox = &me.inbox;
        let came = inbox.take(me.cpu, inbox.is_held(me.cpu), |group, word| {
            let back = self.look_at_group(me, (group, word), Serve::Flushes, |_| ());
            if back != 0 {
                inbox.put_back(group, back);
            }
        });
        self.flush_owed(me);
        came
    }

    /// Puts those back that still wait because the bound was reached, for another interrupt.
    fn put_waiting_back(&self, me: Here<'_, N>) {
        for (group, word) in me.waiting.groups_with_members() {
            me.inbox.put_back(group, word);
        }
        me.waiting.clear();
        me.is_unsearched.set(false);
        self.interrupt_self(me);
    }
}
