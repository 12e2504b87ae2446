//! The responder: what a CPU does with what others ask of it.
//!
//! It neither allocates, locks nor logs, it panics at a mistake of the host's only, and every loop here has a bound (I9). Flushes come before functions; those that
//! arrive while functions run wait for one that is slow, or for a few that are not ([`Pace`]). Functions that arrive then wait for the next interrupt. Each responder begins with the
//! group of its own number, and in a group with the initiator that follows it, so low CPU numbers have no advantage.
//!
//! # States
//!
//! Each request that was announced to this CPU is in one of these places until this CPU begins to serve it. (An initiator that has come alone is served before it would
//! be put into `taken`: nothing waits behind it.)
//!
//! | place | what lies there | leaves it by |
//! |---|---|---|
//! | inbox | bits of initiators that have announced a request | `take_and_serve`, to `taken`; `take_flushes`, which puts back who has functions |
//! | `taken` | initiators whose requests have still to be looked at, or whose functions wait for their turn | `serve_initiator`, which serves them or leaves them; `run_oldest` |
//! | ring, not read | announcements from `ring.next()` on | `read_ring`, which serves them or leaves them |
//! | ring, left | functions that were read, and wait for their turn | `run_oldest`, `read_ring` |
//! | posted list, then `TakenLinks` | call data | `run_posted` |
//!
//! What an interrupt or a poll may serve depends on what the CPU does:
//!
//! | state | from | to | interrupt | `poll`, wait for a flush | wait for a function |
//! |---|---|---|---|---|---|
//! | at rest | | function, by `enter` | everything | flushes | everything |
//! | function (`in_function`) | at rest | at rest, when it returns | flushes, and sets `came_again` | flushes | panics |
//!
//! An interrupt comes inside a function where that turns interrupts on, or where the CPU calls itself. `came_again`: when the function returns, this CPU interrupts itself for
//! what was found meanwhile, so that no function runs under the locks of another one's caller (I7).
//!
//! A flag beside it, `is_unsearched`: the inbox was emptied, and nobody has looked yet for flushes of those in `taken`. `take_and_serve` sets it; `serve_taken_flushes`, and the end
//! of `take_and_serve`, clear it. As long as it is set, whoever serves flushes serves those of `taken`, too.
//!
//! # One interrupt, at rest
//!
//! ```text
//! take_and_serve
//!   read_ring: flushes
//!   the inbox is emptied
//!   [come to a rendezvous, if one wants this CPU]
//!     one initiator: serve_initiator: flushes, and its function if none of this CPU's were slow lately
//!     several: [serve_taken_flushes, if the hint says that there are any] -> serve_initiator each
//!   read_ring: functions
//! run_in_turn: what was left, the oldest first
//! run_posted
//! ```
//!
//! Short functions run as they are found. Where functions are slow they stay where they are, and then run one at a time, the oldest first, so that the
//! targets of two calls agree which goes first: if they did not, both calls would end late. Nothing is copied: this CPU's bit in the request says that it
//! has still to run. One that was given up meanwhile (`give_up`) leads to nothing.

use crate::call::ring::{Announcement, MOST_READ};
use crate::call::{FIRST_ONLY, Found, Kind, Number, SLOTS, Slot, Ticket};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::{CpuMemory, Here};
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::trace::TraceEvent;

/// So many initiators that wait, and so many announcements, are compared with each other by age.
/// Two keep the models small.
const COMPARED: usize = if cfg!(loom) { 2 } else { 16 };

/// Set in `served_slot` if the request to this CPU alone before was in the same slot. A slot is a line, so its address has no such bit.
const SERVED_AGAIN: u64 = 1;

/// What is served; the rest is left where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Serve {
    /// Flushes.
    Flushes,
    /// Functions too, but where functions were slow lately, or their initiator has several requests: there they wait for their turn.
    Short,
    /// Functions too, whether they wait for their turn or not.
    All,
}

/// So many ns a responder goes on before it looks for flushes.
const PATIENCE_NS: u64 = 4_000;

