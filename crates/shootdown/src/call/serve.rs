//! The responder's half of a call: what the interrupt handler does.
//!
//! It neither allocates, locks nor logs, and every loop here has a bound (I9). Flushes come before any
//! function in the same interrupt, also those that arrive while functions run. Functions that arrive then wait for the
//! next interrupt, which a responder sends itself; those that it finds are taken one at a time, the oldest first. So low
//! CPU numbers have no advantage, and the targets of two calls agree which goes first: if they did not, both calls would end
//! late. (That is worth up to 10 % of the whole time where two callers share 64 targets: docs/measuring.md.)
//!
//! Functions run in the interrupt, and where a task waits for functions itself. Everything else that looks serves flushes only: they
//! take no lock of the host, so they may be served under any.

use crate::call::SLOTS;
use crate::call::inbox::Doorbell;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::trace::TraceEvent;

/// Turns of the serving loop in one interrupt, per CPU of the machine: enough for every slot of every
/// initiator once. What is left then is served by another interrupt that the responder sends itself.
const TURNS_PER_CPU: usize = SLOTS;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// The body of the engine's interrupt vector. Call it there, after acknowledging the interrupt to the
    /// controller, with interrupts off. Does not block; runs the functions that were called here.
    pub fn handle_ipi(&self) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        self.platform
            .on_trace(TraceEvent::HandlerEntered { cpu: me });
        if self.prefetches() {
            // An initiator has just written our inbox, and we are about to empty it: asking for its line for
            // writing saves the second transfer that a look before the taking costs.
            self.prefetch_inbox(me, me);
        }
        let served = self.serve(me, Doorbell::Held);
        self.let_doorbell_go(me);
        let counters = &self.state(me).counters;
        counters.ipis_received.add(1);
        if !served {
            counters.ipis_spurious.add(1);
        }
        self.platform.on_trace(TraceEvent::HandlerLeft { cpu: me });
        drop(irq);
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
        let me = self.platform.current_cpu();
        let Some(state) = self.attached(me) else {
            return false;
        };
        if !state.inbox.is_urgent() && !self.is_broadcast_flush_due(me) {
            return false;
        }
        self.poll_with(Self::serve_flushes)
    }

    /// Serves all that waits for this CPU, functions too: where the caller waits for functions itself.
    pub(crate) fn poll_functions(&self) -> bool {
        let me = self.platform.current_cpu();
        let state = self.state(me);
        let is_idle = state.inbox.is_quiet(me) && state.posted.0.is_empty();
        if is_idle && !self.is_broadcast_due(me) {
            return false;
        }
        self.poll_with(|engine, me| engine.serve(me, Doorbell::Silent))
    }

    fn poll_with(&self, serve: impl FnOnce(&Self, CpuId) -> bool) -> bool {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        let served = serve(self, me);
        if served {
            self.state(me).counters.polls_served.add(1);
        }
        drop(irq);
        served
    }

    /// Serves what is there, but not the functions that come meanwhile: the interrupted task, or the waiter that polls, must get
    /// on too when others go on calling. True if there was anything. `doorbell` is how the inbox is left when it is emptied.
    /// Interrupts are off.
    pub(crate) fn serve(&self, me: CpuId, doorbell: Doorbell) -> bool {
        let state = self.state(me);
        if state.in_function.get() {
            return self.serve_flushes(me);
        }
        let backlog = &state.backlog;
        let (mut served, mut left) = (self.look_around(me, doorbell), false);
        for _ in 0..TURNS_PER_CPU * N {
            self.refill(me);
            if !backlog.is_empty() {
                self.run_oldest(me);
            } else if state.waiting.is_empty() && !state.look_again.get() {
                break;
            }
            if state.look_again.replace(false) {
                served |= self.look_around(me, doorbell);
            } else {
                left |= self.look_for_flushes(me);
            }
        }
        // What was taken out of inbox and ring is in no other place.
        while !backlog.is_empty() {
            self.run_oldest(me);
        }
        left |= self.put_waiting_back(me);
        if !state.posted.0.is_empty() {
            served |= self.run_posted(me);
        }
        // A held doorbell is let go by the caller, who finds then what was put back.
        if state.look_again.replace(false) || left && doorbell == Doorbell::Silent {
            self.interrupt_myself(me);
        }
        served
    }

    /// Empties inbox and ring into the backlog, as far as that has room, and serves their flushes; true if there was
    /// anything.
    fn look_around(&self, me: CpuId, doorbell: Doorbell) -> bool {
        let state = self.state(me);
        let (waiting, mut only) = (&state.waiting, None);
        // Those that wait have been looked at: only what is fresh is, or a storm would have each turn look at all.
        let has_room = waiting.is_empty() && state.backlog.has_room();
        let came = state.inbox.take(me, doorbell, |group, word| {
            if !has_room {
                self.have_wait(me, group, word);
            } else if word.is_power_of_two() && only.is_none() && waiting.is_empty() {
                only = Some(<Cpus<N> as Capacity>::cpu(group, word.trailing_zeros()));
            } else {
                only.take().into_iter().for_each(|only| waiting.add(only));
                waiting.add_group(group, word);
            }
        });
        if let Some(only) = only {
            self.take_turn(me, only);
        } else if came && has_room {
            self.take_turns(me);
        }
        self.read_ring(me, Some(&state.backlog)) || came
    }

    /// Serves the flushes of a group's initiators, and has those wait that have functions.
    #[cold]
    fn have_wait(&self, me: CpuId, group: usize, mut word: u64) {
        while word != 0 {
            let initiator = <Cpus<N> as Capacity>::cpu(group, word.trailing_zeros());
            word &= word - 1;
            if !self.look_at(me, initiator, None) {
                self.state(me).waiting.add(initiator);
            }
        }
    }

    /// Serves the flushes of all that wait, and adds functions to the backlog as long as it has room.
    fn take_turns(&self, me: CpuId) {
        let state = self.state(me);
        self.note_newest(me);
        let first = state.serve_next.get();
        let later = state.waiting.iter().filter(|cpu| *cpu >= first);
        let earlier = state.waiting.iter().filter(|cpu| *cpu < first);
        let mut has_room = true;
        for initiator in later.chain(earlier) {
            has_room = has_room && state.backlog.has_room();
            let is_all = match has_room {
                true => self.take_turn(me, initiator),
                false => self.look_at(me, initiator, None),
            };
            if is_all {
                state.waiting.remove(initiator);
            }
        }
        self.forget_newest(me);
    }

    /// Finds the functions of those that wait for room, as far as there is some.
    fn refill(&self, me: CpuId) {
        let state = self.state(me);
        while !state.waiting.is_empty()
            && state.backlog.has_room()
            && let Some(initiator) = state.waiting.next_from(state.serve_next.get())
        {
            self.take_turn(me, initiator);
            state.waiting.remove(initiator);
        }
    }

    /// Serves the flushes of `initiator` and adds its functions to the backlog, which has room: nothing is left of it. The next
    /// turn is the next CPU's.
    #[inline]
    fn take_turn(&self, me: CpuId, initiator: CpuId) -> bool {
        let state = self.state(me);
        let next = initiator.index() + 1;
        let next = if next == N { 0 } else { next };
        state.serve_next.set(CpuId::from_index(next));
        self.look_at(me, initiator, Some(&state.backlog))
    }

    /// Serves the flushes that have come while functions ran; true if functions have, which are in the inbox again.
    fn look_for_flushes(&self, me: CpuId) -> bool {
        let is_urgent = self.state(me).inbox.is_urgent();
        let left = is_urgent && self.take_flushes(me).1;
        if self.is_broadcast_flush_due(me) {
            self.read_ring(me, None);
        }
        left
    }

    /// Serves flushes only. Functions stay in the inbox, and their interrupt is on its way; inside a called function, the responder
    /// that runs it looks again when it returns. True if there was anything. Interrupts are off.
    pub(crate) fn serve_flushes(&self, me: CpuId) -> bool {
        let served = self.read_ring(me, None);
        let (came, left) = self.take_flushes(me);
        let state = self.state(me);
        if left && state.in_function.get() {
            state.look_again.set(true);
        }
        served || came
    }

    /// Empties the inbox, serves its flushes and puts the initiators of functions back. Whether there was anything, and whether
    /// functions are left.
    fn take_flushes(&self, me: CpuId) -> (bool, bool) {
        let (inbox, mut left) = (&self.state(me).inbox, false);
        let came = inbox.take(me, self.doorbell(me), |group, mut word| {
            let mut back = 0;
            while word != 0 {
                let lane = word.trailing_zeros();
                word &= word - 1;
                if !self.look_at(me, <Cpus<N> as Capacity>::cpu(group, lane), None) {
                    back |= 1 << lane;
                }
            }
            if back != 0 {
                inbox.put_back(group, back);
                left = true;
            }
        });
        (came, left)
    }

    /// Puts those back that still wait because the bound was reached; true if there are any.
    fn put_waiting_back(&self, me: CpuId) -> bool {
        let state = self.state(me);
        if state.waiting.is_empty() {
            return false;
        }
        for (group, word) in state.waiting.groups_with_members() {
            state.inbox.put_back(group, word);
        }
        state.waiting.clear();
        true
    }
}
