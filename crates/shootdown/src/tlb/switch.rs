//! Loading and leaving address spaces on this CPU.

use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::UserMemory;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::{AddressSpace, Attention, KernelRoot, SpaceId, SpaceRoot};
use crate::trace::TraceEvent;

impl<P: Platform> Shootdown<P> {
    /// Makes `next` the loaded space of this CPU; `previous` is the one loaded so far, lazily or not, if any.
    ///
    /// Interrupts in any state, but the caller must not leave this CPU meanwhile. Does not block. Where the platform
    /// has [tags](Platform::asid_slots), translations of `previous` stay cached under its tag, and
    /// those that `next` left here are used again if nothing has been flushed since.
    ///
    /// With `next` the same as `previous` it ends [lazy mode](UserMemory::enter_lazy), and does nothing otherwise.
    ///
    /// `next` must stay alive and its tables in place until this CPU has left it; dropping it earlier
    /// panics.
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded, or the CPU is not online.
    pub fn switch_to(
        &self,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: &AddressSpace<P::Cpus>,
    ) {
        let (_irq, here) = self.stay();
        let wanted = SpaceRoot::shared(next);
        // Some CPU is a resident of `next`, or this one is where it is. One branch: both words are on lines that a switch reads anyway.
        let meets_windows = P::HAS_WINDOWS
            && next.has_residents() | Self::is_resident_somewhere(here.state)
            || P::CONFIG.has_reach && next.is_tracked() | self.has_private_loaded(here.state);
        match meets_windows {
            false => self.switch::<false>(here, previous, wanted),
            true => self.switch_windows(here, previous, wanted),
        }
    }

    /// A switch to, from or within a space with windows; out of line.
    #[cold]
    #[inline(never)]
    pub(crate) fn switch_windows(
        &self,
        here: Here<'_, P>,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: SpaceRoot<'_, P::Cpus>,
    ) {
        self.switch::<true>(here, previous, next);
    }

    /// Leaves `previous` for the root of `next`: the same code twice, with `WINDOWS`, and without all that is needed only where
    /// a switch meets windows. Interrupts are off.
    fn switch<const WINDOWS: bool>(
        &self,
        here: Here<'_, P>,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: SpaceRoot<'_, P::Cpus>,
    ) {
        self.check_host(here, previous);
        self.check_loads(here.cpu, next.space);
        let space = next.space.id();
        let stays = previous.is_some_and(|previous| previous.id() == space);
        if stays
            && here.lazy.get() == Attention::Active
            && (!WINDOWS || self.loaded_name::<WINDOWS>(here.state) == next.name::<WINDOWS>())
        {
            // Active CPUs have loaded what the host has not left.
            return;
        }
        self.join::<WINDOWS>(here, next);
        here.tlb.set_host(space);
        if let Some(previous) = previous.filter(|_| !stays) {
            self.leave(previous, here.cpu);
        }
        let cpu = here.cpu;
        self.platform.on_trace(TraceEvent::Switched { cpu, space });
    }

    /// Leaves `previous` for `kernel_root`, which maps no user memory. Same context as
    /// [`switch_to`](Self::switch_to).
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded.
    pub fn switch_away(&self, previous: &AddressSpace<P::Cpus>, kernel_root: KernelRoot) {
        let (_irq, here) = self.stay();
        self.check_host(here, Some(previous));
        // A lazy CPU that had to let go has loaded a kernel root, perhaps another one.
        if here.tlb.loaded() != SpaceId::KERNEL || !here.tlb.is_untagged(kernel_root) {
            self.load_kernel(here, kernel_root);
        }
        here.tlb.set_host(SpaceId::KERNEL);
        self.leave(previous, here.cpu);
        here.lazy.set(Attention::Active);
    }

    /// Whether `cpu` has acknowledged a flush that it has still to do; for simulators, which see all CPUs at one moment.
    #[cfg(feature = "sim")]
    pub fn owes_flush(&self, cpu: CpuId) -> bool {
        self.state(cpu).tlb.owes_flush.get()
    }

    /// A lazy CPU lets go of its space: tables of it are about to be freed. Interrupts are off.
    pub(super) fn detach(&self, here: Here<'_, P>) {
        self.load_kernel(here, KernelRoot(here.tlb.lazy_root.get()));
        here.lazy.set(Attention::Detached);
        here.counters.lazy_detached.add(1);
    }

