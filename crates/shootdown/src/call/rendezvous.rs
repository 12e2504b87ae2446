//! Rendezvous: CPUs come together, run a function at the same time, and leave together.
//!
//! There is one word, which numbers each rendezvous, names its initiator and says how far it has come; only its initiator writes it, or who goes on in its place if that has
//! stopped for good. Each CPU has a word too, of the same form, which says how far that one has
//! come; only that CPU writes it. So nothing has to be counted or taken back:
//!
//! ```text
//! initiator: IDLE -> CLAIMED -> GATHERING -> STEP -> STEP + 1 ... -> IDLE
//!                                   |  all targets say GATHERING: one exchange, and nobody gives up any more
//!                                   +-> IDLE: the time is over: one exchange, and nobody runs it
//! a CPU:     GATHERING, then each STEP when it has done it; it leaves when the word says IDLE, or has another number
//! ```
//!
//! A CPU that comes late finds another number, or IDLE, and goes on with what it did. It takes no slot, and what the initiator lends is used between STEP and the CPU's
//! word for it only.

use core::fmt;

use crate::atomic_mask::AtomicCpuMask;
use crate::call::free_slot::forbid_inside_function;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::{IrqGuard, no_unwind};
use crate::handle::CpuControl;
use crate::mask::CpuMask;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, const_fn, fence};
use crate::trace::TraceEvent;
use crate::watchdog::{Activity, Entry, Stall, Watch};

/// How CPUs come together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rendezvous {
    limit_ns: u64,
    steps: u32,
    options: u64,
}

impl Rendezvous {
    /// By interrupt, and within so many ns from when they are interrupted, by this CPU's clock (`u64::MAX` never gives up); in one step, and with flushes served while CPUs wait for each other.
    pub const fn within(limit_ns: u64) -> Self {
        Self {
            limit_ns,
            steps: 1,
            options: 0,
        }
    }

    /// In so many steps, 1 to 64: none begins before all CPUs are done with the one before.
    ///
    /// # Panics
    /// With another number.
    #[must_use]
    pub const fn with_steps(mut self, steps: u32) -> Self {
        assert!(steps >= 1 && steps <= MOST_STEPS, "1 to 64 steps");
        self.steps = steps;
        self
    }

    /// No flush is served from the first step on: for what runs with caches off, or patches the responder.
    #[must_use]
    pub const fn without_flushes(mut self) -> Self {
        self.options |= SILENT;
        self
    }

    /// Nobody is interrupted: threads of the host come by [`arrive`](CpuControl::arrive), so that nobody holds a lock. Begin it where you may be preempted, and hold no spin lock.
    #[must_use]
    pub const fn of_threads(mut self) -> Self {
        self.options |= BY_THREADS;
        self
    }
}

/// Not all CPUs came in time; the function has run nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Absent<C: crate::Capacity> {
    /// Who did not.
    pub cpus: CpuMask<C>,
}

impl<C: crate::Capacity> fmt::Display for Absent<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "these CPUs did not come to a rendezvous: {:?}",
            self.cpus
        )
    }
}

impl<C: crate::Capacity> core::error::Error for Absent<C> {}

/// Most steps.
const MOST_STEPS: u32 = 64;
/// What is not the number.
const STAGE: u64 = 0xff;
/// Bits of a stage.
const SILENT: u64 = 0x80;
const IDLE: u64 = 0;
const CLAIMED: u64 = 1;
const GATHERING: u64 = 2;
/// Likewise, by threads.
const BY_THREADS: u64 = 1;
/// The first step.
const STEP: u64 = 4;
/// The initiator's mark.
const INITIATOR_SHIFT: u32 = 8;
const INITIATOR: u64 = 0xffff << INITIATOR_SHIFT;
const NEXT: u64 = 1 << 24;

const fn serves_flushes(state: u64) -> bool {
    state & SILENT == 0 || state & STAGE & !SILENT < STEP
}

/// Whether it is a rendezvous that `initiator` has begun and not ended.
const fn is_of(state: u64, initiator: CpuId) -> bool {
    (state & INITIATOR) >> INITIATOR_SHIFT == initiator.as_mark() && state & STAGE != IDLE
}

