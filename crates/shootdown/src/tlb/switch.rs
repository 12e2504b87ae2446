//! Loading and leaving address spaces on this CPU.

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::{AddressSpace, Root, SpaceId, TlbGen};
use crate::trace::TraceEvent;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Makes `next` the loaded space of this CPU; `previous` is the one loaded so far, if any.
    ///
    /// Interrupts in any state, but the caller must not leave this CPU meanwhile. Does not block. Every
    /// translation of `previous` is dropped (there are no hardware tags yet).
    ///
    /// `next` must stay alive and its tables in place until this CPU has left it; dropping it earlier
    /// panics.
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded, or the CPU is not online.
    pub fn switch_to(&self, previous: Option<&AddressSpace<N>>, next: &AddressSpace<N>) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        self.check_loaded(me, previous);
        assert!(
            self.ready_cpus().contains(me),
            "{me} loads an address space before it is online"
        );
        if previous.is_some_and(|previous| previous.id() == next.id()) {
            drop(irq);
            return;
        }
        // I2: publish, full barrier (also when the bit was already there), then read the generation.
        next.cpu_set().insert(me, Ordering::Relaxed);
        // ORDERING: store CPU bit / load generation, against bump / load CPU set in `begin_flush`: either the
        // initiator sees our bit, or we see its generation and, by its Release, its PTE change.
        fence(Ordering::SeqCst);
        let generation = next.generation();
        self.platform.load_root(next.root());
        // I3: the generation was read before the root load dropped everything older.
        self.state(me).tlb.set_loaded(next.id(), generation);
        if let Some(previous) = previous {
            leave(previous, me);
        }
        self.platform.on_trace(TraceEvent::Switched {
            cpu: me,
            space: next.id(),
        });
        drop(irq);
    }

    /// Leaves `previous` for `kernel_root`, which maps no user memory. Same context as
    /// [`switch_to`](Self::switch_to).
    ///
    /// # Panics
    /// When `previous` is not what this CPU has loaded.
    pub fn switch_away(&self, previous: &AddressSpace<N>, kernel_root: Root) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        self.check_loaded(me, Some(previous));
        self.platform.load_root(kernel_root);
        self.state(me)
            .tlb
            .set_loaded(SpaceId::KERNEL, TlbGen::from_raw(0));
        leave(previous, me);
        self.platform.on_trace(TraceEvent::Switched {
            cpu: me,
            space: SpaceId::KERNEL,
        });
        drop(irq);
    }

    /// Whether code that interrupted this CPU anywhere may touch user memory: false between an early
    /// acknowledgement and the flush it promised. For NMI-like contexts; any context, does not block.
    pub fn user_access_ok(&self) -> bool {
        !self.state(self.platform.current_cpu()).tlb.owes_flush()
    }

    fn check_loaded(&self, me: CpuId, previous: Option<&AddressSpace<N>>) {
        let loaded = self.state(me).tlb.loaded();
        let claimed = previous.map_or(SpaceId::KERNEL, AddressSpace::id);
        assert!(
            loaded == claimed,
            "{me} has {loaded:?} loaded, but the caller leaves {claimed:?}"
        );
    }
}

/// Takes this CPU out of the set, after its root no longer reaches the space.
fn leave<const N: usize>(previous: &AddressSpace<N>, me: CpuId)
where
    Cpus<N>: Capacity,
{
    // ORDERING: Release publishes the root switch to an initiator that no longer finds us (it may free
    // tables at once, I4) and to `AddressSpace::drop`.
    previous.cpu_set().remove(me, Ordering::Release);
}
