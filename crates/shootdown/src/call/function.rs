//! The public calls that wait: run this function on those CPUs.
//!
//! A function runs on each target with interrupts off, as an interrupt handler does: it must not sleep, and
//! should be short. It may flush, and it may [`try_post`](Shootdown::try_post); calling others and waiting
//! from inside it could deadlock and panics instead.
//!
//! When the caller's own CPU is among the targets, the function runs there too, after the others were interrupted and while they
//! work: the caller waits for functions (I14). A post to the own CPU is queued instead, since nobody waits for it.

use core::fmt;
use core::sync::atomic::AtomicPtr;

use crate::call::{CallTargets, FreeSlot, Kind, Payload, Request, RequestRef, WaitsFor};
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::{PreemptGuard, no_unwind};
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::watchdog::Entry;

/// How far a submitted call must have come before its ticket's wait returns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Wait {
    /// Not at all.
    None,
    /// Every target has taken its copy and is about to run it.
    Received,
    /// Every target has run it.
    Done,
}

/// The target is not online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotReady {
    /// Which.
    pub cpu: CpuId,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not online: not yet, or not any more", self.cpu)
    }
}

impl core::error::Error for NotReady {}

/// Runs the function that a payload holds, on behalf of `N`, whose name is that of the function in reports.
///
/// # Safety
/// 1. The payload, if any, is `Payload::of::<F>`, and what it borrows is alive now.
unsafe fn run<N: ?Sized, F: Fn(CpuId) + Copy + Send>(
    payload: Option<&Payload>,
    cpu: CpuId,
) -> &'static str {
    if let Some(payload) = payload {
        // SAFETY: duty 1; `F: Send + Copy` lets every target have a copy of its own.
        let function: F = unsafe { payload.get() };
        function(cpu);
    }
    core::any::type_name::<N>()
}

/// A call of a copy of `function`, on behalf of `N`.
pub(super) fn carrying<N: ?Sized, F: Fn(CpuId) + Copy + Send>(function: F) -> Request {
    Request::call(run::<N, F>, Payload::of(function))
}

