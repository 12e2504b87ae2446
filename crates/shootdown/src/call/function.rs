//! The public calls: run this function on those CPUs.
//!
//! A function runs on each target with interrupts off, as an interrupt handler does: it must not sleep, and
//! should be short. It may flush, and it may [`try_post`](Shootdown::try_post); calling others and waiting
//! from inside it could deadlock and panics instead.
//!
//! `call_*` waits, `post` does not, `submit` lets the caller choose and wait later. When the caller's own CPU is
//! among the targets, the function runs there too, after the others were interrupted and while they work.

use core::fmt;

use crate::call::publish::FreeSlot;
use crate::call::{CallTicket, Kind, Next, Payload, Request, RequestRef, Run, SlotClass};
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;

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

/// The target has not come online.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotReady {
    /// Which.
    pub cpu: CpuId,
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is not online: it has not called Shootdown::online yet",
            self.cpu
        )
    }
}

impl core::error::Error for NotReady {}

/// Every request slot of this CPU that functions may use is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsBusy;

impl fmt::Display for SlotsBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "every request slot of this CPU is busy: try again after its targets have acknowledged",
        )
    }
}

impl core::error::Error for SlotsBusy {}

/// Runs a borrowed function: the payload is a pointer to it.
///
/// # Safety
/// 1. The payload, if any, is `Payload::of::<*const F>` of a closure that is alive now.
unsafe fn run_borrowed<F: Fn(CpuId) + Sync>(payload: Option<&Payload>, cpu: CpuId) -> &'static str {
    if let Some(payload) = payload {
        // SAFETY: duty 1.
        let function: *const F = unsafe { payload.get() };
        // SAFETY: duty 1; `F: Sync` lets this CPU share it.
        let function = unsafe { &*function };
        function(cpu);
    }
    core::any::type_name::<F>()
}

