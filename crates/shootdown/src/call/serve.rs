//! The responder's half of a call: what the interrupt handler does.
//!
//! It neither allocates, locks nor logs, and every loop here has a bound (I9). Flushes come before any
//! function in the same interrupt, also those that arrive while functions run. Functions are taken one at a time, the
//! oldest first. So low CPU numbers have no advantage, and the targets of two calls agree which goes first: if they did
//! not, both calls would end late. (That is worth up to 10 % of the whole time where two callers share 64 targets:
//! docs/measuring.md.)

use crate::call::backlog::{Backlog, Found};
use crate::call::{Run, SLOTS, Slot};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

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
            self.prefetch_inbox(me);
        }
        let served = self.serve(me);
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
        if self.state(self.platform.current_cpu()).inbox.is_quiet() {
            return false;
        }
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        let served = self.serve(me);
        if served {
            self.state(me).counters.polls_served.add(1);
        }
        drop(irq);
        served
    }

    /// Serves until the inbox stays empty or the bound is reached. Interrupts are off.
    pub(crate) fn serve(&self, me: CpuId) -> bool {
        let state = self.state(me);
        if state.in_function.get() {
            return self.serve_flushes_only(me);
        }
        let mut served = false;
        let mut backlog = Backlog::EMPTY;
        // Initiators whose functions found no room there.
        let mut waiting = CpuMask::EMPTY;
        for _ in 0..TURNS_PER_CPU * N {
            if let Some(fresh) = state.inbox.take() {
                served = true;
                for initiator in fresh.iter_from(state.serve_next.get()) {
                    if waiting.is_empty() && backlog.has_room() {
                        self.take_turn(me, initiator, &mut backlog);
                    } else if !self.look_at(me, initiator, None) {
                        waiting.insert(initiator);
                    }
                }
            }
            self.refill(me, &mut backlog, &mut waiting);
            let Some(oldest) = backlog.take_oldest() else {
                if waiting.is_empty() && state.inbox.is_quiet() {
                    return served;
                }
                continue;
            };
            self.run(me, oldest);
        }
        for initiator in backlog.initiators() {
            waiting.insert(initiator);
        }
        self.defer(me, &waiting);
        served
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

    /// The bound was reached: let this interrupt end and another one continue.
    #[cold]
    fn defer(&self, me: CpuId, waiting: &CpuMask<N>) {
        let state = self.state(me);
        if waiting.is_empty() && state.inbox.is_quiet() {
            return;
        }
        state.inbox.put_back(waiting);
        while self.platform.send_ipi(me).is_err() {
            state.counters.ipis_refused.add(1);
            self.platform.relax();
        }
        state.counters.ipis_sent.add(1);
    }

    /// What a CPU can serve while a called function runs on it: flushes. Functions stay in the inbox, which
    /// whoever runs the present function looks at again when it returns.
    fn serve_flushes_only(&self, me: CpuId) -> bool {
        let state = self.state(me);
        let Some(fresh) = state.inbox.take() else {
            return false;
        };
        let mut waiting = CpuMask::EMPTY;
        for initiator in fresh.iter() {
            if !self.look_at(me, initiator, None) {
                waiting.insert(initiator);
            }
        }
        if !waiting.is_empty() {
            state.inbox.put_back(&waiting);
        }
        true
    }

    /// Serves the flush requests of `initiator` and adds its functions to the backlog, which has room if there is one; tells
    /// whether nothing is left of it.
    fn look_at(&self, me: CpuId, initiator: CpuId, mut backlog: Option<&mut Backlog>) -> bool {
        let slots = &self.state(initiator).slots;
        if self.prefetches() {
            // Most requests are in the first slot and are acknowledged at once: fetching its line for
            // writing saves the second transfer that an acknowledgement after a read costs.
            self.platform
                .prefetch_write(core::ptr::from_ref(&slots[0]).addr());
        }
        let mut is_all = true;
        for (index, slot) in slots.iter().enumerate() {
            let Some(kind) = slot.kind_for(me) else {
                continue;
            };
            if kind.is_flush() {
                self.serve_flush(me, initiator, index, slot);
                continue;
            }
            match &mut backlog {
                Some(backlog) => backlog.add(Found {
                    initiator,
                    index,
                    kind,
                    age: slot.sequence(),
                }),
                None => is_all = false,
            }
        }
        is_all
    }

    /// Runs a function of the backlog.
    fn run(&self, me: CpuId, found: Found) {
        let Found {
            initiator,
            index,
            kind,
            ..
        } = found;
        let slot = &self.state(initiator).slots[index];
        // SAFETY: 1. we found it, it was in the backlog once, and nobody else acknowledges for us.
        let request = unsafe { slot.contents() };
        let counters = &self.state(me).counters;
        counters.shared_lines_read.add(1);
        if kind.is_ack_first() {
            self.acknowledge(me, initiator, slot);
        }
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
            self.acknowledge(me, initiator, slot);
        }
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

    /// Clears this CPU's bit in a request.
    pub(crate) fn acknowledge(&self, me: CpuId, initiator: CpuId, slot: &Slot<N>) {
        slot.acknowledge(me);
        self.platform
            .on_trace(TraceEvent::Acknowledged { cpu: me, initiator });
    }
}
