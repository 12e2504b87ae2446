//! What threads and processes have used: time on CPUs, and page faults.

use core::iter::Sum;
use core::ops::Add;
use core::sync::atomic::{AtomicU64, Ordering};

/// What somebody has used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Time on CPUs, up to the last tick or switch.
    pub run_ns: u64,
    /// The part of it that ticks found in the kernel.
    pub system_ns: u64,
    /// Page faults that brought a page or a right.
    pub faults: u64,
}

impl Usage {
    /// The part that ticks found in user mode.
    pub fn user_ns(&self) -> u64 {
        self.run_ns.saturating_sub(self.system_ns)
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            run_ns: self.run_ns + other.run_ns,
            system_ns: self.system_ns + other.system_ns,
            faults: self.faults + other.faults,
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

/// Counts it.
#[derive(Default, Debug)]
pub(super) struct Meter {
    run_ns: AtomicU64,
    system_ns: AtomicU64,
    faults: AtomicU64,
}

impl Meter {
    pub fn read(&self) -> Usage {
        Usage {
            run_ns: self.run_ns.load(Ordering::Relaxed),
            system_ns: self.system_ns.load(Ordering::Relaxed),
            faults: self.faults.load(Ordering::Relaxed),
        }
    }

    pub fn add(&self, more: Usage) {
        self.run_ns.fetch_add(more.run_ns, Ordering::Relaxed);
        self.system_ns.fetch_add(more.system_ns, Ordering::Relaxed);
        self.faults.fetch_add(more.faults, Ordering::Relaxed);
    }
}
