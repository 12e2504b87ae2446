//! [`Peer`]: whose cross-CPU calls a workload runs.

use std::fmt;

use shootdown::{Capacity, Cpus, Policy, Shootdown};
use shootdown_peers::{CallQueues, CrossCall, Mailbox, OneLock, Scoreboard, TaskSet};

use crate::machine::SimPlatform;
use crate::workload::on_large_stack;

/// Whose algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// Small kernels: one mailbox under one lock.
    Mailbox,
    /// Xen before 2026: one call under one lock.
    OneLock,
    /// Xen since 2026.
    TaskSet,
    /// Linux.
    CallQueues,
    /// FreeBSD.
    Scoreboard,
    /// This engine, under its default policy.
    Shootdown,
}

impl Peer {
    /// All of them, ours last.
    pub const ALL: [Self; 6] = [
        Self::Mailbox,
        Self::OneLock,
        Self::TaskSet,
        Self::CallQueues,
        Self::Scoreboard,
        Self::Shootdown,
    ];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mailbox => "mailbox",
            Self::OneLock => "xen-before",
            Self::TaskSet => "xen",
            Self::CallQueues => "linux",
            Self::Scoreboard => "freebsd",
            Self::Shootdown => "best",
        }
    }

    /// The memory of an instance for CPUs below `cpus`, with sets of CPUs for 64, 256, 1024 or 4096, in bytes.
    pub fn bytes(self, cpus: usize) -> usize {
        on_large_stack(|| match cpus {
            0..=64 => self.bytes_sized::<64>(cpus),
            65..=256 => self.bytes_sized::<256>(cpus),
            257..=1024 => self.bytes_sized::<1024>(cpus),
            _ => self.bytes_sized::<4096>(cpus),
        })
    }

    fn bytes_sized<const N: usize>(self, cpus: usize) -> usize
    where
        Cpus<N>: Capacity,
    {
        match self {
            // Large enough to be reckoned without making one.
            Self::CallQueues => CallQueues::<SimPlatform>::bytes_for(cpus),
            Self::Scoreboard => Scoreboard::<SimPlatform>::bytes_for(cpus),
            Self::Shootdown => size_of::<Shootdown<SimPlatform, N>>(),
            _ => self.build::<N>(cpus).calls().bytes(),
        }
    }

    /// An instance for CPUs below `cpus`.
    pub fn build<const N: usize>(self, cpus: usize) -> Built<N>
    where
        Cpus<N>: Capacity,
    {
        match self {
            Self::Mailbox => Built::Peer(Box::new(Mailbox::new(SimPlatform))),
            Self::OneLock => Built::Peer(Box::new(OneLock::<_, N>::new(SimPlatform))),
            Self::TaskSet => Built::Peer(Box::new(TaskSet::<_, N>::new(SimPlatform, cpus))),
            Self::CallQueues => Built::Peer(Box::new(CallQueues::new(SimPlatform, cpus))),
            Self::Scoreboard => Built::Peer(Box::new(Scoreboard::new(SimPlatform, cpus))),
            Self::Shootdown => {
                let engine: Box<Shootdown<SimPlatform, N>> = Box::new(Shootdown::new(SimPlatform));
                engine.set_policy(Policy::BEST);
                Built::Ours(engine)
            }
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<const N: usize> fmt::Debug for Built<N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Built")
    }
}

/// One instance.
pub enum Built<const N: usize>
where
    Cpus<N>: Capacity,
{
    /// Another kernel's.
    Peer(Box<dyn CrossCall<N>>),
    /// The engine.
    Ours(Box<Shootdown<SimPlatform, N>>),
}

impl<const N: usize> Built<N>
where
    Cpus<N>: Capacity,
{
    /// Makes the running CPU a target. The peers know no other CPUs.
    pub fn online(&self) {
        if let Self::Ours(engine) = self {
            engine.online();
        }
    }

    /// What it does.
    pub fn calls(&self) -> &dyn CrossCall<N> {
        match self {
            Self::Peer(peer) => &**peer,
            Self::Ours(engine) => &**engine,
        }
    }
}