/// Where functions take so many ns in the mean of a stretch, they are slow. In storms short ones take several microseconds each, since all wait for the same lines.
const SLOW_NS: u64 = 16_000;

/// A stretch of several requests.
#[derive(Debug)]
pub(super) struct Pace {
    since_ns: u64,
    served: u64,
}

// Interrupts, polls and waits: how a CPU comes to serve.
impl<P: Platform> Shootdown<P> {
    /// The body of the engine's interrupt vector. Call it there, with interrupts off. A controller that keeps one bit is acknowledged before; one that
    /// queues (x86: EOI to the local APIC) before or after. Does not block; runs the functions that were called here, on the handler's stack.
    pub fn handle_ipi(&self) {
        let irq = self.irq_guard();
        let me = self.here(&irq);
        self.must_live(me.cpu);
        self.platform
            .on_trace(TraceEvent::HandlerEntered { cpu: me.cpu });
        if Self::prefetches(self.policy()) {
            // An initiator has just written our inbox, and we are about to empty it: asking for its line for
            // writing saves the second transfer that a look before the taking costs.
            let prefetch = |line| self.platform.prefetch_write(line);
            me.inbox.prefetch(me.cpu, prefetch);
            let expected = me.served_slot.get();
            if expected & SERVED_AGAIN != 0 {
                prefetch(expected as usize);
            }
        }
        let served = self.serve(me);
        let early = me.early_acks.get();
        // The handler stops after `MOST_READ` tickets: if it acknowledged that many early, some may be unread. Then another interrupt is on its way.
        let is_ring_unread =
            || early >= MOST_READ as u64 && self.is_broadcast_due(me.cpu, me.state, false);
        // A function that turned interrupts on is not the interrupted task.
        if early != 0 && !me.in_function.get() && me.inbox.is_quiet(me.cpu) && !is_ring_unread() {
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
    /// Inside a called function it also looks at the clock now and then, and reports one that polls for long to [`Platform::on_stall`].
    ///
    /// On a CPU that has no memory yet ([`attach`](Self::attach)) nothing can wait, so a host's locks may poll from the beginning.
    #[inline]
    pub fn poll(&self) -> bool {
        self.poll_flushes::<true>()
    }

    /// The same, where the caller is the host's code, or one that looks at the clock itself.
    #[inline]
    pub(super) fn poll_flushes<const OF_HOST: bool>(&self) -> bool {
        // A stale CPU number here costs one empty look, or one missed look that the interrupt makes up for.
        let cpu = self.platform.current_cpu();
        let Some(state) = self.attached(cpu) else {
            return false;
        };
        let is_urgent = state.inbox.is_urgent() || state.is_unsearched.get();
        if !is_urgent && !self.is_broadcast_due(cpu, state, true) {
            if OF_HOST && P::CONFIG.has_watchdog && state.in_function.get() {
                self.watch_function(&state.lookout);
            }
            return false;
        }
        self.poll_with(Self::serve_flushes)
    }

    /// Serves all that waits for this CPU, functions too: where the caller waits for functions itself.
    pub(crate) fn poll_all(&self) -> bool {
        // As in `poll`.
        let cpu = self.platform.current_cpu();
        let state = self.state(cpu);
        if !self.has_come(cpu, state) {
            return false;
        }
        self.poll_with(Self::serve)
    }

    /// Whether something was announced to `cpu`, which is this one, and not taken; a hint.
    #[inline]
    pub(crate) fn has_come(&self, cpu: CpuId, state: &CpuMemory<P>) -> bool {
        let is_idle = state.inbox.is_quiet(cpu) && state.posted.0.is_empty();
        !is_idle || self.is_broadcast_due(cpu, state, false)
    }

    fn poll_with(&self, serve: impl FnOnce(&Self, Here<'_, P>) -> bool) -> bool {
        let irq = self.irq_guard();
        let me = self.here(&irq);
        self.must_live(me.cpu);
        // A function that polls is not the interrupted task.
        if !me.in_function.get() {
            me.early_acks.set(0);
        }
        let served = serve(self, me);
        if served {
            me.counters.polls_served.add(1);
        }
        served
    }

    /// Serves what is there, but not the functions that come meanwhile: the interrupted task, or the waiter that polls, must get
    /// on too when others go on calling. True if there was anything. Interrupts are off.
    pub(crate) fn serve(&self, me: Here<'_, P>) -> bool {
        let is_in_walk = P::CONFIG.has_walks && me.walks.is_inside();
        if me.in_function.get() || is_in_walk {
            if is_in_walk {
                me.walks.hold();
            }
            me.came_again.set(true);
            return self.serve_flushes(me);
        }
        // What it was for is served now.
        me.owes_interrupt_since.set(0);
        let mut served = self.take_and_serve(me);
        if !me.taken.is_empty() || Self::HAS_RINGS && me.ring.has_functions() {
            served |= self.run_in_turn(me);
        }
        if !me.posted.0.is_empty() {
            served |= self.run_posted(me);
        }
        served
    }

    /// Serves flushes only. Functions stay in inbox and ring, and their interrupt is on its way. True if there was anything. Interrupts
    /// are off.
    pub(crate) fn serve_flushes(&self, me: Here<'_, P>) -> bool {
        let mut served = self.read_ring(me, Serve::Flushes);
        served |= self.take_flushes(me);
        if me.is_unsearched.get() {
            // These were taken out of the inbox, and not looked at: before a function that runs, or in this pass.
            let before = me.served.get();
            self.serve_taken_flushes(me);
            served |= me.served.get() != before;
        }
        if me.owes_interrupt_since.get() != 0 {
            self.interrupt_self(me);
        }
        if P::CONFIG.has_rendezvous && self.meeting.0.is_gathering() {
            served |= self.meet(me);
        }
        served
    }
}

// The inbox, and those that were taken from it.
impl<P: Platform> Shootdown<P> {
    /// Empties the inbox, and serves what is found there and in the ring, but for functions that wait for their turn; true if there was anything.
    fn take_and_serve(&self, me: Here<'_, P>) -> bool {
        let mut served = self.read_ring(me, Serve::Flushes);
        let (taken, mut only) = (&me.taken, None);
        let is_urgent = me.inbox.is_urgent();
        let came = me.inbox.take(me.cpu, false, |group, word| {
            if word.is_power_of_two() && only.is_none() && taken.is_empty() {
                only = Some(P::Cpus::cpu(group, word.trailing_zeros()));
            } else {
                only.take().into_iter().for_each(|only| taken.add(only));
                taken.add_group(group, word);
            }
        });
        if P::CONFIG.has_rendezvous && self.meeting.0.is_gathering() {
            // Before any function: one may spin for who is inside, and its polls find no hint any more. Flushes of those taken are served inside.
            only.take().into_iter().for_each(|only| taken.add(only));
            if came {
                me.is_unsearched.set(true);
            }
            served |= self.meet(me);
        }
        if let Some(only) = only {
            if !self.serve_initiator(me, only, Serve::Short) {
                taken.add(only);
            }
        } else if came {
            me.is_unsearched.set(true);
            if is_urgent {
                self.serve_taken_flushes(me);
            }
            self.serve_each_taken(me, Serve::Short);
            me.is_unsearched.set(false);
        }
        served |= came;
        if Self::HAS_RINGS && me.ring.has_functions() {
            served |= self.read_ring(me, Serve::Short);
        }
        served
    }

    /// Empties the inbox, serves its flushes and puts the initiators of functions back; true if there was anything.
    fn take_flushes(&self, me: Here<'_, P>) -> bool {
        let inbox = &me.inbox;
        inbox.take(me.cpu, inbox.is_held(me.cpu), |group, word| {
            let back = self.serve_word(me, group, word, Serve::Flushes, &mut None);
            if back != 0 {
                inbox.put_back(group, back);
            }
        })
    }

    /// Serves the flushes of those in `taken`.
    #[cold]
    fn serve_taken_flushes(&self, me: Here<'_, P>) {
        // What they ask for from now on, they announce in inbox or ring.
        me.is_unsearched.set(false);
        self.serve_each_taken(me, Serve::Flushes);
    }

    /// Looks at those in `taken`, in the order in which they are found. Those that have something left stay there.
    #[inline]
    fn serve_each_taken(&self, me: Here<'_, P>, serve: Serve) {
        let mut pace = (serve != Serve::Flushes).then(|| self.begin_pace());
        for (group, word) in me.taken.groups_from(me.cpu) {
            let left = self.serve_word(me, group, word, serve, &mut pace);
            me.taken.set_group(group, left);
        }
    }

    /// Looks at the initiators `word` of a group, at this pace; returns those that have something left.
    #[inline]
    fn serve_word(
        &self,
        me: Here<'_, P>,
        group: usize,
        word: u64,
        serve: Serve,
        pace: &mut Option<Pace>,
    ) -> u64 {
        let mut left = word;
        for lane in ones_from(word, P::Cpus::bit(me.cpu) - 1) {
            if self.serve_initiator(me, P::Cpus::cpu(group, lane), serve) {
                left &= !(1 << lane);
                if let Some(pace) = pace {
                    self.keep_pace(me, pace);
                }
            }
        }
        left
    }

    /// Serves the flush requests of `initiator`, and its functions where they may run; true if nothing is left of it.
    #[inline]
    fn serve_initiator(&self, me: Here<'_, P>, initiator: CpuId, serve: Serve) -> bool {
        let slots = &self.state(initiator).slots;
        if Self::prefetches(self.policy()) {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform.prefetch_write(slots[0].line_of(me.cpu));
        }
        let (mut is_all, in_use) = (true, slots[0].slots_in_use());
        for found in Self::requests_in(slots, me, initiator, in_use) {
            if !Self::is_served_now(me, found, in_use, serve) {
                is_all = false;
                continue;
            }
            // SAFETY: 1. just seen.
            if unsafe { self.must_hold(me, found) } {
                is_all = false;
                continue;
            }
            // SAFETY: 1. just seen, and not in the ring, where it could be found again.
            unsafe { self.serve_one(me, found) };
            if found.kind.has(Kind::TO_ONE) {
                Self::expect(me, &slots[found.slot]);
            }
        }
        is_all
    }

    /// The requests that name this CPU and are found by the inbox, in those slots of `initiator` that are `in_use`.
    #[inline]
    fn requests_in(
        slots: &[Slot<P::Cpus>],
        me: Here<'_, P>,
        initiator: CpuId,
        in_use: u64,
    ) -> impl Iterator<Item = Found> {
        ones_from(in_use, 0).filter_map(move |slot| {
            let slot = slot as usize;
            let kind = slots[slot].kind_for(me.cpu)?;
            Some(Found {
                initiator,
                slot,
                kind,
                ticket: None,
            })
        })
    }

    /// Whether a request is served as it is found. `in_use` are those of its initiator's slots that may hold requests: its functions run
    /// in the order in which they were published.
    #[inline]
    fn is_served_now(me: Here<'_, P>, found: Found, in_use: u64, serve: Serve) -> bool {
        let is_alone = || found.slot == 0 && in_use == FIRST_ONLY;
        found.kind.has(Kind::FLUSH)
            || match serve {
                Serve::Flushes => false,
                Serve::Short => is_alone() && !me.is_slow.get(),
                Serve::All => true,
            }
    }

    /// Serves a request.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    #[inline(always)]
    unsafe fn serve_one(&self, me: Here<'_, P>, found: Found) {
        me.served.set(me.served.get() + 1);
        if found.kind.has(Kind::FLUSH) {
            // SAFETY: duty 1.
            unsafe { self.serve_flush(me, found) };
        } else {
            // SAFETY: duty 1.
            unsafe { self.run_and_acknowledge(me, found) };
        }
    }

    /// What lies in `slot` names this CPU alone: after twice in a row that slot is asked for in the next interrupt, before the inbox has been read.
    #[inline]
    fn expect(me: Here<'_, P>, slot: &Slot<P::Cpus>) {
        let slot = core::ptr::from_ref(slot).addr() as u64;
        let is_again = me.served_slot.get() & !SERVED_AGAIN == slot;
        (me.served_slot).set(slot | if is_again { SERVED_AGAIN } else { 0 });
    }
}

// The ring.
impl<P: Platform> Shootdown<P> {
    /// Whether there is a broadcast that `cpu` has not read, and that is not known to be a function if those are skipped; a hint.
    #[inline]
    pub(crate) fn is_broadcast_due(
        &self,
        cpu: CpuId,
        state: &CpuMemory<P>,
        skip_functions: bool,
    ) -> bool {
        if !Self::HAS_RINGS {
            return false;
        }
        #[cfg(loom)]
        if self.ring_of(cpu).is_used.get() == 0 {
            return false;
        }
        let next = match skip_functions && state.ring.has_functions() {
            true => state.ring.next_from(state.ring.next(), true),
            false => Some(state.ring.next()),
        };
        next.is_some_and(|next| self.ring_of(cpu).is_due(next))
    }

    /// Reads the broadcasts that this CPU has not read: serves the flushes, and the functions where they may run. True if any was
    /// served.
    #[inline]
    fn read_ring(&self, me: Here<'_, P>, serve: Serve) -> bool {
        // Where nothing lies at the next ticket, nothing lies further.
        self.is_broadcast_due(me.cpu, me.state, false) && self.read_tickets(me, serve)
    }

    #[inline(never)]
    fn read_tickets(&self, me: Here<'_, P>, serve: Serve) -> bool {
        let (reader, ring) = (&me.ring, self.ring_of(me.cpu));
        let (mut is_served, mut from, mut pace) = (false, reader.next(), None);
        for _ in 0..MOST_READ {
            let Some(ticket) = reader.next_from(from, serve == Serve::Flushes) else {
                break;
            };
            from = ticket.plus(1);
            match ring.read(ticket, me.cpu) {
                Announcement::Nothing => break,
                Announcement::Gone(later) => reader.skip_to(later),
                Announcement::Incomplete => {}
                Announcement::NotOurs => reader.has_read(ticket),
                Announcement::Ours(initiator, slot) => {
                    let found = self.found_in_ring(initiator, slot, ticket);
                    let in_use = self.state(initiator).slots[0].slots_in_use();
                    if !Self::is_served_now(me, found, in_use, serve) {
                        reader.leave(ticket);
                        continue;
                    }
                    // SAFETY: 1. just seen, and not read before. (It is looked at again.)
                    if unsafe { self.must_hold(me, found) } {
                        continue;
                    }
                    // Before it is served: a function that polls reads the ring too.
                    reader.has_read(ticket);
                    // SAFETY: 1. a target reads each ticket once.
                    unsafe { self.serve_one(me, found) };
                    is_served = true;
                    match &mut pace {
                        Some(pace) => self.keep_pace(me, pace),
                        None if serve != Serve::Flushes => pace = Some(self.begin_pace()),
                        None => {}
                    }
                }
            }
        }
        is_served
    }

    /// What was announced to this CPU under `ticket`.
    #[inline]
    fn found_in_ring(&self, initiator: CpuId, slot: usize, ticket: Ticket) -> Found {
        Found {
            initiator,
            slot,
            kind: self.state(initiator).slots[slot].kind(),
            ticket: Some(ticket),
        }
    }
}

// Functions that wait for their turn.
impl<P: Platform> Shootdown<P> {
    /// Runs the functions that were left, the oldest first; true if there were any.
    #[cold]
    fn run_in_turn(&self, me: Here<'_, P>) -> bool {
        // Announcements that are left meanwhile have an interrupt of their own on its way.
        let (end, mut pace, mut turns) = (me.ring.end_of_left(), self.begin_pace(), 0);
        // An initiator that goes on calling, and whose clock is late, does not keep others from their turn.
        let most = SLOTS * (me.taken.len() + me.ring.left_before(end).count());
        while turns < most && self.run_oldest(me, end) {
            turns += 1;
            self.keep_pace(me, &mut pace);
        }
        self.end_pace(me, &pace);
        if !me.taken.is_empty() {
            // Each once: what was taken out of inbox and ring is in no other place.
            self.serve_each_taken(me, Serve::All);
            self.read_ring(me, Serve::All);
        }
        turns > 0
    }

    /// Runs the oldest function of those that wait, and those that were left in the ring before `end`; false if there is none.
    fn run_oldest(&self, me: Here<'_, P>, end: Ticket) -> bool {
        let (ring, left) = (self.ring_of(me.cpu), me.ring.left_before(end));
        let oldest = left
            .take(COMPARED)
            .fold(self.oldest_taken(me), |oldest, ticket| {
                // It is ours until it is acknowledged.
                match ring.read(ticket, me.cpu) {
                    Announcement::Ours(initiator, slot) => {
                        Some(self.older(oldest, self.found_in_ring(initiator, slot, ticket)))
                    }
                    _ => oldest,
                }
            });
        let Some((_, found)) = oldest else {
            return false;
        };
        match found.ticket {
            Some(ticket) => me.ring.has_read(ticket),
            // This is its last: what it asks for later it announces in the inbox. (It may have been given up meanwhile.)
            None if (self.functions_of(me, found.initiator))
                .all(|left| left.slot == found.slot) =>
            {
                me.taken.remove(found.initiator);
            }
            None => {}
        }
        // SAFETY: 1. just seen.
        unsafe { self.serve_one(me, found) };
        true
    }

    /// The oldest function of the first initiators that wait. Those that have none do not wait any more.
    fn oldest_taken(&self, me: Here<'_, P>) -> Option<(Number, Found)> {
        let mut oldest = None;
        for (compared, initiator) in me.taken.iter_from(me.cpu).enumerate() {
            let mut functions = self.functions_of(me, initiator).peekable();
            if functions.peek().is_none() {
                me.taken.remove(initiator);
            }
            oldest = functions.fold(oldest, |oldest, found| Some(self.older(oldest, found)));
            if compared + 1 == COMPARED && oldest.is_some() {
                break;
            }
        }
        oldest
    }

    /// The functions of `initiator` that are found by the inbox. Its flushes were served before.
    fn functions_of(&self, me: Here<'_, P>, initiator: CpuId) -> impl Iterator<Item = Found> {
        let slots = &self.state(initiator).slots;
        Self::requests_in(slots, me, initiator, slots[0].slots_in_use())
            .filter(|found| !found.kind.has(Kind::FLUSH))
    }

    /// The older of `one` and the function that was `found`, with its number.
    fn older(&self, one: Option<(Number, Found)>, found: Found) -> (Number, Found) {
        let number = self.slot_of(found).number();
        match one {
            Some(one) if one.0.is_before(number) => one,
            _ => (number, found),
        }
    }

    /// Begins a stretch in which functions may run.
    #[inline]
    pub(super) fn begin_pace(&self) -> Pace {
        Pace {
            since_ns: self.platform.now_ns(),
            served: 0,
        }
    }

    /// One more initiator, or announcement, was served: when the stretch has become long, serves the flushes that have come, and notes whether
    /// functions are slow.
    #[inline]
    pub(super) fn keep_pace(&self, me: Here<'_, P>, pace: &mut Pace) {
        pace.served += 1;
        if self.platform.now_ns().saturating_sub(pace.since_ns) >= PATIENCE_NS {
            self.end_pace(me, pace);
            if me.inbox.is_urgent() || self.is_broadcast_due(me.cpu, me.state, true) {
                self.serve_flushes(me);
            }
            *pace = self.begin_pace();
        }
    }

    /// Notes at the end of a stretch whether functions are slow.
    fn end_pace(&self, me: Here<'_, P>, pace: &Pace) {
        let took_ns = self.platform.now_ns().saturating_sub(pace.since_ns);
        if let Some(each_ns) = took_ns.checked_div(pace.served) {
            me.is_slow.set(each_ns >= SLOW_NS);
        }
    }
}
