//! The responder's half of a call: what the interrupt handler does.
//!
//! It neither allocates, locks nor logs, and every loop here has a bound (I9). Flushes come before any
//! function in the same interrupt, also those that arrive while functions run. Functions that arrive then wait for the
//! next interrupt, which a responder sends itself; those that it finds are taken one at a time, the oldest first. So low
//! CPU numbers have no advantage, and the targets of two calls agree which goes first: if they did not, both calls would end
//! late. (That is worth up to 10 % of the whole time where two callers share 64 targets: docs/measuring.md.)

use crate::call::backlog::{Backlog, Found};
use crate::call::inbox::Next;
use crate::call::ring::{Heard, MOST_HEARD};
use crate::call::{Kind, Request, Run, SLOTS, Slot};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::tlb::TlbGen;
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

/// Turns of the serving loop in one interrupt, per CPU of the machine: enough for every slot of every
/// initiator once. What is left then is served by another interrupt that the responder sends itself.
const TURNS_PER_CPU: usize = SLOTS;

/// Where a responder found a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Whose it is.
    pub(crate) initiator: CpuId,
    /// In which slot.
    pub(crate) index: usize,
    /// Under which ticket it was announced in the ring; 0 in the inbox.
    pub(crate) ticket: u64,
}

/// What a look at one slot found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// Nothing that names this CPU.
    Nothing,
    /// A flush, which is served, or a function, which is in the backlog.
    Served,
    /// A function that cannot run now.
    Left,
}

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
        let served = self.serve(me, Next::Attend);
        self.rest(me);
        let counters = &self.state(me).counters;
        counters.ipis_received.add(1);
        if !served {
            counters.ipis_spurious.add(1);
        }
        self.platform.on_trace(TraceEvent::HandlerLeft { cpu: me });
        drop(irq);
    }

    /// Serves what waits for this CPU; tells whether there was anything. Interrupts in any state.
    ///
    /// Call it in every loop that spins with interrupts off for something another CPU holds (a lock): that
    /// CPU may be waiting for this one. Inside a called function it serves flushes only.
    pub fn poll(&self) -> bool {
        // A stale CPU number here costs one empty look, or one missed look that the interrupt makes up for.
        let me = self.platform.current_cpu();
        if self.state(me).inbox.is_quiet(me) && !self.is_broadcast_due(me) {
            return false;
        }
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        let served = self.serve(me, Next::Leave);
        if served {
            self.state(me).counters.polls_served.add(1);
        }
        drop(irq);
        served
    }

    /// Serves what is there, but not the functions that come meanwhile: the interrupted task, or the waiter that polls, must get
    /// on too when others go on calling. `next` is what the caller promises about these. Interrupts are off.
    pub(crate) fn serve(&self, me: CpuId, next: Next) -> bool {
        let state = self.state(me);
        if state.in_function.get() {
            return self.serve_flushes_only(me);
        }
        let mut served = false;
        let mut backlog = Backlog::new();
        // Initiators whose functions found no room there, and those that came later.
        let (mut waiting, mut later) = (CpuMask::EMPTY, CpuMask::EMPTY);
        for turn in 0..TURNS_PER_CPU * N {
            if turn == 0 || state.left_over.replace(false) {
                served |= self.look_around(me, next, &mut backlog, &mut waiting);
            } else {
                self.look_for_flushes(me, next, &mut later);
            }
            self.refill(me, &mut backlog, &mut waiting);
            if let Some(oldest) = backlog.take_oldest() {
                self.run(me, oldest, &mut backlog);
            } else if waiting.is_empty() && !state.left_over.get() {
                break;
            }
        }
        // What was taken out of inbox and ring is in no other place.
        while let Some(oldest) = backlog.take_oldest() {
            self.run(me, oldest, &mut backlog);
        }
        waiting.unite(&later);
        self.defer(me, next, &waiting);
        served
    }

    /// Empties inbox and ring into the backlog, as far as that has room, and serves their flushes; tells whether there was
    /// anything.
    fn look_around(
        &self,
        me: CpuId,
        next: Next,
        backlog: &mut Backlog,
        waiting: &mut CpuMask<N>,
    ) -> bool {
        let state = self.state(me);
        let fresh = state.inbox.take(me, next);
        let several = fresh.as_ref().filter(|fresh| fresh.has_several());
        if let Some(several) = several {
            self.note_newest(me, several);
        }
        for initiator in fresh
            .iter()
            .flat_map(|fresh| fresh.iter_from(state.serve_next.get()))
        {
            if waiting.is_empty() && backlog.has_room() {
                self.take_turn(me, initiator, backlog);
            } else if !self.look_at(me, initiator, None) {
                waiting.insert(initiator);
            }
        }
        if several.is_some() {
            state.tlb.set_newest(TlbGen::from_raw(0));
        }
        self.hear(me, Some(backlog)) || fresh.is_some()
    }

    /// Serves the flushes that have come while functions ran; notes whose functions have.
    fn look_for_flushes(&self, me: CpuId, next: Next, later: &mut CpuMask<N>) {
        if self.state(me).inbox.is_urgent() {
            self.take_flushes(me, next, later);
        }
        if self.is_broadcast_due(me) {
            self.hear(me, None);
        }
    }

    /// Empties the inbox and serves its flushes; notes whose functions are left. Tells whether there was anything.
    fn take_flushes(&self, me: CpuId, next: Next, left: &mut CpuMask<N>) -> bool {
        let Some(fresh) = self.state(me).inbox.take(me, next) else {
            return false;
        };
        for initiator in fresh.iter() {
            if !self.look_at(me, initiator, None) {
                left.insert(initiator);
            }
        }
        true
    }

    /// Finds the functions of those that wait for room, as far as there is some.
    fn refill(&self, me: CpuId, backlog: &mut Backlog, waiting: &mut CpuMask<N>) {
        while backlog.has_room()
            && let Some(initiator) = waiting.next_from(self.state(me).serve_next.get())
        {
            waiting.remove(initiator);
            self.take_turn(me, initiator, backlog);
        }
    }

    /// Serves the flushes of `initiator` and adds its functions to the backlog, which has room; the next turn is the next
    /// CPU's.
    fn take_turn(&self, me: CpuId, initiator: CpuId, backlog: &mut Backlog) {
        self.look_at(me, initiator, Some(backlog));
        self.state(me)
            .serve_next
            .set(CpuId::from_index((initiator.index() + 1) % N));
    }

    /// Lets this interrupt end and another one go on with those that are `waiting`: they came while functions ran, or the bound
    /// was reached.
    fn defer(&self, me: CpuId, next: Next, waiting: &CpuMask<N>) {
        if !waiting.is_empty() {
            self.state(me).inbox.put_back(waiting);
        }
        // Who attends finds what was put back when it rests.
        let is_left = !waiting.is_empty() && next == Next::Leave;
        if self.state(me).left_over.replace(false) || is_left {
            self.interrupt_myself(me);
        }
    }

    /// Ends what taking with [`Next::Attend`] promised: whoever has come meanwhile sent no interrupt, so this CPU sends itself one.
    fn rest(&self, me: CpuId) {
        if !self.state(me).inbox.rest(me) {
            self.interrupt_myself(me);
        }
    }

    fn interrupt_myself(&self, me: CpuId) {
        let counters = &self.state(me).counters;
        while self.platform.send_ipi(me).is_err() {
            counters.ipis_refused.add(1);
            self.platform.relax();
        }
        counters.ipis_sent.add(1);
    }

    /// What a CPU can serve while a called function runs on it: flushes. Functions stay in the inbox, which
    /// whoever runs the present function looks at again when it returns.
    fn serve_flushes_only(&self, me: CpuId) -> bool {
        let state = self.state(me);
        let mut waiting = CpuMask::EMPTY;
        let served = self.hear(me, None) | self.take_flushes(me, Next::Leave, &mut waiting);
        if !waiting.is_empty() {
            state.inbox.put_back(&waiting);
            state.left_over.set(true);
        }
        served
    }

    /// Whether a broadcast has come since this CPU looked last; a hint.
    pub(crate) fn is_broadcast_due(&self, me: CpuId) -> bool {
        #[cfg(loom)]
        if self.ring_of(me).is_used.get() == 0 {
            return false;
        }
        self.ring_of(me).is_due(self.state(me).ears.next())
    }

    /// Hears the broadcasts that this CPU has not heard, as far as the backlog has room; without one their flushes only. Tells
    /// whether any was served or kept.
    fn hear(&self, me: CpuId, mut backlog: Option<&mut Backlog>) -> bool {
        let (ears, ring) = (&self.state(me).ears, self.ring_of(me));
        #[cfg(loom)]
        if ring.is_used.get() == 0 {
            return false;
        }
        let (mut is_named, mut from) = (false, 0);
        for _ in 0..MOST_HEARD {
            if backlog.as_ref().is_some_and(|backlog| !backlog.has_room()) {
                // There may be more, whose interrupts have come.
                self.state(me).left_over.set(true);
                break;
            }
            let Some(ticket) = ears.next_from(from) else {
                break;
            };
            from = ticket + 1;
            match ring.hear(ticket, me) {
                Heard::Nothing => break,
                Heard::Gone(later) => ears.forget(later),
                Heard::Incomplete => {}
                Heard::NotOurs => ears.hear(ticket),
                Heard::Ours(initiator, index) => {
                    let place = Place {
                        initiator,
                        index,
                        ticket,
                    };
                    let kind = self.state(initiator).slots[index].kind();
                    // SAFETY: 1. a target hears each ticket once.
                    let look =
                        unsafe { self.serve_or_keep(me, place, kind, backlog.as_deref_mut()) };
                    if look == Look::Served {
                        ears.hear(ticket);
                        is_named = true;
                    }
                }
            }
        }
        is_named
    }

    /// Serves the flush requests of `initiator` and adds its functions to the backlog, which has room if there is one; tells
    /// whether nothing is left of it.
    fn look_at(&self, me: CpuId, initiator: CpuId, mut backlog: Option<&mut Backlog>) -> bool {
        let slots = &self.state(initiator).slots;
        if self.prefetches() {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform.prefetch_write(slots[0].line_of(me));
        }
        let mut is_all = true;
        for index in slots[0].others().with_first() {
            let look = self.look_at_slot(me, initiator, index, backlog.as_deref_mut());
            is_all &= look != Look::Left;
        }
        is_all
    }

    /// The same for one slot.
    fn look_at_slot(
        &self,
        me: CpuId,
        initiator: CpuId,
        index: usize,
        backlog: Option<&mut Backlog>,
    ) -> Look {
        let slot = &self.state(initiator).slots[index];
        let place = Place {
            initiator,
            index,
            ticket: 0,
        };
        match slot
            .kind_for(me)
            .filter(|kind| !slot.is_in_ring_of(me, *kind))
        {
            None => Look::Nothing,
            // SAFETY: 1. just seen, and not in the ring, where it could be found again.
            Some(kind) => unsafe { self.serve_or_keep(me, place, kind, backlog) },
        }
    }

    /// Serves a request if it is a flush, and adds it to the backlog, if there is one, if it is a function.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    unsafe fn serve_or_keep(
        &self,
        me: CpuId,
        place: Place,
        kind: Kind,
        backlog: Option<&mut Backlog>,
    ) -> Look {
        if kind.is_flush() {
            // SAFETY: duty 1.
            unsafe { self.serve_flush(me, place, kind) };
            return Look::Served;
        }
        let Some(backlog) = backlog else {
            return Look::Left;
        };
        backlog.add(Found {
            place,
            kind,
            age: self.slot_at(place).sequence(),
        });
        Look::Served
    }

    /// Runs a function that was in the backlog, and acknowledges it for all there that ask for the same.
    fn run(&self, me: CpuId, found: Found, backlog: &mut Backlog) {
        let Found { place, kind, .. } = found;
        // SAFETY: 1. we found it, it was in the backlog once, and nobody else acknowledges for us.
        let request = unsafe { self.slot_at(place).contents() };
        // Before it runs: what is published later may be about what it has not seen.
        let same = kind.merges().then(|| self.take_same(me, &request, backlog));
        let counters = &self.state(me).counters;
        counters.shared_lines_read.add(1);
        if kind.is_ack_first() {
            self.acknowledge(me, place);
        }
        let initiator = place.initiator;
        self.platform
            .on_trace(TraceEvent::FunctionStarted { cpu: me, initiator });
        self.enter_function(me, request.run, || {
            // SAFETY: `run` and `payload` were published together by `Shootdown::submit_*`, which chose `run`
            // for the type in `payload`; a borrowed closure lives until we acknowledge below (I11).
            unsafe { (request.run)(Some(&request.payload), me) };
        });
        self.platform
            .on_trace(TraceEvent::FunctionFinished { cpu: me, initiator });
        if !kind.is_ack_first() {
            self.acknowledge(me, place);
        }
        if let Some(mut same) = same {
            while let Some(other) = same.take_oldest() {
                self.acknowledge(me, other.place);
            }
        }
    }

    /// Takes those out of the backlog that lend the function of `request`, which is one that merges.
    fn take_same(&self, me: CpuId, request: &Request, backlog: &mut Backlog) -> Backlog {
        let mut same = Backlog::new();
        let is_same = |found: &Found| {
            if !found.kind.merges() {
                return false;
            }
            let counters = &self.state(me).counters;
            counters.shared_lines_read.add(1);
            // SAFETY: 1. as in `run`.
            let other = unsafe { self.slot_at(found.place).contents() };
            other.lends_the_same(request)
        };
        while let Some(other) = backlog.take_if(is_same) {
            self.state(me).counters.functions_merged.add(1);
            same.add(other);
        }
        same
    }

    /// Runs `function` here as a called function: interrupts are off, and it may not call others and wait.
    /// `run` is for the watchdog, which gets the name from it.
    pub(crate) fn enter_function(&self, me: CpuId, run: Run, function: impl FnOnce()) {
        /// A function that unwinds past us would leave its initiator waiting for ever, on top of borrowed
        /// memory; panicking again while unwinding aborts instead.
        struct NoUnwind;
        impl Drop for NoUnwind {
            fn drop(&mut self) {
                panic!("a called function unwound: its initiator would wait for ever");
            }
        }
        let state = self.state(me);
        let bomb = NoUnwind;
        let nested = state.in_function.replace(true);
        let before = state.diary.begins(Entry::function(run));
        function();
        state.diary.begins(before);
        state.in_function.set(nested);
        core::mem::forget(bomb);
        state.counters.functions_run.add(1);
    }

    pub(crate) fn slot_at(&self, place: Place) -> &Slot<N> {
        &self.state(place.initiator).slots[place.index]
    }

    /// Tells the initiator that this CPU has done what it asked for.
    pub(crate) fn acknowledge(&self, me: CpuId, place: Place) {
        let slot = self.slot_at(place);
        if place.ticket == 0 {
            slot.acknowledge(me);
        } else if let Some(all) = self.ring_of(me).acknowledge(place.ticket, me) {
            slot.acknowledge_all(me.index() / 64, all);
        }
        self.platform.on_trace(TraceEvent::Acknowledged {
            cpu: me,
            initiator: place.initiator,
        });
    }
}
