//! The public calls that wait later, or not at all: a copy of a function is sent.

use core::fmt;

use crate::call::free_slot::forbid_inside_function;
use crate::call::function::carrying;
use crate::call::{CallTargets, Kind, RequestRef, Wait, WaitsFor};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::watchdog::Entry;

/// Every request slot of this CPU that functions may use is taken, or as many functions as that wait for this CPU itself, which is named; or this CPU
/// is not online, and another one is going offline, or is not online and publishes too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotsBusy;

impl fmt::Display for SlotsBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no request slot of this CPU is free, or a CPU is leaving: try again later")
    }
}

impl core::error::Error for SlotsBusy {}

impl<P: Platform> Shootdown<P> {
    /// Sends a copy of `function`, at most [`PAYLOAD_BYTES`](crate::calls::PAYLOAD_BYTES) large, to those of `targets` that are online, and returns a
    /// ticket, whose wait ends when the call has come as far as `wait` says. The ticket may be waited for on another CPU; that of [`Wait::None`]
    /// waits for nothing, and may be dropped at once.
    ///
    /// This CPU, if it is among the targets, runs the function before this returns, as in [`call_many`](Self::call_many): the caller waits for
    /// functions. A CPU has three request slots for functions; while all are busy this waits, in the context of [`call_one`](Self::call_one). Under a
    /// lock, use [`try_post`](Self::try_post) or [`post_data`](Self::post_data).
    ///
    /// A larger function does not compile:
    ///
    /// ```compile_fail
    /// # use shootdown::{calls::Wait, *};
    /// fn post_41_bytes<P: Platform>(engine: &Shootdown<P>) {
    ///     let payload = [0u8; 41];
    ///     engine.submit(&CpuMask::first(4), move |_| {
    ///         core::hint::black_box(payload);
    ///     }, Wait::None);
    /// }
    /// # struct Kernel;
    /// # // SAFETY: never run.
    /// # unsafe impl Platform for Kernel {
    /// #     type Cpus = Cpus<4>;
    /// #     type IrqState = ();
    /// #     fn current_cpu(&self) -> CpuId { CpuId::new(0) }
    /// #     fn irq_save(&self) {}
    /// #     unsafe fn irq_restore(&self, _: ()) {}
    /// #     fn preempt_disable(&self) {}
    /// #     unsafe fn preempt_enable(&self) {}
    /// #     fn send_ipi(&self, _: CpuId) -> Result<(), IpiRefused> { Ok(()) }
    /// #     fn local_flush(&self, _: LocalFlush) {}
    /// #     unsafe fn load_root(&self, _: u64) {}
    /// #     fn now_ns(&self) -> u64 { 0 }
    /// # }
    /// # post_41_bytes(&Shootdown::new(Kernel));
    /// ```
    ///
    /// # Panics
    /// Inside a called function.
    pub fn submit<'t, F>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: F,
        wait: Wait,
    ) -> CallTicket<'_, P>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let kind = match wait {
            Wait::Done => Kind::CALL,
            Wait::None | Wait::Received => Kind::ACK_FIRST,
        };
        let (slot, mut ran) = (self.free_slot_for_function(), CpuMask::EMPTY);
        let request = carrying::<F, _>(function);
        let sent = self.dispatch_to(&slot, targets.into(), kind, request, &mut ran);
        if sent.local {
            self.enter(slot.here, Entry::of(&request), || function(slot.here.cpu));
        }
        CallTicket {
            engine: self,
            targets: ran,
            request: sent.published.filter(|_| wait != Wait::None),
        }
    }

    /// Sends a copy of `function` as [`submit`](Self::submit) with [`Wait::None`] does, but never waits, and so may be used anywhere, also inside
    /// a called function and under a lock that the function takes. Returns the CPUs that get it.
    ///
    /// This CPU, if it is among the targets, runs it later than with `submit`: as it runs call data that it [posts](Self::post_data) to itself, in
    /// its next interrupt, after what was posted to it before. Three such functions may wait.
    ///
    /// # Errors
    /// [`SlotsBusy`]; nothing was sent and nothing ran.
    pub fn try_post<'t, F>(
        &self,
        targets: impl Into<CallTargets<'t, P::Cpus>>,
        function: F,
    ) -> Result<CpuMask<P::Cpus>, SlotsBusy>
    where
        F: Fn(CpuId) + Copy + Send + 'static,
    {
        let targets = targets.into();
        let slot = self.try_free_slot(WaitsFor::Function).ok_or(SlotsBusy)?;
        let me = slot.here.cpu;
        let place = match targets.may_name(me) {
            true => Some(slot.here.own_posts.claim(me).ok_or(SlotsBusy)?),
            false => None,
        };
        let (request, mut sent) = (carrying::<F, _>(function), CpuMask::EMPTY);
        let kind = Kind::ACK_FIRST;
        let dispatched = self.dispatch_to(&slot, targets, kind, request, &mut sent);
        match place {
            Some(place) if dispatched.local => self.post_to_self(slot.here, place, request),
            Some(place) => place.link.mark.store(0, Ordering::Relaxed),
            None => {}
        }
        Ok(sent)
    }
}

/// The right, and the duty, to wait for one submitted call. It tracks its own request only: later requests of
/// the same CPU, even in the same slot, do not prolong its wait.
///
/// Dropping it waits. Forgetting it loses the wait and nothing else: the call's data were copied. That of a call of
/// [`try_submit`](crate::control::CpuControl::try_submit) may be [given up](Self::give_up).
#[must_use = "the call may not have come as far as you asked: wait for the ticket"]
#[derive(Debug)]
pub struct CallTicket<'a, P: Platform> {
    pub(super) engine: &'a Shootdown<P>,
    pub(super) targets: CpuMask<P::Cpus>,
    pub(super) request: Option<RequestRef>,
}

impl<P: Platform> CallTicket<'_, P> {
    /// The CPUs that were online and got the call, this one included if it was named.
    pub fn targets(&self) -> CpuMask<P::Cpus> {
        self.targets
    }

    /// Whether waiting would return at once. Any context; does not block.
    pub fn is_done(&self) -> bool {
        self.request
            .is_none_or(|request| self.engine.is_done(request))
    }

    /// Waits; returns the CPUs that got the call. Interrupts and preemption in any state; spins. What the CPU it runs on was called
    /// for runs meanwhile, as in [`call_one`](Shootdown::call_one).
    ///
    /// # Panics
    /// Inside a called function, unless the call is done. So does dropping it.
    pub fn wait(mut self) -> CpuMask<P::Cpus> {
        self.finish();
        self.targets
    }

    fn finish(&mut self) {
        if let Some(request) = self.request.take() {
            if !self.engine.is_done(request) {
                let (_irq, here) = self.engine.stay();
                forbid_inside_function(here);
            }
            self.engine.wait_for(request, WaitsFor::Function);
        }
    }
}

impl<P: Platform> Drop for CallTicket<'_, P> {
    fn drop(&mut self) {
        self.finish();
    }
}
