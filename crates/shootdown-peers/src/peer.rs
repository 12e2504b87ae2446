//! [`Peer`]: whose cross-CPU calls.

use alloc::boxed::Box;
use core::fmt;

use shootdown::Platform;

use crate::{
    Acknowledgement, Bits, CallQueues, CrossCall, Mailbox, OneLock, Scoreboard, Series, TaskSet,
    Without, ours,
};

/// Whose algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Peer {
    /// Small kernels: one mailbox under one lock.
    Mailbox,
    /// Xen today: one call under one lock.
    OneLock,
    /// Xen, series of April 2026.
    TaskSet,
    /// Linux.
    CallQueues,
    /// FreeBSD.
    Scoreboard,
    /// This engine with all that it can have, under its default policy.
    Shootdown,
    /// This engine as an ordinary kernel builds it.
    Plain,
    /// No kernel's: a bit a pair, and a word that the target clears.
    Bits,
    /// The same with a number that the target writes.
    BitsNumbered,
    /// As `Bits`, and the target guesses who has asked.
    BitsGuessed,
    /// Linux's flush as the series of 2019 has it, but for one patch.
    Series(Without),
}

impl Peer {
    /// Designs that no kernel has, to measure beside the engine.
    pub const DESIGNS: [Self; 3] = [Self::Bits, Self::BitsNumbered, Self::BitsGuessed];

    /// Linux's flush as the series of 2019 (T1) has it, and without each of its small patches.
    pub const SERIES: [Self; 6] = [
        Self::Series(Without::Nothing),
        Self::Series(Without::PrivateMasks),
        Self::Series(Without::PrivateState),
        Self::Series(Without::PlainBits),
        Self::Series(Without::InfoOnStack),
        Self::Series(Without::MessageOffStack),
    ];

    /// All kernels', ours last.
    pub const ALL: [Self; 6] = [
        Self::Mailbox,
        Self::OneLock,
        Self::TaskSet,
        Self::CallQueues,
        Self::Scoreboard,
        Self::Shootdown,
    ];

    /// The same, and ours without what costs instructions and an ordinary kernel does not need: for machines that charge for each.
    pub const ON_PROCESSORS: [Self; 7] = {
        let [a, b, c, d, e, f] = Self::ALL;
        [a, b, c, d, e, f, Self::Plain]
    };

    /// Its name in plans and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mailbox => "mailbox",
            Self::OneLock => "xen-before",
            Self::TaskSet => "xen",
            Self::CallQueues => "linux",
            Self::Scoreboard => "freebsd",
            Self::Shootdown => "best",
            Self::Plain => "plain",
            Self::Bits => "bits",
            Self::BitsNumbered => "bits numbered",
            Self::BitsGuessed => "bits guessed",
            Self::Series(Without::Nothing) => "series",
            Self::Series(Without::PrivateMasks) => "without 7",
            Self::Series(Without::PrivateState) => "without 8",
            Self::Series(Without::PlainBits) => "without 9",
            Self::Series(Without::InfoOnStack) => "without 12",
            Self::Series(Without::MessageOffStack) => "message on stack",
        }
    }

    /// Its calls for CPUs below `cpus`. `None` for the engines, which hosts make themselves: it is too large for many a stack, and
    /// they need it as what it is.
    pub fn calls<P>(self, platform: P, cpus: usize) -> Option<Box<dyn CrossCall<P::Cpus>>>
    where
        P: Platform + 'static,
    {
        Some(match self {
            Self::Mailbox => Box::new(Mailbox::new(platform)),
            Self::OneLock => Box::new(OneLock::new(platform)),
            Self::TaskSet => Box::new(TaskSet::new(platform, cpus)),
            Self::CallQueues => Box::new(CallQueues::new(platform, cpus)),
            Self::Scoreboard => Box::new(Scoreboard::new(platform, cpus)),
            Self::Shootdown | Self::Plain => return None,
            Self::Bits => Box::new(Bits::new(platform, cpus, Acknowledgement::Cleared, false)),
            Self::BitsNumbered => {
                Box::new(Bits::new(platform, cpus, Acknowledgement::Numbered, false))
            }
            Self::BitsGuessed => {
                Box::new(Bits::new(platform, cpus, Acknowledgement::Cleared, true))
            }
            Self::Series(without) => Box::new(Series::new(platform, cpus, without)),
        })
    }

    /// The memory that it takes for CPUs below `cpus`, in bytes.
    pub fn bytes<P>(self, platform: P, cpus: usize) -> usize
    where
        P: Platform + 'static,
    {
        match self {
            // Large enough to be reckoned without making one.
            Self::CallQueues => CallQueues::<P>::bytes_for(cpus),
            Self::Scoreboard => Scoreboard::<P>::bytes_for(cpus),
            _ => self
                .calls::<P>(platform, cpus)
                .map_or_else(|| ours::bytes_for::<P>(cpus), |calls| calls.bytes()),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
