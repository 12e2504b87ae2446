//! [`Tallies`]: what each CPU counts, on lines of its own.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::CpuId;

/// A number that one CPU changes and others read.
#[derive(Debug)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// By the CPU whose it is, interrupts off.
    pub(crate) fn add(&self, more: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(before + more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one CPU counts.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CpuTallies<const N: usize> {
    /// Targets that it had interrupted.
    pub(crate) ipis: Tally,
    /// Times it asked for that; one may be for many targets.
    pub(crate) sends: Tally,
    /// Times its handler was entered.
    pub(crate) entries: Tally,
    /// Times the handler ran nothing.
    pub(crate) spurious: Tally,
    /// Functions that it ran.
    pub(crate) runs: Tally,
    /// The same by initiator, counted as they begin, and as they end.
    pub(crate) begun: [Tally; N],
    pub(crate) ended: [Tally; N],
}

/// What all CPUs count. A static of the host's, for the platform and the run.
#[derive(Debug)]
pub struct Tallies<const N: usize> {
    cpus: [CpuTallies<N>; N],
}

impl<const N: usize> Default for Tallies<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Tallies<N> {
    /// Nothing yet.
    pub const fn new() -> Self {
        let cpus = [const {
            CpuTallies {
                ipis: Tally::new(),
                sends: Tally::new(),
                entries: Tally::new(),
                spurious: Tally::new(),
                runs: Tally::new(),
                begun: [const { Tally::new() }; N],
                ended: [const { Tally::new() }; N],
            }
        }; N];
        Self { cpus }
    }

    pub(crate) fn of(&self, cpu: CpuId) -> &CpuTallies<N> {
        &self.cpus[cpu.index()]
    }

    pub(crate) fn total(&self) -> Counts {
        let mut total = Counts::default();
        for cpu in &self.cpus {
            total.ipis += cpu.ipis.get();
            total.sends += cpu.sends.get();
            total.entries += cpu.entries.get();
            total.spurious += cpu.spurious.get();
            total.runs += cpu.runs.get();
        }
        total
    }
}

/// The counts of all CPUs together.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) ipis: u64,
    pub(crate) sends: u64,
    pub(crate) entries: u64,
    pub(crate) spurious: u64,
    pub(crate) runs: u64,
}

impl Counts {
    /// Adds what has been counted between two readings.
    pub(crate) fn add_between(&mut self, before: &Self, after: &Self) {
        self.ipis += after.ipis - before.ipis;
        self.sends += after.sends - before.sends;
        self.entries += after.entries - before.entries;
        self.spurious += after.spurious - before.spurious;
        self.runs += after.runs - before.runs;
    }
}
