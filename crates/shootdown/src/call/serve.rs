//! The responder's half of a call: what the interrupt handler does.
//!
//! It neither allocates, locks nor logs, and every loop here has a bound (I9). Flushes come before functions in the same
//! interrupt; those that arrive while functions run wait for one that is slow, or for a few that are not ([`Pace`](crate::call::pace::Pace)).
//! Functions that arrive then wait for the next interrupt. Those that are found run at once, each responder beginning with the initiator
//! that follows it, so low CPU numbers have no advantage. Where functions are slow they stay where they are, and then run one at a time, the
//! oldest first, so that the targets of two calls agree which goes first: if they did not, both calls would end
//! late. (That is worth up to 10 % of the whole time where two callers share 64 targets: docs/systems/t5.md.)
//!
//! Functions run in the interrupt, and where a task waits for functions itself. Everything else that looks serves flushes only: they
//! take no lock of the host, so they may be served under any.

use crate::call::SLOTS;
use crate::call::look::Serve;
use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::tlb::Serving;
use crate::trace::TraceEvent;

impl<P: Platform> Shootdown<P> {
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
            if let Some(slot) = Self::expected_slot(me) {
                self.platform.prefetch_write(slot);
            }
        }
        let serving = Serving(me);
        let served = self.serve(me);
        core::mem::forget(serving);
        if me.early_acks.get() != 0 && me.inbox.is_quiet(me.cpu) {
            // The interrupted task goes on.
            me.early_acks.set(0);
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
        let is_idle =
            me.inbox.is_quiet(me.cpu) && (!P::CONFIG.has_posted_data || me.posted.0.is_empty());
        if is_idle && !self.is_broadcast_due(me, false) {
            return false;
        }
        self.poll_with(Self::serve)
    }

    fn poll_with(&self, serve: impl FnOnce(&Self, Here<'_, P>) -> bool) -> bool {
        let _irq = self.irq_guard();
        let me = self.here();
        me.early_acks.set(0);
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
    pub(crate) fn serve(&self, me: Here<'_, P>) -> bool {
        if me.in_function.get() {
            me.look_again.set(true);
            return self.serve_flushes(me);
        }
        // What it was for is served now.
        me.owes_interrupt_since.set(0);
        let mut served = self.look_around(me);
        if !me.waiting.is_empty() || Self::HAS_RINGS && me.ring.has_functions() {
            served |= self.run_left(me);
        }
        if P::CONFIG.has_posted_data && !me.posted.0.is_empty() {
            served |= self.run_posted(me);
        }
        served
    }

    /// Empties the inbox, and serves what is found there and in the ring, but for functions that wait for their turn; true if there was anything.
    fn look_around(&self, me: Here<'_, P>) -> bool {
        let mut served = self.read_ring(me, Serve::Flushes);
        let (waiting, mut only) = (&me.waiting, None);
        let is_urgent = me.inbox.is_urgent();
        let came = me.inbox.take(me.cpu, false, |group, word| {
            if word.is_power_of_two() && only.is_none() && waiting.is_empty() {
                only = Some(P::Cpus::cpu(group, word.trailing_zeros()));
            } else {
                only.take().into_iter().for_each(|only| waiting.add(only));
                waiting.add_group(group, word);
            }
        });
        if let Some(only) = only {
            if !self.look_at(me, only, Serve::Short) {
                waiting.add(only);
            }
        } else if came {
            me.is_unsearched.set(true);
            if is_urgent {
                self.serve_waiting(me);
            }
            self.run_waiting(me);
        }
        served |= came;
        if Self::HAS_RINGS && me.ring.has_functions() {
            served |= self.read_ring(me, Serve::Short);
        }
        served
    }

    /// Serves those that wait, in the order in which they are found. Those whose functions wait for their turn stay in the set.
    fn run_waiting(&self, me: Here<'_, P>) {
        let mut pace = self.begin_pace();
        self.look_at_waiting(me, Serve::Short, |engine| engine.keep_pace(me, &mut pace));
        me.is_unsearched.set(false);
    }

    /// Looks at the initiators that wait, and keeps those that have something left; `each` runs after each of the others.
    #[inline]
    fn look_at_waiting(&self, me: Here<'_, P>, serve: Serve, mut each: impl FnMut(&Self)) {
        for (group, word) in me.waiting.groups_from(me.cpu) {
            let left = self.look_at_group(me, (group, word), serve, &mut each);
            me.waiting.set_group(group, left);
        }
    }

    /// Looks at the initiators `word` of a group; returns those that have something left. `each` runs after each of the others.
    #[inline]
    fn look_at_group(
        &self,
        me: Here<'_, P>,
        (group, word): (usize, u64),
        serve: Serve,
        mut each: impl FnMut(&Self),
    ) -> u64 {
        let mut left = word;
        for lane in ones_from(word, P::Cpus::bit(me.cpu) - 1) {
            if self.look_at(me, P::Cpus::cpu(group, lane), serve) {
                left &= !(1 << lane);
                each(self);
            }
        }
        left
    }

    /// Runs the functions that were left, the oldest first; true if there were any.
    #[cold]
    fn run_left(&self, me: Here<'_, P>) -> bool {
        // Announcements that are left meanwhile have an interrupt of their own on its way.
        let (end, mut pace, mut turns) = (me.ring.end_of_left(), self.begin_pace(), 0);
        // An initiator that goes on calling, and whose clock is late, does not keep others from their turn.
        let most = SLOTS * (me.waiting.len() + me.ring.left_before(end).count());
        while turns < most && self.run_oldest(me, end) {
            turns += 1;
            self.keep_pace(me, &mut pace);
        }
        self.end_pace(me, &pace);
        if !me.waiting.is_empty() {
            self.run_rest(me);
        }
        turns > 0
    }

    /// Runs what is left, each once: what was taken out of inbox and ring is in no other place.
    #[cold]
    fn run_rest(&self, me: Here<'_, P>) {
        self.look_at_waiting(me, Serve::All, |_| ());
        me.waiting.clear();
        self.read_ring(me, Serve::All);
    }

    /// Serves the flushes that have come while functions ran.
    pub(super) fn serve_urgent(&self, me: Here<'_, P>) {
        if me.inbox.is_urgent() || self.is_broadcast_due(me, true) {
            self.serve_flushes(me);
        }
    }

    /// Serves the flushes of those that wait.
    #[cold]
    fn serve_waiting(&self, me: Here<'_, P>) {
        // What they ask for from now on, they announce in inbox or ring.
        me.is_unsearched.set(false);
        self.look_at_waiting(me, Serve::Flushes, |_| ());
    }

    /// Serves flushes only. Functions stay in inbox and ring, and their interrupt is on its way. True if there was anything. Interrupts
    /// are off.
    pub(crate) fn serve_flushes(&self, me: Here<'_, P>) -> bool {
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
    fn take_flushes(&self, me: Here<'_, P>) -> bool {
        let inbox = &me.inbox;
        inbox.take(me.cpu, inbox.is_held(me.cpu), |group, word| {
            let back = self.look_at_group(me, (group, word), Serve::Flushes, |_| ());
            if back != 0 {
                inbox.put_back(group, back);
            }
        })
    }
}
