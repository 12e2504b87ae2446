//! Taking a CPU out of service without losing a call (I8).
//!
//! The CPU first says that it is no target any more. An initiator may have read the set of ready CPUs just before
//! and publish just after, so an empty inbox proves nothing yet. Initiators do both in one stretch with
//! interrupts off; hence the CPU calls an empty function on all others: whoever has run it is past any such
//! stretch, and every later one sees the new set. Then nothing can arrive any more, and what has arrived is served.
//!
//! CPUs leave one at a time: two that left together would each be past the other's last look. Those that wait for
//! their turn serve, and are targets still.
//!
//! So nobody ever waits for a CPU that is gone, no request is dropped, and initiators pay nothing for it.

use crate::call::Next;
use crate::capacity::{Capacity, Cpus};
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::{Ordering, fence};
use crate::tlb::SpaceId;
use crate::trace::TraceEvent;

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Ends what [`online`](Self::online) began: from its return on the running CPU is no target of calls and
    /// flushes, and everything that was sent to it before has run.
    ///
    /// Call it on the CPU itself, with interrupts off and no lock held that another CPU may spin for; spins for all other
    /// online CPUs, serving this CPU's inbox. The CPU must have left its address space. Afterwards it may be
    /// halted (an interrupt that comes late is harmless) or come [`online`](Self::online) again, which voids all
    /// translations and tags that it had.
    ///
    /// # Panics
    /// When the CPU is not online, has an address space loaded, or is inside a called function.
    pub fn offline(&self) {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(
            me.index() < N && self.ready_cpus().contains(me),
            "{me} goes offline but is not online"
        );
        let state = self.state(me);
        assert!(
            state.tlb.host() == SpaceId::KERNEL,
            "{me} goes offline with an address space loaded: switch_away first"
        );
        assert!(
            !state.in_function.get(),
            "{me} goes offline inside a called function"
        );
        self.await_turn();
        // ORDERING: Release publishes our last use of any translation and root to initiators that found us in a space's
        // set and find us gone here: they send nothing, and may give frames and tables away (I4, I5).
        self.ready_set().remove(me, Ordering::Release);
        // ORDERING: remove us / read ready for the call, against insert / read ready of a CPU that comes online: either
        // we call it, or it finds us gone (up to 64 CPUs the set is one word, and the removal would be enough). The call publishes the removal to those that run the function.
        fence(Ordering::SeqCst);
        // Whoever has run this reads `ready` anew before it publishes again: every stretch between the two has
        // interrupts off and does not serve.
        self.call_all(&|_| ());
        // All requests that name us are in the inbox or complete in the ring now. (An entry there that is not, names others.)
        while self.serve(me, Next::Leave) {}
        // ORDERING: Release publishes to the next one that leaves that we publish nothing any more. An exchange, because
        // loom lets another exchange overlook a plain store.
        self.leaving().swap(false, Ordering::Release);
        self.platform.on_trace(TraceEvent::Offline { cpu: me });
        drop(irq);
    }

    /// Waits until no other CPU is leaving, serving the inbox.
    fn await_turn(&self) {
        // ORDERING: Acquire pairs with the Release of the one before.
        while self.leaving().swap(true, Ordering::Acquire) {
            self.poll();
            self.platform.relax();
        }
    }
}
