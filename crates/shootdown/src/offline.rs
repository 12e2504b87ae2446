//! Taking a CPU out of service without losing a call (I8).
//!
//! The CPU first leaves the set of those that functions are sent to. An initiator may have read the set just before
//! and publish just after, so an empty inbox proves nothing yet. Initiators do both in one stretch with
//! interrupts off; hence the CPU kicks all others: a CPU that has answered is
//! past any such stretch, and every later one sees the new set. Then no function can arrive any more, and those that have arrived run:
//! on a target of flushes still, as functions do everywhere. Then it leaves that set in the same way, and only flushes are left.
//!
//! An initiator that is not online is not kicked. It keeps others from leaving during its stretch instead; departures
//! are rare, and so are such initiators.
//!
//! CPUs leave one at a time: two that left together would each be past the other's last look. Those that wait for
//! their turn serve flushes, and are targets of them still. A turn ends when the others have answered, before functions run: one could
//! spin for a lock whose holder, not online, waits for the end of the turn.
//!
//! So no CPU ever waits for one that is gone, no request is dropped, and initiators that are online pay nothing for it.

use crate::atomic_mask::AtomicCpuMask;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::tlb::SpaceId;
use crate::trace::TraceEvent;

/// No other CPU goes offline until this is dropped.
#[derive(Debug)]
pub(crate) struct DepartureGuard<'a>(&'a AtomicU64);

impl Drop for DepartureGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: Release publishes to the next CPU that leaves what we have published, or that we publish nothing any more. An
        // exchange, because loom lets another exchange overlook a plain store.
        self.0.swap(0, Ordering::Release);
    }
}

impl<P: Platform> Shootdown<P> {
    /// Ends what [`online`](Self::online) began: from its return on the running CPU is no target of calls and
    /// flushes, and everything that was sent to it before has run.
    ///
    /// Call it on the CPU itself, with interrupts off and no lock held that another CPU may spin for, or that a called function
    /// takes; spins for all other online CPUs, and runs what this CPU was called for. The CPU must have left its address space.
    /// Afterwards it may be halted (an interrupt that comes late is harmless) or come [`online`](Self::online) again, which
    /// voids all translations and tags that it had. Needs [`Config::with_hotplug`](crate::Config::with_hotplug).
    ///
    /// # Panics
    /// When the CPU is not online, has an address space loaded, is inside a called function or runs a guest.
    pub fn offline(&self) {
        const { assert!(P::CONFIG.has_hotplug, "CONFIG lacks with_hotplug") };
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(self.is_ready(me), "{me} goes offline but is not online");
        let here = self.here(&irq);
        assert!(
            here.tlb.host() == SpaceId::KERNEL,
            "{me} goes offline with an address space loaded: switch_away first"
        );
        assert!(
            here.lazy.guest() == SpaceId::KERNEL,
            "{me} goes offline inside GuestSpace::run"
        );
        self.forbid_in_walk(here);
        assert!(
            !here.in_function.get(),
            "{me} goes offline inside a called function"
        );
        self.withdraw(me, &self.callable.0);
        // All functions that name us are in the inbox or complete in the ring now, and no other comes. (An entry there that is not, names
        // others, or is a flush.) Not all may have rung: a function relies on the first of its word to ring, and that may be a flush whose
        // initiator has answered before it began.
        here.inbox.ring_all();
        while self.serve(here) {}
        // This also publishes our last use of any translation and root to initiators that found us in a space's set and find us gone
        // here: they send nothing, and may give frames and tables away (I4, I5).
        self.withdraw(me, &self.ready.0);
        while self.serve_flushes(here) {}
        // A CPU that leaves inside `poll_idle`, and never returns there, would come back with its doorbell held. Nobody relies on it.
        let _ = here.inbox.let_go(me);
        self.give_up_tags(me);
        self.platform.on_trace(TraceEvent::Offline { cpu: me });
    }

    /// Takes this CPU out of a set of targets, in its turn, and waits until nobody can send it any more what the set is for.
    fn withdraw(&self, me: CpuId, targets: &AtomicCpuMask<P::Cpus>) {
        let departure = self.await_turn(me);
        // ORDERING: Release publishes what we did as a target.
        targets.remove(me, Ordering::Release);
        // ORDERING: remove us / read ready for the kick, against insert / read the set of a CPU that comes online: either
        // we kick it, or it finds us gone (with one group the set is one word, and the removal would be enough). The kick publishes the
        // removal to those that answer.
        fence(Ordering::SeqCst);
        // A CPU that has answered reads the set anew before it publishes again: between the two it has interrupts off, and serves
        // only when all is announced and an interrupt is refused.
        self.settle();
        drop(departure);
    }

    /// Waits until no other CPU is leaving, serving flushes.
    fn await_turn(&self, me: CpuId) -> DepartureGuard<'_> {
        loop {
            if let Some(Some(guard)) = self.hold_departures(me) {
                return guard;
            }
            self.poll();
            self.arrive_here();
            self.platform.relax();
        }
    }

    /// What an initiator on `me` holds until it has published: nothing if it is online, or CPUs never go. `None` while another CPU goes offline. Interrupts
    /// are off.
    #[inline]
    pub(crate) fn hold_for_initiator(&self, me: CpuId) -> Option<Option<DepartureGuard<'_>>> {
        match !P::CONFIG.has_hotplug || self.is_ready(me) {
            true => Some(None),
            false => self.hold_departures(me),
        }
    }

    /// Keeps other CPUs from going offline. `None` while one does; without a guard where `me` is the one that keeps them
    /// already. Interrupts are off.
    #[cold]
    pub(crate) fn hold_departures(&self, me: CpuId) -> Option<Option<DepartureGuard<'_>>> {
        let mine = me.as_mark();
        // ORDERING: Acquire sees that a CPU that has left is no target; pairs with the end of a `DepartureGuard`.
        let held =
            (self.departure.0).compare_exchange(0, mine, Ordering::Acquire, Ordering::Relaxed);
        match held {
            Ok(_) => Some(Some(DepartureGuard(&self.departure.0))),
            Err(other) => (other == mine).then_some(None),
        }
    }
}
