//! Looking after a wait: the clock, the report, the interrupts that are sent once more.

use crate::call::RequestRef;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::Watcher;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::tlb::SpaceId;
use crate::watchdog::{Activity, DEFAULT_STALL_NS, FoundBy, Stall, Watch};

/// Turns of a wait loop between two looks at the clock.
const LOOK_TURNS: u32 = 256;

impl<P: Platform> Watcher<'_, P> {
    /// Has waits that take longer than `stall_ns` nanoseconds reported to
    /// [`Platform::on_stall`], again after twice, four times ... as long; at the start it is [`DEFAULT_STALL_NS`], and 0 is
    /// for none. Any context; does not block.
    pub fn set_stall_ns(self, stall_ns: u64) {
        const { P::CONFIG.needs_watchdog() };
        let word = match stall_ns {
            0 => u64::MAX,
            _ => stall_ns,
        };
        self.0.stall_ns.0.store(word, Ordering::Relaxed);
    }
}

impl<P: Platform> Shootdown<P> {
    /// One turn of a wait loop. `stall` describes what has been waited for, for so many ns, if it is still to come.
    #[inline]
    pub(crate) fn watch_wait(&self, watch: &mut Watch, stall: impl FnOnce(u64) -> Option<Stall>) {
        watch.turns = watch.turns.wrapping_add(1);
        if !P::CONFIG.has_watchdog || watch.turns % LOOK_TURNS != 0 {
            return;
        }
        if let Some(stall) = self.look_at_the_clock(watch).and_then(stall) {
            watch.reports += 1;
            self.platform.on_stall(&stall);
        }
    }

    /// How long has been waited, if that is long enough for a report.
    #[cold]
    fn look_at_the_clock(&self, watch: &mut Watch) -> Option<u64> {
        let stall_ns = self.stall_limit_ns()?;
        let now_ns = self.platform.now_ns();
        let waited_ns = now_ns.saturating_sub(*watch.since_ns.get_or_insert(now_ns));
        (waited_ns >= stall_ns.saturating_mul(1 << watch.reports.min(32))).then_some(waited_ns)
    }

    /// What [`set_stall_ns`](Watcher::set_stall_ns) allows; none if nothing is to be reported.
    pub(super) fn stall_limit_ns(&self) -> Option<u64> {
        if !P::CONFIG.has_watchdog {
            return None;
        }
        match self.stall_ns.0.load(Ordering::Relaxed) {
            0 => Some(DEFAULT_STALL_NS),
            u64::MAX => None,
            stall_ns => Some(stall_ns),
        }
    }

    /// The platform refuses to interrupt `target`.
    pub(crate) fn refusal(&self, target: CpuId, waited_ns: u64) -> Stall {
        Stall {
            initiator: self.platform.current_cpu(),
            target,
            others: 0,
            wanted: Activity::None,
            doing: Activity::None,
            waited_ns,
            found_by: FoundBy::Waiter,
        }
    }

    /// What there is to report of a request that has waited for so long, and all its targets interrupted again; none if it is complete.
    pub(crate) fn stall_of(&self, request: RequestRef, waited_ns: u64) -> Option<Stall> {
        let initiator = self.state(request.initiator);
        let (mut first, mut count) = (None, 0);
        let irq = self.irq_guard();
        for group in self.groups() {
            for lane in ones_from(self.pending_of(request, group), 0) {
                let target = P::Cpus::cpu(group, lane);
                first.get_or_insert(target);
                count += 1;
                self.interrupt_again(self.here(&irq), target);
            }
        }
        drop(irq);
        if self.is_done(request) {
            return None;
        }
        let target = first?;
        let until_ns = self.quiet_until(self.platform.now_ns(), waited_ns);
        (initiator.activity).reports(request.slot, request.number, until_ns);
        let state = self.state(target);
        let doing = match state.activity.doing() {
            Activity::None if state.lazy.guest() != SpaceId::KERNEL => Activity::Guest,
            doing => doing,
        };
        Some(Stall {
            initiator: request.initiator,
            target,
            others: count - 1,
            wanted: initiator.activity.wanted(request.slot),
            doing,
            waited_ns,
            found_by: FoundBy::Waiter,
        })
    }

    /// The targets of a group that have not acknowledged, as seen now.
    fn pending_of(&self, request: RequestRef, group: usize) -> u64 {
        let slot = &self.state(request.initiator).slots[request.slot];
        let pending = slot.pending(group);
        match slot.is_in_ring_of(group) {
            // The pending set is told only when a whole leaf has.
            true => pending & self.rings()[group].pending(request),
            false => pending,
        }
    }

    /// Until when looks say nothing of a request that has been reported after so long: the wait that has reported it does so again before.
    pub(super) fn quiet_until(&self, now_ns: u64, waited_ns: u64) -> u64 {
        let spare_ns = self.stall_limit_ns().unwrap_or(0).saturating_mul(2);
        now_ns.saturating_add(waited_ns).saturating_add(spare_ns)
    }

    /// A second interrupt is harmless, a lost first one is not. Interrupts are off.
    fn interrupt_again(&self, here: Here<'_, P>, target: CpuId) {
        if target == here.cpu {
            self.interrupt_self(here);
        } else if self.platform.send_ipi(target).is_ok() {
            here.counters.ipis_resent.add(1);
        }
    }
}