    /// Makes the root of `wanted` the one that this CPU has loaded and may use.
    fn join<const WINDOWS: bool>(&self, here: Here<'_, P>, wanted: SpaceRoot<'_, P::Cpus>) {
        let (me, state, space) = (here.cpu, here.state, wanted.space);
        // Flushes may have passed a lazy CPU by, and a back end drops under the tag that is loaded still, not under another that this CPU
        // has kept.
        let may_be_behind = matches!(state.lazy.get(), Attention::Lazy | Attention::Deferring)
            || self.platform.flushes_remotely() && !self.tag_slots(me).is_empty();
        // I2: say that we care and publish, full barrier (also when the bit was already there), then read the
        // generation.
        match may_be_behind {
            true => state.lazy.begin_join(),
            false => state.lazy.set(Attention::Active),
        }
        let resident = Self::arrive::<WINDOWS>(here, &wanted);
        if resident.is_none() || !space.cpu_set().contains(me, Ordering::Relaxed) {
            space.cpu_set().insert(me, Ordering::Relaxed);
        }
        // ORDERING: store mark and CPU bit / load generation, against bump / load CPU set and marks in
        // `submit_space_flush`: either the initiator finds us, or we see its generation and, by its Release, its PTE change.
        fence(Ordering::SeqCst);
        if P::CONFIG.has_reach && wanted.reach.is_none() && space.is_tracked() {
            self.join_others(here, &wanted);
        }
        let generation = space.generation();
        if let Some(root) = wanted.reach.filter(|_| P::CONFIG.has_reach) {
            root.read();
            root.renew_changed(&self.platform, space);
        } else if let Some(windows) = wanted.windows::<WINDOWS>() {
            // It has all that was in the shared one before the generation was read.
            windows.refresh(&self.platform, space);
        }
        if self.loaded_name::<WINDOWS>(state) == wanted.name::<WINDOWS>()
            && self.tag_due(state, space.id()).is_none()
        {
            self.drop_missed::<WINDOWS>(state, space, generation);
        } else {
            self.load::<WINDOWS>(here, &wanted, generation);
            if WINDOWS {
                state.lazy.settle(resident);
            }
        }
        if P::CONFIG.has_reach && wanted.reach.is_some() {
            Self::leave_others(here, space);
        }
        if may_be_behind {
            state.lazy.set(Attention::Active);
        }
    }

    /// This CPU may load `next`.
    #[inline]
    pub(super) fn check_loads(&self, me: CpuId, next: &AddressSpace<P::Cpus>) {
        if !self.is_ready(me) {
            not_online(me);
        }
        self.check_owner(next.id());
    }

    pub(super) fn check_host(&self, here: Here<'_, P>, previous: Option<&AddressSpace<P::Cpus>>) {
        self.forbid_in_walk(here);
        let loaded = here.tlb.host();
        let claimed = previous.map_or(SpaceId::KERNEL, AddressSpace::id);
        if loaded != claimed {
            not_loaded(here.cpu, loaded, claimed);
        }
    }

    /// Takes this CPU out of the set, unless it is a resident, after its root no longer reaches the space.
    pub(super) fn leave(&self, previous: &AddressSpace<P::Cpus>, me: CpuId) {
        if P::HAS_WINDOWS && previous.is_resident(me) {
            return;
        }
        // ORDERING: Release publishes the root switch to an initiator that no longer finds us (it may free
        // tables at once, I4) and to `AddressSpace::drop`.
        previous.cpu_set().remove(me, Ordering::Release);
    }
}

impl<P: Platform> UserMemory<'_, P> {
    /// Keeps `space` loaded while this CPU runs something that uses no user memory: the idle loop, a kernel
    /// thread. Same context as [`switch_to`](Shootdown::switch_to).
    ///
    /// Flushes leave the CPU alone from now on, except those that free tables: at the first of these it loads
    /// `kernel_root`, and then none reaches it. [`switch_to`](Shootdown::switch_to) or
    /// [`switch_away`](Shootdown::switch_away) with `space` as the previous one ends this; until then `space` must stay
    /// alive. Under a policy that is not [lazy](crate::Policy::is_lazy) the CPU leaves the space at once, and the host
    /// need not know. It may be called again meanwhile: a CPU that is lazy from before the policy changed follows it then.
    ///
    /// # Panics
    /// When `space` is not what this CPU has loaded.
    pub fn enter_lazy(self, space: &AddressSpace<P::Cpus>, kernel_root: KernelRoot) {
        let engine = self.0;
        let (_irq, here) = engine.stay();
        engine.check_host(here, Some(space));
        if here.tlb.loaded() == SpaceId::KERNEL {
            // Lazy already, and detached.
        } else if engine.policy().is_lazy() {
            here.tlb.lazy_root.set(kernel_root.as_u64());
            here.lazy.set(Attention::Lazy);
        } else {
            engine.load_kernel(here, kernel_root);
            engine.leave(space, here.cpu);
            here.lazy.set(Attention::Detached);
        }
    }

    /// Whether code that interrupted this CPU anywhere may touch user memory of the space with this name: false where another one
    /// or none is loaded, between an early acknowledgement and the flush it promised, and in [lazy mode](Self::enter_lazy) and
    /// while flushes are [deferred](Self::defer_flushes), until what passed this CPU by is made up for; and on a CPU without [memory](Shootdown::attach). For NMI-like contexts; any context, does not block.
    pub fn access_ok(self, space: SpaceId) -> bool {
        let engine = self.0;
        let Some(state) = engine.attached(engine.platform.current_cpu()) else {
            return false;
        };
        let tlb = &state.tlb;
        space != SpaceId::KERNEL
            && tlb.loaded() == space
            && !tlb.owes_flush.get()
            && state.lazy.get() == Attention::Active
    }
}

// Out of line and by value: what is formatted has an address, and would have to be kept in memory by every switch.

#[cold]
#[inline(never)]
pub(super) fn not_online(me: CpuId) -> ! {
    panic!("{me} loads a root before it is online");
}

#[cold]
#[inline(never)]
fn not_loaded(me: CpuId, loaded: SpaceId, claimed: SpaceId) -> ! {
    assert!(
        !loaded.is_being_left(),
        "{me} has begun a switch and not ended it: call end_switch"
    );
    assert!(
        loaded != SpaceId::FOREIGN,
        "{me} has a root of the host's own: call end_foreign_root before you load a space"
    );
    panic!("{me} has {loaded:?} loaded, but the caller leaves {claimed:?}");
}