impl<P: Platform> Shootdown<P> {
    /// Runs `function` on `target` and waits until it has returned. Interrupts and preemption in any state; spins.
    ///
    /// What this CPU was called for runs while it waits, in the caller's context, also with interrupts off: its target may be
    /// waiting for it in the same way. So does `function` where `target` is this CPU. So the caller holds no lock that such a function takes, and none
    /// that its targets spin for with interrupts off.
    ///
    /// # Errors
    /// [`NotReady`] when the target is not online; the function has not run.
    ///
    /// # Panics
    /// Inside a called function.
    #[inline]
    pub fn call_one<F>(&self, target: CpuId, function: &F) -> Result<(), NotReady>
    where
        F: Fn(CpuId) + Sync + ?Sized,
    {
        let mut result = Err(NotReady { cpu: target });
        let dispatch = |slot: &FreeSlot<'_, P>, request| {
            if !self.is_callable(target) {
                return Dispatched::default();
            }
            result = Ok(());
            self.dispatch_to_one(slot, target, Kind::CALL, request)
        };
        self.call(function, || (), dispatch);
        if result.is_ok() && self.is_dead(target) {
            return Err(NotReady { cpu: target });
        }
        result
    }

    /// Runs `function` on those of `targets` that are online, waits until all have returned, and returns which they
    /// were. Context and panics as [`call_one`](Self::call_one).
    ///
    /// A host that has a condition for each CPU collects those of [`ready_cpus`](Self::ready_cpus) for which it holds, and calls them.
    #[inline]
    pub fn call_many<'t, F>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: &F,
    ) -> CpuMask<P::Cpus>
    where
        F: Fn(CpuId) + Sync + ?Sized,
    {
        self.call_many_with(targets, function, || ()).0
    }

    /// As [`call_many`](Self::call_many), and runs `overlap` here, with interrupts as the caller has them (and
    /// preemption too where the policy [waits preemptibly](crate::Policy::waits_preemptibly)), between interrupting the
    /// targets and waiting for them.
    #[inline]
    pub fn call_many_with<'t, F, R>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: &F,
        overlap: impl FnOnce() -> R,
    ) -> (CpuMask<P::Cpus>, R)
    where
        F: Fn(CpuId) + Sync + ?Sized,
    {
        let (targets, mut ran) = (targets.into(), CpuMask::EMPTY);
        let result = self.call(function, overlap, |slot, request| {
            self.dispatch_to(slot, targets, Kind::CALL, request, &mut ran)
        });
        if self.has_deaths() {
            ran.subtract(&self.dead_cpus());
        }
        (ran, result)
    }

    /// Runs `function` on those of `targets` that are online and puts what it returns there into `results`, CPU `n`'s in element `n`;
    /// elements of others stay as they are. CPUs for which `results` has no element are not called. Returns which CPUs ran
    /// it. Context and panics as [`call_one`](Self::call_one).
    ///
    /// ```
    /// # use shootdown::*;
    /// # fn example<P: Platform>(engine: &Shootdown<P>) {
    /// let mut clocks = [None; 4];
    /// engine.call_collect(&engine.ready_cpus(), &|_| engine.platform().now_ns(), &mut clocks);
    /// let newest = clocks.into_iter().flatten().max();
    /// # }
    /// ```
    pub fn call_collect<'t, F, R>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: &F,
        results: &mut [Option<R>],
    ) -> CpuMask<P::Cpus>
    where
        F: Fn(CpuId) -> R + Sync,
        R: Send,
    {
        let mut named = CpuMask::first(results.len().min(P::Cpus::CPUS));
        let targets = targets.into().among(&mut named);
        // A pointer that CPUs may share. It stays as it is.
        let results = AtomicPtr::new(results.as_mut_ptr());
        self.call_many(targets, &|cpu| {
            let result = function(cpu);
            // SAFETY: only CPUs with an element are called.
            let place = unsafe { results.load(Ordering::Relaxed).add(cpu.index()) };
            // SAFETY: each CPU runs this once, and our caller lends the array until all have; `R: Send`.
            unsafe { *place = Some(result) };
        })
    }

    /// Calls `function` on the CPUs to which `dispatch` sends it, runs `overlap` meanwhile, and waits. Returns what `overlap`
    /// returned.
    #[inline]
    pub(super) fn call<F, R>(
        &self,
        function: &F,
        overlap: impl FnOnce() -> R,
        dispatch: impl FnOnce(&FreeSlot<'_, P>, Request) -> Dispatched,
    ) -> R
    where
        F: Fn(CpuId) + Sync + ?Sized,
    {
        let lent = move |cpu| function(cpu);
        let request = carrying::<F, _>(lent);
        let preempt =
            (!self.policy().waits_preemptibly()).then(|| PreemptGuard::new(&self.platform));
        let slot = self.free_slot_for_function();
        let Dispatched { local, published } = no_unwind(LENT, || dispatch(&slot, request));
        let wait = WaitOnDrop::<P, false>(self, published);
        if local {
            self.enter(slot.here, Entry::of(&request), || lent(slot.here.cpu));
        }
        drop(slot);
        let result = overlap();
        drop(wait);
        drop(preempt);
        result
    }

    /// Publishes a call to `targets`; `ran` is empty, and gets those that are online.
    #[inline]
    pub(super) fn dispatch_to(
        &self,
        slot: &FreeSlot<'_, P>,
        targets: CallTargets<'_, P::Cpus>,
        kind: Kind,
        request: Request,
        ran: &mut CpuMask<P::Cpus>,
    ) -> Dispatched {
        match targets {
            CallTargets::Of(targets) => self.dispatch(slot, Some(targets), kind, request, ran),
            CallTargets::Online => self.dispatch(slot, None, kind, request, ran),
            CallTargets::AnyOf(targets) => {
                self.dispatch_to_nearest(slot, targets, kind, request, ran)
            }
        }
    }

    /// Publishes a call to the first online CPU of `targets` from this one on, going round, if there is any.
    fn dispatch_to_nearest(
        &self,
        slot: &FreeSlot<'_, P>,
        targets: &CpuMask<P::Cpus>,
        kind: Kind,
        request: Request,
        ran: &mut CpuMask<P::Cpus>,
    ) -> Dispatched {
        let me = slot.here.cpu;
        // ORDERING: as in `ready_cpus`.
        let mut live = self.callable.0.load(Ordering::Acquire);
        live.intersect(targets);
        let (mut later, group) = (live, P::Cpus::group(me));
        later.words.as_mut()[..group].fill(0);
        later.words.as_mut()[group] &= !(P::Cpus::bit(me) - 1);
        let Some(chosen) = later.iter().chain(live.iter()).next() else {
            return Dispatched::default();
        };
        ran.insert(chosen);
        self.dispatch_to_one(slot, chosen, kind, request)
    }

    /// Publishes a call to `target`, unless that is this CPU.
    #[inline]
    fn dispatch_to_one(
        &self,
        slot: &FreeSlot<'_, P>,
        target: CpuId,
        kind: Kind,
        request: Request,
    ) -> Dispatched {
        let local = target == slot.here.cpu;
        let published = (!local).then(|| self.publish(slot, kind, request, Some(target)));
        Dispatched { local, published }
    }

    /// Publishes a request to the online CPUs of `targets`, or to all online CPUs, other than this one; `ran` is empty, and gets
    /// these CPUs, and this one if it is among the targets.
    pub(super) fn dispatch(
        &self,
        slot: &FreeSlot<'_, P>,
        targets: Option<&CpuMask<P::Cpus>>,
        kind: Kind,
        request: Request,
        ran: &mut CpuMask<P::Cpus>,
    ) -> Dispatched {
        let me = slot.here.cpu;
        let online = match kind.has(Kind::FLUSH) {
            true => &self.ready.0,
            false => &self.callable.0,
        };
        let remote = &self.state(me).targets;
        remote.clear();
        for group in self.groups() {
            // ORDERING: as in `ready_cpus`.
            let mut live = online.group(group).load(Ordering::Acquire);
            if let Some(targets) = targets {
                live &= targets.words.as_ref()[group];
            }
            ran.words.as_mut()[group] = live;
            if group == P::Cpus::group(me) {
                live &= !P::Cpus::bit(me);
            }
            remote.set_group(group, live);
        }
        let published = (!remote.is_empty()).then(|| self.publish(slot, kind, request, None));
        Dispatched {
            local: ran.contains(me),
            published,
        }
    }
}

/// What became of a call.
#[derive(Default)]
pub(super) struct Dispatched {
    /// It is to run on the initiator too.
    pub(super) local: bool,
    /// The request, if other CPUs are to run it.
    pub(super) published: Option<RequestRef>,
}

/// Why a call does not unwind from where its function is published to where it is done.
pub(super) const LENT: &str = "a call unwound that has lent its function to other CPUs";

/// Waits also when what runs meanwhile unwinds: the targets use a borrow of our caller's. As a wait for a flush, or as one for a function.
// No field: that costs a call an instruction.
pub(super) struct WaitOnDrop<'a, P: Platform, const FLUSH: bool>(
    pub(super) &'a Shootdown<P>,
    pub(super) Option<RequestRef>,
);

impl<P: Platform, const FLUSH: bool> Drop for WaitOnDrop<'_, P, FLUSH> {
    fn drop(&mut self) {
        let what = match FLUSH {
            true => WaitsFor::Flush,
            false => WaitsFor::Function,
        };
        if let Some(request) = self.1 {
            no_unwind(LENT, || self.0.wait_for(request, what));
        }
    }
}
