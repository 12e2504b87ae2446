//! A call that is served where flushes are: in the interrupt, in `poll` and in every wait. It travels as a flush of no space.

use crate::call::function::{LENT, WaitOnDrop, carrying};
use crate::call::{Kind, NotReady, Payload, Request, WaitsFor};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::handle::CpuControl;
use crate::memory::Here;
use crate::platform::Platform;
use crate::tlb::FlushRequest;
use crate::trace::TraceEvent;
use crate::watchdog::Entry;

/// What a CPU is asked to run, on the initiator's stack.
#[derive(Debug)]
pub(crate) struct Asked {
    request: Request,
    initiator: CpuId,
}

impl<P: Platform> CpuControl<'_, P> {
    /// Runs `function` on `target` and waits until it has returned, also where the target spins for a lock of the caller's, if its spin loop [polls](Shootdown::poll): for
    /// what only that CPU can do, such as giving back vector registers, or the state of a virtual machine, that it keeps. What may take locks is for
    /// [`call_one`](Shootdown::call_one).
    ///
    /// Interrupts and preemption in any state; spins, serving the flushes of the CPU it runs on. Locks may be held, as for a [flush](Shootdown::flush). Also inside a called
    /// function.
    ///
    /// # Errors
    /// [`NotReady`] when the target is not online; the function has not run.
    ///
    /// # Panics
    /// When this CPU has no [memory](Shootdown::attach); inside a section of [`walk`](crate::user_memory::UserMemory::walk).
    ///
    /// # Safety
    /// 1. `function` uses nothing of the engine, takes no lock, waits for nothing, and leaves interrupts off: it runs wherever the target's code polls, in the middle of whatever that does.
    pub unsafe fn ask<F>(self, target: CpuId, function: &F) -> Result<(), NotReady>
    where
        F: Fn(CpuId) + Sync + ?Sized,
    {
        let engine = self.0;
        engine.forbid_wait_in_walk();
        let slot = match engine.try_free_slot(WaitsFor::Flush) {
            Some(slot) => slot,
            None => engine.wait_for_slot(WaitsFor::Flush),
        };
        let here = slot.here;
        if !engine.is_ready(target) {
            return Err(NotReady { cpu: target });
        }
        let asked = Asked {
            request: carrying::<F, _>(function),
            initiator: here.cpu,
        };
        if target == here.cpu {
            // SAFETY: 1. it is ours.
            unsafe { engine.run_asked(here, &asked) };
            return Ok(());
        }
        let request = Request {
            // For its name.
            run: asked.request.run,
            payload: Payload::of(FlushRequest::ask(&asked)),
        };
        let published = no_unwind(LENT, || {
            engine.publish(&slot, Kind::FLUSH, request, Some(target))
        });
        let wait = WaitOnDrop::<P, true>(engine, Some(published));
        drop(slot);
        drop(wait);
        Ok(())
    }
}

impl<P: Platform> Shootdown<P> {
    /// Runs a function in the middle of what this CPU does. Interrupts are off.
    ///
    /// # Safety
    /// 1. What it borrows is alive.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn run_asked(&self, me: Here<'_, P>, asked: &Asked) {
        let (cpu, initiator, request) = (me.cpu, asked.initiator, &asked.request);
        (self.platform).on_trace(TraceEvent::FunctionStarted { cpu, initiator });
        self.run_anywhere(me, Entry::of(request), || {
            if let Some(run) = request.run {
                // SAFETY: `carrying` chose `run` for the type in `payload`; duty 1.
                unsafe { run(Some(&request.payload), cpu) };
            }
        });
        (self.platform).on_trace(TraceEvent::FunctionFinished { cpu, initiator });
    }

    /// Runs what takes no lock, waits for nothing and leaves interrupts off, in the middle of what this CPU does, a called function perhaps. Interrupts are off.
    pub(super) fn run_anywhere(&self, me: Here<'_, P>, entry: Entry, function: impl FnOnce()) {
        let was_inside = me.in_function.get();
        let before = me.activity.begins(entry);
        me.in_function.set(true);
        no_unwind(
            "a function that runs wherever its CPU polls unwound",
            function,
        );
        me.in_function.set(was_inside);
        me.activity.begins(before);
        if !was_inside {
            self.come_again(me);
        }
        me.counters.functions_run.add(1);
    }
}