/// What an engine has for it.
#[derive(Debug)]
pub(crate) struct Meeting<C: crate::Capacity> {
    state: AtomicU64,
    /// Who comes, from GATHERING to IDLE.
    targets: AtomicCpuMask<C>,
    /// The address of what is lent, likewise.
    lent: AtomicU64,
}

/// On the initiator's stack.
struct Lent {
    steps: u32,
    run: unsafe fn(*const (), CpuId, u32),
    function: *const (),
    name: fn() -> &'static str,
}

impl<C: crate::Capacity> Meeting<C> {
    const_fn! {
        pub(crate) fn new() -> Self {
            Self {
                state: AtomicU64::new(IDLE),
                targets: AtomicCpuMask::new(),
                lent: AtomicU64::new(0),
            }
        }
    }

    /// Whether CPUs are being gathered by interrupt; a hint. Who finds the initiator in its inbox finds this.
    #[inline]
    pub(crate) fn is_gathering(&self) -> bool {
        self.state.load(Ordering::Relaxed) & STAGE & !SILENT == GATHERING
    }

    /// Whether `initiator` has begun one and not ended it.
    #[cfg(feature = "sim")]
    pub(crate) fn is_of(&self, initiator: CpuId) -> bool {
        is_of(self.state.load(Ordering::Relaxed), initiator)
    }

    /// What the initiator lends.
    ///
    /// # Safety
    /// 1. It lends it still: the state says STEP or later, and it waits for who uses this, or its stack stays.
    unsafe fn lent(&self) -> &Lent {
        let lent = self.lent.load(Ordering::Relaxed) as usize;
        // SAFETY: `gather` wrote the address, before the state; duty 1.
        unsafe { &*core::ptr::with_exposed_provenance(lent) }
    }

    /// What is gathered now, if `me` is to come and has not.
    fn due<P: Platform<Cpus = C>>(&self, me: Here<'_, P>, by_threads: bool) -> Option<u64> {
        // ORDERING: Acquire sees the targets; pairs with the store of GATHERING.
        let state = self.state.load(Ordering::Acquire);
        let wanted = GATHERING | if by_threads { BY_THREADS } else { 0 };
        // ORDERING: Acquire: who finds a set of a later rendezvous finds that one's state from here on; pairs with the store in `gather`.
        let is_due = state & STAGE & !SILENT == wanted
            && self.targets.contains(me.cpu, Ordering::Acquire)
            && me.lazy.met.load(Ordering::Relaxed) != state
            // The set may be that of the next.
            && self.state.load(Ordering::Relaxed) == state;
        is_due.then_some(state)
    }
}

impl<P: Platform> CpuControl<'_, P> {
    /// Has all online CPUs of `targets`, and this one, run `function` at the same time: it begins nowhere before all are inside, and none leaves before it has returned
    /// everywhere. It is told the CPU and the step, from 0. For what must change on all CPUs at once: memory types, microcode, one instruction of the kernel's text.
    ///
    /// CPUs come from the interrupt, or where they poll or wait, in whatever they do there; those that wait have interrupts off and serve flushes. Several rendezvous
    /// take turns. No CPU comes online or goes offline meanwhile. Interrupts and preemption in any state; no lock held that a CPU may spin for without polling.
    /// This CPU may be one that is not online.
    ///
    /// # Errors
    /// [`Absent`] if some did not come in time: nobody has run the function.
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach), inside a called function, and inside a section of [`walk`](crate::user_memory::UserMemory::walk).
    ///
    /// # Safety
    /// 1. `function` uses nothing of the engine, takes no lock, waits for nothing, and leaves interrupts off: it runs wherever a target's code polls, in the middle of whatever that does.
    pub unsafe fn rendezvous<F>(
        self,
        how: Rendezvous,
        targets: &CpuMask<P::Cpus>,
        function: &F,
    ) -> Result<(), Absent<P::Cpus>>
    where
        F: Fn(CpuId, u32) + Sync,
    {
        const { assert!(P::CONFIG.has_rendezvous, "CONFIG lacks with_rendezvous") };
        let engine = self.0;
        /// # Safety
        /// 1. `function` is an `F`.
        unsafe fn run<F: Fn(CpuId, u32)>(function: *const (), cpu: CpuId, step: u32) {
            // SAFETY: duty 1.
            let function = unsafe { &*function.cast::<F>() };
            function(cpu, step);
        }
        let lent = Lent {
            steps: how.steps,
            run: run::<F>,
            function: core::ptr::from_ref(function).cast(),
            name: core::any::type_name::<F>,
        };
        let (_irq, here, number) = engine.claim_meeting();
        no_unwind("a rendezvous unwound", || {
            let _departure = loop {
                match engine.hold_departures(here.cpu) {
                    Some(guard) => break guard,
                    None => {
                        engine.serve_flushes(here);
                        engine.platform.relax();
                    }
                }
            };
            engine.meet_others(here, number, how, targets, &lent)
        })
    }

    /// Comes to a rendezvous [of threads](Rendezvous::of_threads) that wants this CPU, and returns when it is over. False if there is none now. Interrupts on or off, no lock held.
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach).
    pub fn arrive(self) -> bool {
        const { assert!(P::CONFIG.has_rendezvous, "CONFIG lacks with_rendezvous") };
        self.0.arrive_here()
    }
}

