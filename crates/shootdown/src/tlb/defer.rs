//! Deferral: a CPU in the kernel needs no user memory until it says so.
//!
//! As lazy mode, but short and cheap: a store at the entry to the kernel, a full barrier and one load of the space's
//! generation before user memory is used again. In between initiators leave the CPU alone, unless tables were freed:
//! the processor may walk them at any time (I4). What it has missed it drops as a whole, because nobody has told it which
//! pages; so deferral pays where interrupts are dear and flushes come while many CPUs are in the kernel.

use crate::handle::UserMemory;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::{AddressSpace, Attention};

impl<P: Platform> UserMemory<'_, P> {
    /// This CPU has entered the kernel and uses no user memory of `space` until [`catch_up`](Self::catch_up), or until it
    /// loads another space: flushes of user pages leave it alone. True if that is so; it is not under a policy
    /// that does not [defer](crate::Policy::defers), and not where `space` is not loaded.
    ///
    /// Context: the caller does not leave this CPU meanwhile. Does not block. Whatever may run here before the catching up, an
    /// interrupt handler too, uses no user memory either ([`access_ok`](Self::access_ok)).
    #[inline]
    pub fn defer_flushes(self, space: &AddressSpace<P::Cpus>) -> bool {
        let engine = self.0;
        let cpu = engine.platform.current_cpu();
        let state = engine.state(cpu);
        engine.forbid_in_walk(Here { cpu, state });
        let defers = engine.policy().defers()
            && state.tlb.loaded() == space.id()
            && state.lazy.get() == Attention::Active;
        if defers {
            state.lazy.set(Attention::Deferring);
        }
        defers
    }

    /// Ends what [`defer_flushes`](Self::defer_flushes) began, and drops what has passed this CPU by: from now on user memory may be
    /// used here. Does nothing where nothing was begun, nor where the CPU has become [lazy](Self::enter_lazy) since: a switch ends that. Same context.
    ///
    /// # Panics
    /// When the CPU has deferred flushes of another space.
    pub fn catch_up(self, space: &AddressSpace<P::Cpus>) {
        let engine = self.0;
        let (_irq, here) = engine.stay();
        engine.forbid_in_walk(here);
        if here.lazy.get() == Attention::Deferring {
            let (me, loaded, claimed) = (here.cpu, here.tlb.loaded(), space.id());
            assert!(
                loaded == claimed,
                "{me} has {loaded:?} loaded, but the caller catches up with {claimed:?}"
            );
            // NMI-like contexts must not believe the mark alone before the flush.
            here.tlb.owes_flush.set(true);
            here.lazy.set(Attention::Active);
            // ORDERING: store mark / load generation, against bump / load marks in `submit_space_flush`: either the initiator
            // finds us, or we see its generation and, by its Release, its PTE change (I2).
            fence(Ordering::SeqCst);
            engine.drop_missed::<true>(here.state, space, space.generation());
            here.tlb.owes_flush.set(false);
        }
    }
}
