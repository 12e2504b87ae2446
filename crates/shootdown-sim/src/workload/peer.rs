//! [`Built`]: whose cross-CPU calls a workload runs.

use std::cell::Cell;
use std::fmt;

use shootdown::{Capacity, Cpus, Policy};
use shootdown_peers::{CrossCall, Peer};

use crate::machine::{Engine, Machine, SimPlatform, context};
use crate::timed::Timed;
use crate::workload::{Means, on_large_stack};

/// The memory of a peer's instance for CPUs below `cpus`, with sets of CPUs for 64, 256, 1024 or 4096, in bytes.
pub fn bytes_of(peer: Peer, cpus: usize) -> usize {
    on_large_stack(|| match cpus {
        0..=64 => peer.bytes(SimPlatform::<Cpus<64>>::default(), cpus),
        65..=256 => peer.bytes(SimPlatform::<Cpus<256>>::default(), cpus),
        257..=1024 => peer.bytes(SimPlatform::<Cpus<1024>>::default(), cpus),
        _ => peer.bytes(SimPlatform::<Cpus<4096>>::default(), cpus),
    })
}

/// One instance.
pub enum Built<C: Capacity> {
    /// Another kernel's.
    Peer(Box<dyn CrossCall<C>>),
    /// The engine.
    Ours(Engine<C>),
}

impl<C: Capacity> Built<C> {
    /// An instance for CPUs below `cpus`.
    pub fn new(peer: Peer, cpus: usize) -> Self {
        peer.calls(SimPlatform::<C>::default(), cpus).map_or_else(
            || {
                let engine = Engine::<C>::new(cpus);
                engine.set_policy(Policy::BEST);
                Self::Ours(engine)
            },
            Self::Peer,
        )
    }

    /// Changes the engine's policy, which is `BEST` as it is made.
    pub(super) fn set_policy(&self, policy: Policy) {
        if let Self::Ours(engine) = self {
            engine.set_policy(policy);
        }
    }

    /// Makes the running CPU a target. The peers know no other CPUs.
    pub fn online(&self) {
        if let Self::Ours(engine) = self {
            engine.online();
        }
    }

    /// A machine whose interrupts it takes, and whose broadcasts the engine uses, for all flushes that leave their CPU.
    pub(super) fn machine(
        &self,
        mut timed: Timed,
        means: Means,
        skips_idle_turns: bool,
    ) -> Machine<'_> {
        if skips_idle_turns {
            timed = timed.without_idle_turns();
        }
        if let (Self::Ours(engine), Means::Broadcasts(fabric)) = (self, means) {
            engine.set_policy(Policy::BEST.with_global_tags_from(1));
            timed = timed.with_broadcasts(fabric);
        }
        Machine::timed(timed, || self.calls().handle_ipi())
    }

    /// What it does.
    pub fn calls(&self) -> &dyn CrossCall<C> {
        match self {
            Self::Peer(peer) => &**peer,
            Self::Ours(engine) => &**engine,
        }
    }
}

impl<C: Capacity> fmt::Debug for Built<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Built")
    }
}

/// The function that initiators lend: it counts itself and takes time, in picoseconds.
pub(super) struct Function<'a>(pub(super) &'a Cell<u64>, pub(super) u64);

// SAFETY: the virtual CPUs are coroutines of one thread.
unsafe impl Sync for Function<'_> {}

impl Function<'_> {
    pub(super) fn run(&self) {
        self.0.set(self.0.get() + 1);
        if self.1 > 0 {
            context().work(self.1);
        }
    }
}