// The initiator.
impl<P: Platform> Shootdown<P> {
    /// Waits for its turn, with interrupts as the caller has them, and claims a number. From then on interrupts are off: nobody waits for a task that is preempted.
    fn claim_meeting(&self) -> (IrqGuard<'_, P>, Here<'_, P>, u64) {
        let state = &self.meeting.0.state;
        loop {
            let (irq, here) = self.stay();
            forbid_inside_function(here);
            self.forbid_in_walk(here);
            let seen = state.load(Ordering::Relaxed);
            let number = (seen & !(STAGE | INITIATOR)).wrapping_add(NEXT)
                | here.cpu.as_mark() << INITIATOR_SHIFT;
            // ORDERING: Acquire: the one before is over; pairs with its store of IDLE.
            let claimed = (seen & STAGE == IDLE).then(|| {
                state.compare_exchange(seen, number | CLAIMED, Ordering::Acquire, Ordering::Relaxed)
            });
            if let Some(Ok(_)) = claimed {
                return (irq, here, number);
            }
            drop(irq);
            self.poll();
            // It may have been one that this CPU has come to.
            if state.load(Ordering::Relaxed) & STAGE != IDLE {
                self.platform.relax();
            }
        }
    }

    /// Interrupts are off, and nobody goes offline. `number` is claimed.
    fn meet_others(
        &self,
        here: Here<'_, P>,
        number: u64,
        how: Rendezvous,
        targets: &CpuMask<P::Cpus>,
        lent: &Lent,
    ) -> Result<(), Absent<P::Cpus>> {
        // ORDERING: claim / read ready, against insert / read state in `online`: a CPU that comes online is a target, or waits until we are done.
        fence(Ordering::SeqCst);
        let (mut others, options) = (self.ready_cpus(), how.options & SILENT);
        others.intersect(targets);
        others.remove(here.cpu);
        let gathering = number | options | GATHERING | how.options & BY_THREADS;
        self.gather(here, gathering, &others, lent);
        if let Err(cpus) = self.await_others(here, gathering, &others, how.limit_ns, lent) {
            // Nobody begins: only we could have said so.
            self.go_on(here, number | IDLE);
            return Err(Absent { cpus });
        }
        for step in 0..how.steps {
            let now = number | options | (STEP + u64::from(step));
            self.go_on(here, now);
            // SAFETY: 1. it is ours.
            unsafe { self.run_step(here, lent, step) };
            // Nobody gives up any more.
            let _ = self.await_others(here, now, &others, u64::MAX, lent);
        }
        self.go_on(here, number | IDLE);
        Ok(())
    }

