//! Running a called function, and acknowledging a request.

use crate::call::{Kind, Place, Request, Seat, Slot};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::memory::Here;
use crate::platform::Platform;
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

impl<P: Platform> Shootdown<P> {
    /// Runs the function of `request`, which lies at this place, and acknowledges it. Interrupts are off.
    // Always: out of line it costs a call 30 instructions.
    #[inline(always)]
    pub(super) fn run_and_acknowledge(
        &self,
        me: Here<'_, P>,
        place: Place,
        kind: Kind,
        request: &Request,
    ) {
        me.counters.shared_lines_read.add(1);
        if kind.is_ack_first() {
            self.acknowledge(me, place);
        }
        self.run_request(me, place.initiator, request);
        if !kind.is_ack_first() {
            self.acknowledge(me, place);
        }
    }

    #[inline]
    fn run_request(&self, me: Here<'_, P>, initiator: CpuId, request: &Request) {
        let (cpu, Some(run)) = (me.cpu, request.function()) else {
            return;
        };
        self.platform
            .on_trace(TraceEvent::FunctionStarted { cpu, initiator });
        self.enter(me, Entry::function(run), || {
            // SAFETY: `run` and `payload` were published together by `call`, `submit` or `try_post`, which chose `run`
            // for the type in `payload`; a borrowed closure lives until we acknowledge (I11).
            unsafe { run(Some(&request.payload), cpu) };
        });
        self.platform
            .on_trace(TraceEvent::FunctionFinished { cpu, initiator });
    }

    /// Runs `function` here as a called function, under a name for the watchdog: interrupts are off, and it may not call others and wait.
    #[inline]
    pub(super) fn enter(&self, me: Here<'_, P>, entry: Entry, function: impl FnOnce()) {
        me.phase.begin_function();
        let before = me.activity.begins(entry);
        // On top of borrowed memory.
        no_unwind(
            "a called function unwound: its initiator would wait for ever",
            function,
        );
        me.activity.begins(before);
        // Functions that an interrupt found meanwhile run in another one, not under the locks of our caller (I7).
        if me.phase.end_function() {
            self.interrupt_self(me);
        }
        me.counters.functions_run.add(1);
    }

    #[inline]
    pub(crate) fn slot_at(&self, place: Place) -> &Slot<P::Cpus> {
        &self.state(place.initiator).slots[place.slot]
    }

    /// Where `cpu` sits in its ring.
    #[inline]
    pub(crate) fn seat_of(&self, cpu: CpuId) -> Seat {
        let leaf_cpus = P::Cpus::LEAF_CPUS;
        let leaf = cpu.index() % P::Cpus::GROUP_CPUS / leaf_cpus;
        Seat::new(P::Cpus::bit(cpu), leaf, leaf_cpus)
    }

    /// Tells the initiator that this CPU has done what it asked for.
    #[inline]
    pub(crate) fn acknowledge(&self, me: Here<'_, P>, place: Place) {
        let slot = self.slot_at(place);
        match place.ticket.filter(|_| Self::HAS_RINGS) {
            None => slot.acknowledge(me.cpu),
            Some(ticket) => {
                let ring = self.ring_of(me.cpu);
                if let Some(all) = ring.acknowledge(ticket, self.seat_of(me.cpu)) {
                    slot.acknowledge_all(P::Cpus::group(me.cpu), all);
                }
            }
        }
        self.platform.on_trace(TraceEvent::Acknowledged {
            cpu: me.cpu,
            initiator: place.initiator,
        });
    }
}