/// Runs an inline function: the payload is the function itself.
///
/// # Safety
/// 1. The payload, if any, is `Payload::of::<F>`.
unsafe fn run_inline<F: Fn(CpuId) + Copy + Send + 'static>(
    payload: Option<&Payload>,
    cpu: CpuId,
) -> &'static str {
    if let Some(payload) = payload {
        // SAFETY: duty 1; `F: Send + Copy` lets every target have a copy of its own.
        let function: F = unsafe { payload.get() };
        function(cpu);
    }
    core::any::type_name::<F>()
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Runs `function` on `target` and waits until it has returned. Interrupts and preemption in any state;
    /// spins, serving this CPU's inbox.
    ///
    /// # Errors
    /// [`NotReady`] when the target is not online; the function has not run.
    ///
    /// # Panics
    /// Inside a called function.
    pub fn call_one<F>(&self, target: CpuId, function: &F) -> Result<(), NotReady>
    where
        F: Fn(CpuId) + Sync,
    {
        let ran = target.index() < N
            && self
                .call_many(&CpuMask::only(target), function)
                .contains(target);
        if ran {
            Ok(())
        } else {
            Err(NotReady { cpu: target })
        }
    }

    /// Runs `function` on every online CPU of `targets`, waits until all have returned, and tells which they
    /// were. Context and panics as [`call_one`](Self::call_one).
    pub fn call_many<F>(&self, targets: &CpuMask<N>, function: &F) -> CpuMask<N>
    where
        F: Fn(CpuId) + Sync,
    {
        self.call_many_with(targets, function, || ()).0
    }

    /// Runs `function` on every online CPU. As [`call_many`](Self::call_many).
    pub fn call_all<F>(&self, function: &F) -> CpuMask<N>
    where
        F: Fn(CpuId) + Sync,
    {
        self.call_many(&self.ready_cpus(), function)
    }

    /// As [`call_many`](Self::call_many), for a function that may as well run once for several callers: on a target that finds
    /// several calls of the same function waiting, lent at the same address, it runs once for all of them (where the policy
    /// [merges](crate::Policy::merges)).
    ///
    /// The function's code must be the same copy too: call it from one place of the host, not from generic code in several crates,
    /// which may each have compiled it for themselves (then it runs for each).
    ///
    /// Each caller's call is served by a run that began after the call did: the function sees what its caller wrote before.
    ///
    /// ```no_run
    /// # use shootdown::*;
    /// # fn example<P: Platform>(engine: &Shootdown<P, 4>) {
    /// static RELOAD: fn(CpuId) = |cpu| println!("{cpu} reads the new settings");
    /// engine.call_idempotent(&engine.ready_cpus(), &RELOAD);
    /// # }
    /// ```
    pub fn call_idempotent<F>(&self, targets: &CpuMask<N>, function: &F) -> CpuMask<N>
    where
        F: Fn(CpuId) + Sync,
    {
        let kind = match self.policy().merges() {
            true => Kind::CALL.merge(),
            false => Kind::CALL,
        };
        self.call_of_kind(kind, targets, function, || ()).0
    }

    /// Runs `function` on those online CPUs of `targets` for which `condition` holds now; it is evaluated
    /// here, once for each. As [`call_many`](Self::call_many).
    pub fn call_if<F>(
        &self,
        targets: &CpuMask<N>,
        mut condition: impl FnMut(CpuId) -> bool,
        function: &F,
    ) -> CpuMask<N>
    where
        F: Fn(CpuId) + Sync,
    {
        let mut live = *targets;
        live.intersect(&self.ready_cpus());
        let chosen = live.iter().filter(|cpu| condition(*cpu)).collect();
        self.call_many(&chosen, function)
    }

    /// As [`call_many`](Self::call_many), and runs `overlap` here, with interrupts as the caller has them (and
    /// preemption too where the policy [waits preemptibly](crate::Policy::waits_preemptibly)), between interrupting the
    /// targets and waiting for them.
    pub fn call_many_with<F, R>(
        &self,
        targets: &CpuMask<N>,
        function: &F,
        overlap: impl FnOnce() -> R,
    ) -> (CpuMask<N>, R)
    where
        F: Fn(CpuId) + Sync,
    {
        self.call_of_kind(Kind::CALL, targets, function, overlap)
    }

    fn call_of_kind<F, R>(
        &self,
        kind: Kind,
        targets: &CpuMask<N>,
        function: &F,
        overlap: impl FnOnce() -> R,
    ) -> (CpuMask<N>, R)
    where
        F: Fn(CpuId) + Sync,
    {
        /// Waits also when `overlap` unwinds: the targets use a borrow of our caller's.
        struct WaitOnDrop<'a, P: Platform, const N: usize>(&'a Shootdown<P, N>, Option<RequestRef>)
        where
            Cpus<N>: Capacity;
        impl<P: Platform, const N: usize> Drop for WaitOnDrop<'_, P, N>
        where
            Cpus<N>: Capacity,
        {
            fn drop(&mut self) {
                if let Some(request) = self.1 {
                    self.0.wait_for(request);
                }
            }
        }
        let payload = Payload::of(core::ptr::from_ref(function));
        let request = Request {
            run: run_borrowed::<F>,
            payload,
        };
        let preempt = (!self.policy().waits_preemptibly()).then(|| self.preempt_guard());
        let slot = self.free_slot(SlotClass::Function);
        let (ran, local, published) = self.dispatch(&slot, targets, kind, request);
        let wait = WaitOnDrop(self, published);
        if local {
            self.run_here(slot.initiator, request.run, || function(slot.initiator));
        }
        drop(slot);
        let result = overlap();
        drop(wait);
        drop(preempt);
        (ran, result)
    }

    /// Sends a copy of `function`, at most [`PAYLOAD_BYTES`](crate::PAYLOAD_BYTES) large, to every online CPU
    /// of `targets`, does not wait for them, and tells which they are. Waits only while all request slots of
    /// this CPU are busy. Context as [`call_one`](Self::call_one).
    ///
    /// A larger function does not compile:
    ///
    /// ```compile_fail
    /// # use shootdown::*;
    /// fn post_48_bytes<P: Platform>(engine: &Shootdown<P, 4>) {
    ///     let payload = [0u64; 6];
    ///     engine.post(&CpuMask::first(4), move |_| {
    ///         core::hint::black_box(payload);
    ///     });
    /// }
    /// # struct Kernel;
    /// # // SAFETY: never run.
    /// # unsafe impl Platform for Kernel {
    /// #     type IrqState = ();
    /// #     fn current_cpu(&self) -> CpuId { CpuId::new(0) }
    /// #     fn irq_save(&self) {}
    /// #     fn irq_restore(&self, _: ()) {}
    /// #     fn preempt_disable(&self) {}
    /// #     fn preempt_enable(&self) {}
    /// #     fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> { Ok(()) }
    /// #     fn local_flush(&self, _: LocalFlush) {}
    /// #     fn load_root(&self, _: Root) {}
    /// #     fn now_ns(&self) -> u64 { 0 }
    /// # }
    /// # post_48_bytes(&Shootdown::new(Kernel));
    /// ```
    ///
    /// # Panics
    /// Inside a called function: there, use [`try_post`](Self::try_post).
    pub fn post<F>(&self, targets: &CpuMask<N>, function: F) -> CpuMask<N>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        self.send_copy(
            self.free_slot(SlotClass::Function),
            targets,
            function,
            Wait::None,
        )
        .0
    }

    /// As [`post`](Self::post), but never waits, and so may be used anywhere, also inside a called function.
    ///
    /// # Errors
    /// [`SlotsBusy`]; nothing was sent and nothing ran.
    pub fn try_post<F>(&self, targets: &CpuMask<N>, function: F) -> Result<CpuMask<N>, SlotsBusy>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let slot = self.try_free_slot(SlotClass::Function).ok_or(SlotsBusy)?;
        Ok(self.send_copy(slot, targets, function, Wait::None).0)
    }

    /// Sends a copy of `function` as [`post`](Self::post) does and returns a ticket, whose wait ends when the
    /// call has come as far as `wait` says. The ticket may be waited for on another CPU.
    ///
    /// # Panics
    /// Inside a called function.
    pub fn submit<F>(&self, targets: &CpuMask<N>, function: F, wait: Wait) -> CallTicket<'_, P, N>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let slot = self.free_slot(SlotClass::Function);
        let (targets, published) = self.send_copy(slot, targets, function, wait);
        CallTicket::new(self, targets, published.filter(|_| wait != Wait::None))
    }

    fn send_copy<F>(
        &self,
        slot: FreeSlot<'_, P>,
        targets: &CpuMask<N>,
        function: F,
        wait: Wait,
    ) -> (CpuMask<N>, Option<RequestRef>)
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let kind = if wait == Wait::Done {
            Kind::CALL
        } else {
            Kind::CALL.ack_first()
        };
        let request = Request {
            run: run_inline::<F>,
            payload: Payload::of(function),
        };
        let (ran, local, published) = self.dispatch(&slot, targets, kind, request);
        if local {
            self.run_here(slot.initiator, request.run, || function(slot.initiator));
        }
        (ran, published)
    }

    /// Publishes a call to the online CPUs of `targets` other than this one. Returns those CPUs and this one if
    /// named, whether this one was, and the request if there are others.
    fn dispatch(
        &self,
        slot: &FreeSlot<'_, P>,
        targets: &CpuMask<N>,
        kind: Kind,
        request: Request,
    ) -> (CpuMask<N>, bool, Option<RequestRef>) {
        let mut live = *targets;
        live.intersect(&self.ready_cpus());
        let mut remote = live;
        let local = remote.remove(slot.initiator);
        let published = (!remote.is_empty()).then(|| self.publish(slot, kind, request, &remote));
        (live, local, published)
    }

    /// Runs a called function on the CPU that called it. Interrupts are off.
    fn run_here(&self, me: CpuId, run: Run, function: impl FnOnce()) {
        self.enter_function(me, run, function);
        // The function may have put calls back that came meanwhile (`serve_flushes_only`): look again (I7).
        if !self.state(me).in_function.get() {
            self.serve(me, Next::Leave);
        }
    }
}