    /// `dead`, which has stopped for good, may have begun a rendezvous: ends that where no function has run, and goes on in its place where one may have. Interrupts are off.
    pub(crate) fn go_on_for(&self, here: Here<'_, P>, dead: CpuId) {
        let meeting = &self.meeting.0;
        loop {
            // ORDERING: Acquire sees what is lent, and the targets; pairs with `go_on`.
            let seen = meeting.state.load(Ordering::Acquire);
            if !is_of(seen, dead) {
                return;
            }
            let (stage, mut next) = (seen & STAGE & !SILENT, seen & !STAGE | IDLE);
            if stage >= STEP {
                // SAFETY: 1. the stack stays as long as its CPU may have lent anything (`declare_dead`).
                let lent = unsafe { meeting.lent() };
                let others = meeting.targets.load(Ordering::Relaxed);
                let _ = self.await_others(here, seen, &others, u64::MAX, lent);
                if stage + 1 < STEP + u64::from(lent.steps) {
                    next = seen + 1;
                }
            }
            // Compared: another one may do the same. ORDERING: as in `go_on`.
            let _ =
                (meeting.state).compare_exchange(seen, next, Ordering::Release, Ordering::Relaxed);
            (self.platform).on_trace(TraceEvent::Rendezvous { cpu: here.cpu });
        }
    }

    fn go_on(&self, here: Here<'_, P>, state: u64) {
        // ORDERING: Release publishes what is lent, and the steps of all so far, to the others and to the next initiator; pairs with `meet_once` and `claim_meeting`.
        self.meeting.0.state.store(state, Ordering::Release);
        self.platform
            .on_trace(TraceEvent::Rendezvous { cpu: here.cpu });
    }

    /// Has the others come.
    fn gather(&self, here: Here<'_, P>, gathering: u64, others: &CpuMask<P::Cpus>, lent: &Lent) {
        let meeting = &self.meeting.0;
        for group in self.groups() {
            let word = others.words.as_ref()[group];
            // ORDERING: Release: who reads it knows our claim; pairs with `due`.
            meeting.targets.group(group).store(word, Ordering::Release);
        }
        let address = core::ptr::from_ref(lent).expose_provenance() as u64;
        meeting.lent.store(address, Ordering::Relaxed);
        self.go_on(here, gathering);
        if gathering & BY_THREADS != 0 {
            return;
        }
        here.to_interrupt.clear();
        for target in others.iter() {
            // For those that poll. Each is interrupted: who has others interrupted may come before it has.
            let _ = self.state(target).inbox.add(here.cpu, true);
            here.to_interrupt.add(target);
        }
        if here.to_interrupt.is_empty() {
            return;
        }
        here.counters.ipis_sent.add(here.to_interrupt.len() as u64);
        // SAFETY: 1. we are the initiator, and interrupts are off. The set is not changed before this returns.
        let sent = self
            .platform
            .send_ipi_mask(unsafe { here.to_interrupt.as_set() });
        if sent.is_err() {
            self.interrupt_later(here, None, |waited_ns| {
                let refused = here.to_interrupt.iter_from(here.cpu).next()?;
                Some(self.refusal(refused, waited_ns))
            });
        }
    }

    /// Waits until all of `others` have come so far.
    ///
    /// # Errors
    /// Who has not, after so many ns.
    fn await_others(
        &self,
        here: Here<'_, P>,
        state: u64,
        others: &CpuMask<P::Cpus>,
        limit_ns: u64,
        lent: &Lent,
    ) -> Result<(), CpuMask<P::Cpus>> {
        let (begun_ns, mut watch) = (self.platform.now_ns(), Watch::default());
        while let Some(absent) = self.not_yet(others, state) {
            // The clock may go round.
            if limit_ns < u64::MAX && self.platform.now_ns().wrapping_sub(begun_ns) >= limit_ns {
                return Err(absent);
            }
            if serves_flushes(state) {
                self.serve_flushes(here);
            }
            self.platform.relax();
            self.watch_wait(&mut watch, |waited_ns| {
                if state & STAGE & !SILENT == GATHERING {
                    absent
                        .iter()
                        .for_each(|cpu| self.interrupt_again(here, cpu));
                }
                Some(Stall {
                    wanted: Activity::Function((lent.name)()),
                    others: absent.len() - 1,
                    ..self.refusal(absent.iter().next()?, waited_ns)
                })
            });
        }
        Ok(())
    }

