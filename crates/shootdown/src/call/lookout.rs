//! [`Watcher::look`]: requests that no wait of the engine looks after.
//!
//! A CPU that has published a request, and is stuck before it waits (its platform's `send_ipi` waits for the target), looks at no clock; who has
//! posted never waits. So the other CPUs' timer ticks look: each at one CPU's slots at a time, and at one request there until it is done.

use crate::call::{Number, RequestRef, SLOTS};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::Watcher;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::OwnWord;
use crate::watchdog::{FoundBy, Stall};

/// CPUs of which one look tries to find one that has memory.
const MOST_TRIED: usize = 64;

/// The request that a CPU's ticks look after.
#[derive(Debug)]
pub(crate) struct Lookout {
    /// Its slot, counted through all CPUs; if there is none, the last slot that was looked at.
    place: OwnWord,
    number: OwnWord,
    /// Since when; 0 while there is none.
    since_ns: OwnWord,
    /// Since when looks have found data posted to this CPU; 0 if the last one has found none.
    posted_since_ns: OwnWord,
}

impl Lookout {
    pub(crate) const fn new() -> Self {
        Self {
            place: OwnWord::new(),
            number: OwnWord::new(),
            since_ns: OwnWord::new(),
            posted_since_ns: OwnWord::new(),
        }
    }

    fn request(&self) -> RequestRef {
        let place = self.place.get() as usize;
        RequestRef {
            initiator: CpuId::from_index(place / SLOTS),
            slot: place % SLOTS,
            number: Number::of_word(self.number.get()),
        }
    }
}

impl<P: Platform> Watcher<'_, P> {
    /// Looks after what no wait of the engine looks after, and reports to [`Platform::on_stall`] what has taken twice as long as
    /// [`set_stall_ns`](Self::set_stall_ns) allows, with [`FoundBy::Look`]: requests whose initiator posted and went on, or is stuck in
    /// [`Platform::send_ipi`], where it looks at no clock; and data that were posted to this CPU and do not run. Their interrupts are sent again. A request is
    /// found after as many looks as there are CPUs, and as many stalls as there are before it. Also asks again for an interrupt to this CPU itself that the platform has refused.
    ///
    /// Call it from the timer tick of each CPU; without it such a stall is silent. Any context but NMI; reads a few words of one other
    /// CPU, and does not block. On a CPU without [memory](Shootdown::attach) it does nothing.
    pub fn look(self) {
        let engine = self.0;
        let stall = {
            let _irq = engine.irq_guard();
            let cpu = engine.platform.current_cpu();
            let Some(state) = engine.attached(cpu) else {
                return;
            };
            let here = Here { cpu, state };
            (engine.look_at_own(here))
                .or_else(|| engine.look_at_posted(here))
                .or_else(|| engine.look_out(here))
        };
        if let Some(stall) = stall {
            engine.platform.on_stall(&Stall {
                found_by: FoundBy::Look,
                ..stall
            });
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Asks again for the interrupt that this CPU owes itself.
    fn look_at_own(&self, here: Here<'_, P>) -> Option<Stall> {
        let since_ns = &here.owes_interrupt_since;
        if since_ns.get() == 0 {
            return None;
        }
        self.interrupt_self(here);
        self.missing_here(here, since_ns, 1)
    }

    /// Asks for the interrupt once more for which data wait that were posted to this CPU: it may have got lost.
    fn look_at_posted(&self, here: Here<'_, P>) -> Option<Stall> {
        let since_ns = &here.lookout.posted_since_ns;
        if here.posted.0.is_empty() {
            since_ns.set(0);
            return None;
        }
        if since_ns.get() == 0 {
            since_ns.set(self.platform.now_ns().max(1));
            return None;
        }
        self.interrupt_self(here);
        self.missing_here(here, since_ns, 2)
    }

    /// Reports that this CPU has missed an interrupt to itself `since_ns`, if it has and that is so many stalls ago; then counts anew.
    fn missing_here(&self, here: Here<'_, P>, since_ns: &OwnWord, stalls: u64) -> Option<Stall> {
        let now_ns = self.platform.now_ns();
        let waited_ns = now_ns.saturating_sub(since_ns.get());
        if since_ns.get() == 0 || waited_ns < self.stall_limit_ns()?.saturating_mul(stalls) {
            return None;
        }
        since_ns.set(now_ns.max(1));
        Some(self.refusal(here.cpu, waited_ns))
    }

    /// Looks at the request that this CPU looks after; then, or if it is done, for another one.
    fn look_out(&self, here: Here<'_, P>) -> Option<Stall> {
        let limit_ns = self.stall_limit_ns()?;
        let (lookout, now_ns) = (&here.lookout, self.platform.now_ns());
        let request = lookout.request();
        let mut stall = None;
        if lookout.since_ns.get() != 0 && !self.is_done(request) {
            let waited_ns = now_ns.saturating_sub(lookout.since_ns.get());
            if waited_ns < limit_ns.saturating_mul(2) {
                return None;
            }
            // Others wait behind it. If nobody else reports it any more, the next who comes does.
            let until_ns = self.quiet_until(now_ns, waited_ns);
            let activity = &self.state(request.initiator).activity;
            if activity.claims(request.slot, request.number, now_ns, until_ns) {
                stall = self.stall_of(request, waited_ns);
            }
        }
        self.look_for_another(here, now_ns);
        stall
    }

    /// Looks at the next slots: those of the same CPU, then those of the next one.
    fn look_for_another(&self, here: Here<'_, P>, now_ns: u64) {
        let lookout = &here.lookout;
        lookout.since_ns.set(0);
        let mut place = lookout.place.get() as usize;
        for _ in 0..=MOST_TRIED.min(P::Cpus::CPUS) {
            let (cpu, first) = ((place + 1) / SLOTS % P::Cpus::CPUS, (place + 1) % SLOTS);
            place = cpu * SLOTS + SLOTS - 1;
            let Some(state) = self.cpus()[cpu].get() else {
                continue;
            };
            if let Some(slot) = (first..SLOTS).find(|slot| !state.slots[*slot].is_free()) {
                place = cpu * SLOTS + slot;
                lookout.number.set(state.slots[slot].number().bits());
                lookout.since_ns.set(now_ns.max(1));
                break;
            }
            // The rest of the CPU before costs no line more.
            if first == 0 {
                break;
            }
        }
        lookout.place.set(place as u64);
    }
}
