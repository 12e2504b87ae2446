//! [`Peer`]: whose cross-CPU calls.

use alloc::boxed::Box;

use shootdown::{Capacity, Cpus, Platform, Shootdown};
use shootdown_peers::{CallQueues, CrossCall, Mailbox, OneLock, Scoreboard, TaskSet};

/// Whose algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

/// A peer's calls, or ours.
pub type Contender<const N: usize> = &'static dyn CrossCall<N>;

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

    /// Its name in plans and tables, the same as in the simulator's.
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

    /// Its calls for CPUs below `cpus`, for ever. The engine is the host's: it is too large to be made on a kernel's
    /// stack.
    pub(crate) fn contender<P, const N: usize>(
        self,
        platform: P,
        ours: &'static Shootdown<P, N>,
        cpus: usize,
    ) -> Contender<N>
    where
        P: Platform + Copy + 'static,
        Cpus<N>: Capacity,
    {
        match self {
            Self::Mailbox => Box::leak(Box::new(Mailbox::new(platform))),
            Self::OneLock => Box::leak(Box::new(OneLock::<_, N>::new(platform))),
            Self::TaskSet => Box::leak(Box::new(TaskSet::<_, N>::new(platform, cpus))),
            Self::CallQueues => Box::leak(Box::new(CallQueues::new(platform, cpus))),
            Self::Scoreboard => Box::leak(Box::new(Scoreboard::new(platform, cpus))),
            Self::Shootdown => ours,
        }
    }
}