    /// Those of `others` whose words do not say so yet.
    fn not_yet(&self, others: &CpuMask<P::Cpus>, state: u64) -> Option<CpuMask<P::Cpus>> {
        let mut absent = CpuMask::EMPTY;
        for cpu in others.iter() {
            // Nobody goes offline meanwhile, but one may die.
            let is_dead = self.has_deaths() && !self.is_ready(cpu);
            // ORDERING: Acquire sees what it did before; pairs with `meet_once`.
            if !is_dead && self.state(cpu).lazy.met.load(Ordering::Acquire) != state {
                absent.insert(cpu);
            }
        }
        (!absent.is_empty()).then_some(absent)
    }
}

// The others.
impl<P: Platform> Shootdown<P> {
    /// A CPU that comes online waits until a rendezvous that does not know it is over. Interrupts are off.
    #[cold]
    pub(crate) fn await_rendezvous(&self, here: Here<'_, P>) {
        // ORDERING: Acquire: what was done in it is seen; pairs with the store of IDLE.
        let state = || self.meeting.0.state.load(Ordering::Acquire);
        let first = state();
        let is_over = || (state() ^ first) & !STAGE != 0 || state() & STAGE == IDLE;
        while !is_over() {
            self.serve_flushes(here);
            self.arrive_here();
            // This CPU may have come to it.
            if !is_over() {
                self.platform.relax();
            }
        }
    }

    /// Comes to a rendezvous of threads, if one wants this CPU. No lock is held here.
    pub(crate) fn arrive_here(&self) -> bool {
        if !P::CONFIG.has_rendezvous {
            return false;
        }
        let (_irq, here) = self.stay();
        let due = self.meeting.0.due(here, true);
        due.is_some_and(|state| self.come(here, state))
    }

    /// Comes to the rendezvous that wants this CPU; true if there was one. Interrupts are off.
    #[cold]
    pub(crate) fn meet(&self, me: Here<'_, P>) -> bool {
        let due = || self.meeting.0.due(me, false);
        !me.is_met.get() && due().is_some_and(|state| self.come(me, state))
    }

    fn come(&self, me: Here<'_, P>, gathering: u64) -> bool {
        me.is_met.set(true);
        let mut next = gathering;
        while next != IDLE {
            next = self.meet_once(me, next);
        }
        me.is_met.set(false);
        true
    }

    /// One rendezvous, from coming to leaving; returns the next that wants this CPU, if one does.
    fn meet_once(&self, me: Here<'_, P>, gathering: u64) -> u64 {
        let (meeting, number) = (&self.meeting.0, gathering & !STAGE);
        let mut done = gathering;
        loop {
            // ORDERING: Release publishes what this CPU has done so far; pairs with `not_yet`.
            me.lazy.met.store(done, Ordering::Release);
            self.platform
                .on_trace(TraceEvent::Rendezvous { cpu: me.cpu });
            let now = loop {
                // ORDERING: Acquire sees what is lent, and all steps before; pairs with the stores of the initiator.
                let now = meeting.state.load(Ordering::Acquire);
                if now & !STAGE != number || now & STAGE == IDLE {
                    return meeting.due(me, false).unwrap_or(IDLE);
                }
                if now != done {
                    break now;
                }
                if serves_flushes(now) {
                    self.serve_flushes(me);
                }
                self.platform.relax();
            };
            // SAFETY: 1. the initiator waits until this CPU has said that the step is done.
            let lent = unsafe { meeting.lent() };
            // SAFETY: 1. as above.
            unsafe { self.run_step(me, lent, (now & STAGE & !SILENT) as u32 - STEP as u32) };
            done = now;
        }
    }

    /// Interrupts are off.
    ///
    /// # Safety
    /// 1. What is lent is alive.
    unsafe fn run_step(&self, me: Here<'_, P>, lent: &Lent, step: u32) {
        self.run_anywhere(me, Entry::POSTED, || {
            // SAFETY: `run` was chosen for the type of the function; duty 1.
            unsafe { (lent.run)(lent.function, me.cpu, step) };
        });
    }
}
