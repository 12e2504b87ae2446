//! How a machine is to be, and what it refuses.

use std::ops::Range;
use std::time::Duration;

use shootdown::CpuId;

/// How a machine is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many CPUs, at most the machine's `N`.
    pub cpus: usize,
    /// Numbers below the machine's `N` that no CPU has. The CPUs are numbered from 0 on without them.
    pub unused: Range<usize>,
    /// How many tasks there may be at a time.
    pub tasks: usize,
    /// How many address spaces.
    pub spaces: usize,
    /// How many frames.
    pub frames: usize,
    /// How often each CPU gets a timer interrupt, which also lets the next task run; never, if `None`.
    pub tick: Option<Duration>,
    /// Once in how many calls of the platform a CPU loses its core for [`HICCUP`](Self::HICCUP), as to a hypervisor or
    /// firmware: it widens the windows between two steps of the engine. Never, if `None`.
    pub hiccup_one_in: Option<u32>,
}

impl Config {
    /// How long a hiccup lasts at least.
    pub const HICCUP: Duration = Duration::from_micros(50);

    /// The number of CPU `nth`.
    pub(crate) fn number(&self, nth: usize) -> usize {
        match nth < self.unused.start {
            true => nth,
            false => nth + self.unused.len(),
        }
    }

    /// `cpus` CPUs with two address spaces, no ticks and no hiccups.
    pub const fn new(cpus: usize) -> Self {
        Self {
            cpus,
            unused: 0..0,
            tasks: 0,
            spaces: 2,
            frames: 384,
            tick: None,
            hiccup_one_in: None,
        }
    }
}

/// Why a machine, or one of its CPUs, does not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A machine needs one CPU, and has room for so many.
    #[error("{asked} CPUs on a machine for 1 to {most}: ask for fewer, or build a larger Machine")]
    Cpus {
        /// How many were asked for.
        asked: usize,
        /// How many there may be.
        most: usize,
    },
    /// The machine has no such CPU, or it is offline.
    #[error("{0} is not online: bring it online first")]
    Offline(CpuId),
    /// It is online already.
    #[error("{0} is online already")]
    Online(CpuId),
    /// The last CPU must stay.
    #[error("{0} is the last CPU online: a machine needs one")]
    Last(CpuId),
    /// The caller cannot be moved, and may be in the way.
    #[error(
        "the caller is a job that cannot be moved out of the way of {0}: ask from a task or from outside"
    )]
    Pinned(CpuId),
    /// More tasks than the machine was built for.
    #[error("{asked} tasks on a machine for {most}: raise Config::tasks")]
    Tasks {
        /// How many were asked for.
        asked: usize,
        /// How many there may be.
        most: usize,
    },
    /// The operating system did not give a thread or a signal handler.
    #[error("the operating system refused: {0}")]
    System(String),
}
