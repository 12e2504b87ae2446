//! Switches in two halves, for hosts whose context switch loads the root itself.
//!
//! Between the halves the CPU is in the sets of both spaces, with interrupts off: it may still walk the tables of the one and
//! already those of the other (I2, I4). A flush of either waits for its second half.

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::{AddressSpace, SpaceId, TlbGen};
use crate::trace::TraceEvent;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// The first half of a switch from `previous` to `next`, either of which may be a root without a user part (`None`). If it returns true, the
    /// host loads the root of `next`, untagged, so that the load drops what the CPU has cached of user memory, and then calls
    /// [`end_switch`](Self::end_switch) with the same spaces, on this CPU but perhaps on another stack. If it returns false, the spaces are
    /// the same, and what [`switch_to`](Self::switch_to) does has been done: there is nothing to load and nothing to end.
    ///
    /// Interrupts are off from before this call until after `end_switch`; in between this CPU does not [poll](Self::poll), take a lock that
    /// does, or flush. Does not block. Everything else, lives of spaces and tables too, is as for `switch_to`.
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded; when the CPU is not online; when one of the spaces is another engine's, or has windows;
    /// where the platform has [global tags](Platform::global_tags), because the engine alone knows which of them to load.
    #[must_use = "whether the host has to load the root"]
    pub fn begin_switch(
        &self,
        previous: Option<&AddressSpace<N>>,
        next: Option<&AddressSpace<N>>,
    ) -> bool {
        let me = self.platform.current_cpu();
        if name(previous) == name(next) {
            self.check_host(me, previous);
            if let Some(next) = next {
                self.switch_to(previous, next);
            }
            return false;
        }
        self.check_loadable(me, next);
        self.check_host(me, previous);
        let state = self.state(me);
        self.leave_tag::<false>(me);
        state.tlb.begin_load();
        state.lazy.wake();
        let mut generation = TlbGen::from_raw(0);
        if let Some(next) = next {
            next.cpu_set().insert(me, Ordering::Relaxed);
            // ORDERING: as in `join` (I2). The load, which drops everything, follows (I3).
            fence(Ordering::SeqCst);
            generation = next.generation();
        }
        state.tlb.begin_switch(name(next), generation);
        true
    }

    /// The second half: the host has loaded the root of `next`. Context as of [`begin_switch`](Self::begin_switch).
    ///
    /// # Panics
    /// When that was not called on this CPU for these spaces.
    pub fn end_switch(&self, previous: Option<&AddressSpace<N>>, next: Option<&AddressSpace<N>>) {
        let (from, to) = (name(previous), name(next));
        if from == to {
            return;
        }
        let me = self.platform.current_cpu();
        let state = self.state(me);
        let begun = state.tlb.switch();
        assert!(
            begun == Some((from, to)),
            "{me} ends a switch from {from:?} to {to:?}, but has begun {begun:?}: call both halves for the same spaces, on one CPU"
        );
        state.tlb.end_switch(to);
        if let Some(previous) = previous {
            self.leave(previous, me);
        }
        self.platform
            .on_trace(TraceEvent::Switched { cpu: me, space: to });
    }

    fn check_loadable(&self, me: CpuId, next: Option<&AddressSpace<N>>) {
        assert!(
            self.platform.global_tags().is_none(),
            "the host loads a root itself, but only the engine knows its global tag: use switch_to"
        );
        let has_windows = match next {
            Some(next) => {
                self.check_loads(me, next);
                self.meets_windows(me, next)
            }
            None => self.is_resident_somewhere(me),
        };
        assert!(
            !has_windows,
            "the host loads a root itself, but {:?} or what {me} has loaded has windows: use switch_to or switch_away",
            name(next)
        );
    }
}

fn name<const N: usize>(space: Option<&AddressSpace<N>>) -> SpaceId
where
    Cpus<N>: Capacity,
{
    space.map_or(SpaceId::KERNEL, AddressSpace::id)
}
