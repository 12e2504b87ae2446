//! Flushes that reach other CPUs without an interrupt: by a hypercall, an instruction that broadcasts, firmware, or a hypervisor that
//! flushes a virtual CPU before it runs again. The platform takes those that it reaches from the targets; the rest is interrupted.

use core::fmt;

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuSet;
use crate::memory::Here;
use crate::platform::{Platform, RemoteFlush};
use crate::tlb::respond::Role;
use crate::tlb::{AddressSpace, Attention, FlushRequest, FreedTables};

/// The CPUs that a flush has still to reach. [`Platform::flush_remote`] takes those that need no interrupt.
pub struct RemoteTargets<'a>(&'a mut dyn Take);

impl RemoteTargets<'_> {
    /// Those that nobody has taken.
    pub fn as_set(&self) -> CpuSet<'_> {
        self.0.rest()
    }

    /// Takes each CPU for which `reaches` returns true; it is asked at most once a CPU, in ascending order. If tables are freed, it is not
    /// asked about CPUs that are just loading a root, or [walk](crate::user_memory::Walk) tables: these stay, and are interrupted.
    pub fn take_if(&mut self, mut reaches: impl FnMut(CpuId) -> bool) {
        self.0.take_if(&mut reaches);
    }

    /// Takes all, but those that [`take_if`](Self::take_if) does not ask about: [`as_set`](Self::as_set) need not be empty then.
    pub fn take_all(&mut self) {
        self.0.take_all();
    }
}

impl fmt::Debug for RemoteTargets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_set().fmt(f)
    }
}

/// [`RemoteTargets`] of an engine of whatever size.
trait Take {
    fn rest(&self) -> CpuSet<'_>;
    fn take_if(&mut self, reaches: &mut dyn FnMut(CpuId) -> bool);
    fn take_all(&mut self);
}

/// The targets of this CPU's request.
struct OwnTargets<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    here: Here<'a, P>,
    /// Whether CPUs that are just loading a root, or walk tables, stay.
    keeps_some: bool,
}

impl<P: Platform> Take for OwnTargets<'_, P> {
    fn rest(&self) -> CpuSet<'_> {
        // SAFETY: 1. interrupts are off as long as there is `here`, and what changes the set borrows `self` mutably.
        unsafe { self.here.targets.as_set() }
    }

    fn take_if(&mut self, reaches: &mut dyn FnMut(CpuId) -> bool) {
        for cpu in self.here.targets.iter() {
            // One that joins may load the space under a tag that it kept, after a back end has dropped what is under the one before, and walk freed
            // tables until it has looked (I4). One that walks them by itself reads them.
            let must_answer = || {
                let attention = self.engine.state(cpu).lazy.get();
                matches!(attention, Attention::Joining | Attention::Walking)
            };
            if !(self.keeps_some && must_answer()) && reaches(cpu) {
                self.here.targets.remove(cpu);
            }
        }
    }

    fn take_all(&mut self) {
        match self.keeps_some {
            true => self.take_if(&mut |_| true),
            false => self.here.targets.clear(),
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Has the platform take from this CPU's set `targets` those that it reaches. Nobody tells these of the change: the next request finds a gap (I3). Returns
    /// whether the flush of this CPU has been done. Interrupts are off.
    #[cold]
    pub(super) fn take_targets(
        &self,
        here: Here<'_, P>,
        request: &FlushRequest,
        space: Option<&AddressSpace<P::Cpus>>,
    ) -> bool {
        // Private roots renew their entries themselves before a table is freed (I4): each CPU must be told.
        let needs_cpus = P::HAS_WINDOWS
            && request.freed_tables() == FreedTables::Yes
            && space.is_some_and(|space| {
                space.has_residents() || P::CONFIG.has_reach && space.is_tracked()
            });
        if let Some(space) = space {
            self.consider_tag(here, space);
        }
        let named = here.targets.len();
        if named == 0 || needs_cpus {
            return false;
        }
        let mut own = OwnTargets {
            engine: self,
            here,
            keeps_some: request.must_reach_all() && space.is_some(),
        };
        let mut targets = RemoteTargets(&mut own);
        let asked = request.for_platform::<P>(space);
        let is_done = self.platform.flush_remote(&mut targets, &asked) == RemoteFlush::Done;
        if !is_done {
            self.flush_here(here, request, Role::Initiator);
            self.platform.finish_remote(&mut targets, &asked);
        }
        let taken = named - here.targets.len();
        here.counters.cpus_taken.add(taken as u64);
        !is_done
    }
}
