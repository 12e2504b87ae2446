//! [`Shootdown::look`]: requests that no wait of the engine looks after.
//!
//! A CPU that has published a request, and is stuck before it waits (its platform's `send_ipi` waits for the target), looks at no clock; who has
//! posted never waits. So the other CPUs' timer ticks look: each at one CPU's slots at a time, and at one request there until it is done.

use crate::call::{Number, RequestRef};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::OwnWord;
use crate::watchdog::{FoundBy, Stall};

/// CPUs of which one look tries to find one that has memory.
const MOST_TRIED: usize = 64;

/// The request that a CPU's ticks look after.
#[derive(Debug)]
pub(crate) struct Lookout {
    initiator: OwnWord,
    slot: OwnWord,
    number: OwnWord,
    /// Since when; 0 while there is none.
    since_ns: OwnWord,
    /// Reports of it by this CPU.
    reports: OwnWord,
}

impl Lookout {
    pub(crate) const fn new() -> Self {
        Self {
            initiator: OwnWord::new(),
            slot: OwnWord::new(),
            number: OwnWord::new(),
            since_ns: OwnWord::new(),
            reports: OwnWord::new(),
        }
    }

    fn request(&self) -> RequestRef {
        RequestRef {
            initiator: CpuId::new(self.initiator.get() as u32),
            slot: self.slot.get() as usize,
            number: Number::from_header(self.number.get()),
        }
    }
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Looks after what no wait of the engine looks after, and reports to [`Platform::on_stall`] what has taken twice as long as
    /// [`set_stall_ns`](Self::set_stall_ns) allows, with [`FoundBy::Look`]: requests whose initiator posted and went on, or is stuck in
    /// [`Platform::send_ipi`], where it looks at no clock. Their interrupts are sent again. A request is found after as many looks as there are CPUs,
    /// by one of those that look. Also asks again for an interrupt to this CPU itself that the platform has refused.
    ///
    /// Call it from the timer tick of each CPU; without it such a stall is silent. Any context but NMI; reads a few words of one other
    /// CPU, and does not block. On a CPU without [memory](Self::attach) it does nothing.
    pub fn look(&self) {
        let stall = {
            let _irq = self.irq_guard();
            let cpu = self.platform.current_cpu();
            let Some(state) = self.attached(cpu) else {
                return;
            };
            let here = Here { cpu, state };
            self.look_at_own(here).or_else(|| self.look_out(here))
        };
        if let Some(stall) = stall {
            self.platform.on_stall(&stall);
        }
    }

    /// Asks again for the interrupt that this CPU owes itself.
    fn look_at_own(&self, here: Here<'_, N>) -> Option<Stall> {
        let since_ns = &here.owes_interrupt_since;
        if since_ns.get() == 0 {
            return None;
        }
        self.interrupt_self(here);
        let now_ns = self.platform.now_ns();
        let waited_ns = now_ns.saturating_sub(since_ns.get());
        if since_ns.get() == 0 || waited_ns < self.stall_limit_ns()? {
            return None;
        }
        since_ns.set(now_ns.max(1));
        Some(Stall {
            found_by: FoundBy::Look,
            ..self.refusal(here.cpu, waited_ns)
        })
    }

    /// Looks at the request that this CPU looks after, or for another one.
    fn look_out(&self, here: Here<'_, N>) -> Option<Stall> {
        let limit_ns = self.stall_limit_ns()?;
        let (lookout, now_ns) = (&here.lookout, self.platform.now_ns());
        let request = lookout.request();
        if lookout.since_ns.get() == 0 || self.is_done(request) {
            self.look_for_another(here, now_ns);
            return None;
        }
        let waited_ns = now_ns.saturating_sub(lookout.since_ns.get());
        let reports = lookout.reports.get();
        // A wait has reported it before, unless there is none. So may another CPU's look have.
        if waited_ns < limit_ns.saturating_mul(2 << reports.min(32))
            || reports == 0 && self.is_reported(request)
        {
            return None;
        }
        lookout.reports.set(reports + 1);
        let stall = self.stall_of(request, waited_ns)?;
        Some(Stall {
            found_by: FoundBy::Look,
            ..stall
        })
    }

    /// Looks at the slots of the next CPU.
    fn look_for_another(&self, here: Here<'_, N>, now_ns: u64) {
        let lookout = &here.lookout;
        lookout.since_ns.set(0);
        for _ in 0..MOST_TRIED.min(N) {
            let next = (lookout.initiator.get() as usize + 1) % N;
            lookout.initiator.set(next as u64);
            let Some(state) = self.cpus[next].get() else {
                continue;
            };
            if let Some(slot) = state.slots.iter().position(|slot| !slot.is_free()) {
                lookout.slot.set(slot as u64);
                lookout.number.set(state.slots[slot].number().bits());
                lookout.since_ns.set(now_ns.max(1));
                lookout.reports.set(0);
            }
            return;
        }
    }
}
