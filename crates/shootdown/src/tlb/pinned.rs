//! [`PinnedWindows`]: changing windows, on the CPU that they belong to.

use core::fmt;

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::PreemptGuard;
use crate::handle::Windows;
use crate::platform::Platform;
use crate::tlb::{FlushRange, FlushRanges, FreedTables, WindowRoot};
use crate::trace::TraceEvent;

/// The windows of a CPU, in the hands of code that cannot leave it.
pub struct PinnedWindows<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    windows: &'a WindowRoot,
    _preempt: PreemptGuard<'a, P>,
}

impl<'a, P: Platform> Windows<'a, P> {
    /// Stays on this CPU, which is that of `windows`, until the guard is dropped: preemption is disabled meanwhile.
    ///
    /// Whoever changes a window does so under the guard, and flushes by it. Any context with preemption or interrupts on or off;
    /// does not block.
    ///
    /// # Errors
    /// [`WrongCpu`] on another CPU.
    ///
    /// # Panics
    /// When `windows` is another engine's.
    #[track_caller]
    pub fn pin(self, windows: &'a WindowRoot) -> Result<PinnedWindows<'a, P>, WrongCpu> {
        let (engine, needed) = (self.0, windows.cpu);
        engine.check_owner(windows.space);
        let preempt = PreemptGuard::new(&engine.platform);
        let here = engine.platform.current_cpu();
        if here != needed {
            return Err(WrongCpu { here, needed });
        }
        Ok(PinnedWindows {
            engine,
            windows,
            _preempt: preempt,
        })
    }
}

impl<P: Platform> PinnedWindows<'_, P> {
    /// Makes this CPU forget `range` of its windows, whose entries were changed under this guard. Whatever was unlinked, pages
    /// and tables, may be reused when it returns: no other CPU is concerned, and none is asked. The range covers all that an unlinked table translated.
    ///
    /// Mapping what was empty needs no flush. With another root loaded nothing is dropped now; the tag of the private one is, when
    /// it is loaded next. Interrupts in any state; does not block.
    pub fn flush(&self, range: FlushRange) {
        if range.is_empty() {
            return;
        }
        let (engine, space) = (self.engine, self.windows.space);
        let _irq = engine.irq_guard();
        let cpu = engine.platform.current_cpu();
        let state = engine.state(cpu);
        let (tlb, counters) = (&state.tlb, &state.counters);
        // Also when this is dropped here at once: the same name may be remembered for another tag, from under another policy.
        let changes = self.windows.changes.get().wrapping_add(1);
        self.windows.changes.set(changes);
        if tlb.private_name() != self.windows.name {
            return counters.window_flushes_deferred.add(1);
        }
        let platform = &engine.platform;
        platform.on_trace(TraceEvent::FlushStarted { cpu, space });
        if FlushRanges::from(range).exceeds_ceiling() {
            engine.drop_loaded::<true>(state);
            counters.full_flushes.add(1);
        } else {
            engine.drop_range(state, range, FreedTables::Yes);
            counters.pages_flushed.add(range.page_count() as u64);
        }
        tlb.window_changes.set(changes);
        counters.window_flushes.add(1);
        platform.on_trace(TraceEvent::FlushFinished { cpu, space });
    }

    /// Whether this CPU has the private root loaded.
    pub fn is_loaded(&self) -> bool {
        self.engine.state(self.windows.cpu()).tlb.private_name() == self.windows.name
    }
}

impl<P: Platform> fmt::Debug for PinnedWindows<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedWindows").field(self.windows).finish()
    }
}

/// Windows can be touched on their own CPU only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongCpu {
    /// Where the caller runs.
    pub here: CpuId,
    /// Where it must run.
    pub needed: CpuId,
}

impl fmt::Display for WrongCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the windows of {} are touched on {}: pin the task to their CPU",
            self.needed, self.here
        )
    }
}

impl core::error::Error for WrongCpu {}
