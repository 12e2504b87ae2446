//! Running a called function, and acknowledging a request.

use crate::call::{Answer, Found, Kind, RequestRef, Slot};
use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::memory::Here;
use crate::platform::Platform;
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

impl<P: Platform> Shootdown<P> {
    /// Runs the function that was `found` here, and acknowledges it, unless it was given up. Interrupts are off.
    ///
    /// # Safety
    /// 1. It names this CPU, which has not acknowledged it.
    // Always: out of line it costs a call 30 instructions.
    #[inline(always)]
    pub(super) unsafe fn run_and_acknowledge(&self, me: Here<'_, P>, found: Found) {
        const RARE: Kind = Kind::ACK_FIRST.with(Kind::REVOCABLE);
        me.counters.shared_lines_read.add(1);
        let request;
        if found.kind.has(RARE) {
            // Before its contents are read: those of one that was given up may be another's.
            if found.kind.has(Kind::REVOCABLE)
                && !self.begin_revocable(me.cpu, found.initiator, found.slot)
            {
                return;
            }
            // SAFETY: duty 1; one that has begun is not given up.
            request = unsafe { self.slot_of(found).contents() };
            if found.kind.has(Kind::ACK_FIRST) {
                self.acknowledge(me, found);
            }
        } else {
            // SAFETY: duty 1.
            request = unsafe { self.slot_of(found).contents() };
        }
        let (cpu, initiator) = (me.cpu, found.initiator);
        if let Some(run) = request.run {
            self.platform
                .on_trace(TraceEvent::FunctionStarted { cpu, initiator });
            self.enter(me, Entry::of(&request), || {
                // SAFETY: `run` and `payload` were published together by `call`, `submit` or `try_post`, which chose `run`
                // for the type in `payload`; a borrowed closure lives until we acknowledge (I11).
                unsafe { run(Some(&request.payload), cpu) };
            });
            self.platform
                .on_trace(TraceEvent::FunctionFinished { cpu, initiator });
        }
        if !found.kind.has(Kind::ACK_FIRST) {
            self.acknowledge(me, found);
        }
    }

    /// Runs `function` here as a called function, under a name for the watchdog: interrupts are off, and it may not call others and wait.
    #[inline]
    pub(super) fn enter(&self, me: Here<'_, P>, entry: Entry, function: impl FnOnce()) {
        debug_assert!(!me.in_function.get());
        me.in_function.set(true);
        let before = me.activity.begins(entry);
        // On top of borrowed memory.
        no_unwind(
            "a called function unwound: its initiator would wait for ever",
            function,
        );
        if P::CONFIG.has_walks && me.walks.is_inside() {
            left_walk();
        }
        me.activity.begins(before);
        me.in_function.set(false);
        self.come_again(me);
        me.counters.functions_run.add(1);
    }

    /// Functions that an interrupt found meanwhile run in another one, not under the locks of our caller (I7).
    #[inline]
    pub(crate) fn come_again(&self, me: Here<'_, P>) {
        if me.came_again.get() {
            me.came_again.set(false);
            self.interrupt_self(me);
        }
    }

    #[inline]
    pub(crate) fn slot_of(&self, found: Found) -> &Slot<P::Cpus> {
        &self.state(found.initiator).slots[found.slot]
    }

    /// Tells the initiator that this CPU has done what it asked for.
    #[inline]
    pub(crate) fn acknowledge(&self, me: Here<'_, P>, found: Found) {
        let (slot, group) = (self.slot_of(found), P::Cpus::group(me.cpu));
        if P::CONFIG.has_deaths && P::Cpus::IS_WIDE {
            let answered = RequestRef {
                initiator: found.initiator,
                slot: found.slot,
                number: slot.number(),
            };
            me.last_answer.set(Answer {
                request: answered,
                group,
                is_given_up: false,
            });
        }
        match found.ticket.filter(|_| Self::HAS_RINGS) {
            None => slot.acknowledge(group, P::Cpus::bit(me.cpu)),
            Some(ticket) => {
                if let Some(all) = self.rings()[group].acknowledge(ticket, me.cpu) {
                    slot.acknowledge(group, all);
                }
            }
        }
        self.platform.on_trace(TraceEvent::Acknowledged {
            cpu: me.cpu,
            initiator: found.initiator,
        });
    }
}

#[cold]
#[inline(never)]
fn left_walk() -> ! {
    no_unwind("a called function has left a walk", || {
        panic!("a called function has begun a walk, and not ended it: others would wait for ever")
    })
}
