//! Looking after a wait: the clock, the report, the interrupts that are sent once more. And [`Watcher::look`]: requests that no wait of the engine looks after.
//!
//! A CPU that has published a request, and is stuck before it waits (its platform's `send_ipi` waits for the target), looks at no clock; who has
//! posted never waits. So the other CPUs' timer ticks look: each at one CPU's slots at a time, and at one request there until it is done.

use crate::call::{Number, RequestRef, SLOTS};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::Watcher;
use crate::memory::Here;
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::{Ordering, OwnWord};
use crate::tlb::SpaceId;
use crate::watchdog::{Activity, DEFAULT_STALL_NS, FoundBy, Stall, Watch};

/// Turns of a wait loop between two looks at the clock.
const LOOK_TURNS: u64 = 256;

/// What a poll adds to [`Lookout::polls`].
const ONE_POLL: u64 = 256;

impl<P: Platform> Watcher<'_, P> {
    /// Has waits that take longer than `stall_ns` nanoseconds reported to
    /// [`Platform::on_stall`], again after twice, four times ... as long; at the start it is [`DEFAULT_STALL_NS`], and 0 is
    /// for none. Any context; does not block.
    ///
    /// So are called functions that run for longer, where they [poll](Shootdown::poll), or are interrupted by a tick that [looks](Self::look). Where no CPU waits in the engine, because each is
    /// inside a function with interrupts off that does not poll, nobody looks at a clock, and nothing is reported.
    pub fn set_stall_ns(self, stall_ns: u64) {
        const { assert!(P::CONFIG.has_watchdog, "CONFIG lacks with_watchdog") };
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
        watch.turns += 1;
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

    /// One turn of a loop that polls inside a called function. By now the caller may be on another CPU than that of `lookout`, and outside.
    #[cold]
    #[inline(never)]
    pub(super) fn watch_function(&self, lookout: &Lookout) {
        let polls = lookout.polls.get().wrapping_add(ONE_POLL);
        lookout.polls.set(polls);
        if polls / ONE_POLL % LOOK_TURNS == 0 {
            let stall = {
                let irq = self.irq_guard();
                let here = self.here_if_attached(&irq);
                here.and_then(|here| self.look_at_function(here))
            };
            if let Some(stall) = stall {
                self.platform.on_stall(&stall);
            }
        }
    }

    /// What there is to report of the called function that runs here, if one does. Interrupts are off.
    fn look_at_function(&self, here: Here<'_, P>) -> Option<Stall> {
        let limit_ns = self.stall_limit_ns().filter(|_| here.in_function.get())?;
        let (lookout, now_ns) = (&here.lookout, self.platform.now_ns());
        let polls = &lookout.polls;
        if !here.activity.watches() {
            // Another one than the last time, or the first time.
            lookout.function_since_ns.set(now_ns);
            polls.set(polls.get() / ONE_POLL * ONE_POLL);
        }
        let waited_ns = now_ns.saturating_sub(lookout.function_since_ns.get());
        let reports = polls.get() % ONE_POLL;
        if waited_ns < limit_ns.saturating_mul(1 << reports.min(32)) {
            return None;
        }
        polls.set(polls.get() + u64::from(reports < 32));
        let doing = here.activity.doing();
        Some(Stall {
            wanted: doing,
            doing,
            found_by: FoundBy::Inside,
            ..self.refusal(here.cpu, waited_ns)
        })
    }

    /// What [`set_stall_ns`](Watcher::set_stall_ns) allows; none if nothing is to be reported.
    fn stall_limit_ns(&self) -> Option<u64> {
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
            _ if P::CONFIG.has_walks && state.walks.is_inside() => Activity::Walk,
            Activity::None if state.lazy.guest() != SpaceId::KERNEL => Activity::Guest,
            doing => doing,
        };
        Some(Stall {
            initiator: request.initiator,
            others: count - 1,
            wanted: initiator.activity.wanted(request.slot),
            doing,
            ..self.refusal(target, waited_ns)
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
    fn quiet_until(&self, now_ns: u64, waited_ns: u64) -> u64 {
        let spare_ns = self.stall_limit_ns().unwrap_or(0).saturating_mul(2);
        now_ns.saturating_add(waited_ns).saturating_add(spare_ns)
    }

    /// A second interrupt is harmless, a lost first one is not. Interrupts are off.
    pub(super) fn interrupt_again(&self, here: Here<'_, P>, target: CpuId) {
        if target == here.cpu {
            self.interrupt_self(here);
        } else if self.platform.send_ipi(target).is_ok() {
            here.counters.ipis_resent.add(1);
        }
    }
}

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
    /// Polls inside called functions that have found nothing; in the last byte how often the function that is watched was reported.
    polls: OwnWord,
    /// Since when the function that runs here is [watched](crate::watchdog::ActivityLog::watches).
    function_since_ns: OwnWord,
}

impl Lookout {
    pub(crate) const fn new() -> Self {
        Self {
            place: OwnWord::new(),
            number: OwnWord::new(),
            since_ns: OwnWord::new(),
            posted_since_ns: OwnWord::new(),
            polls: OwnWord::new(),
            function_since_ns: OwnWord::new(),
        }
    }
}

impl<P: Platform> Watcher<'_, P> {
    /// Looks after what no wait of the engine looks after, and reports to [`Platform::on_stall`] what has taken twice as long as
    /// [`set_stall_ns`](Self::set_stall_ns) allows, with [`FoundBy::Look`]: requests whose initiator posted and went on, or is stuck in
    /// [`Platform::send_ipi`], where it looks at no clock; and data that were posted to this CPU and do not run. Their interrupts are sent again. A request is
    /// found after as many looks as there are CPUs, and as many stalls as there are before it. Also asks again for an interrupt to this CPU itself that the platform has refused.
    ///
    /// Where it interrupts a called function that has interrupts on, it looks how long that has been running, as [`poll`](Shootdown::poll) does inside one, with
    /// [`FoundBy::Inside`]. A function with interrupts off that does not poll is seen by no tick of its CPU, only by those that wait for it; where no CPU waits in the engine it is not reported.
    ///
    /// Call it from the timer tick of each CPU; without it such a stall is silent. Any context but NMI; reads a few words of one other
    /// CPU, and does not block. On a CPU without [memory](Shootdown::attach) it does nothing.
    pub fn look(self) {
        let engine = self.0;
        let stall = {
            let irq = engine.irq_guard();
            let Some(here) = engine.here_if_attached(&irq) else {
                return;
            };
            (engine.missing_here(here, &here.owes_interrupt_since, 1))
                .or_else(|| engine.look_at_posted(here))
                .or_else(|| engine.look_out(here))
                .map(|stall| Stall {
                    found_by: FoundBy::Look,
                    ..stall
                })
                .or_else(|| engine.look_at_function(here))
        };
        if let Some(stall) = stall {
            engine.platform.on_stall(&stall);
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Data that were posted to this CPU wait for an interrupt, which may have got lost.
    fn look_at_posted(&self, here: Here<'_, P>) -> Option<Stall> {
        let since_ns = &here.lookout.posted_since_ns;
        if here.posted.0.is_empty() {
            since_ns.set(0);
        } else if since_ns.get() == 0 {
            since_ns.set(self.platform.now_ns().max(1));
            return None;
        }
        self.missing_here(here, since_ns, 2)
    }

    /// Asks again for the interrupt to this CPU itself that has been missing `since_ns`, if one has; if that is so many stalls ago, reports it,
    /// and counts anew.
    fn missing_here(&self, here: Here<'_, P>, since_ns: &OwnWord, stalls: u64) -> Option<Stall> {
        if since_ns.get() == 0 {
            return None;
        }
        self.interrupt_self(here);
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
        let place = lookout.place.get() as usize;
        let request = RequestRef {
            initiator: CpuId::from_index(place / SLOTS),
            slot: place % SLOTS,
            number: Number::of_word(lookout.number.get()),
        };
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
