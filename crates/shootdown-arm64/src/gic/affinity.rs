//! Which affinity each CPU has.

use core::sync::atomic::{AtomicU64, Ordering};

/// Where a CPU is, by its MPIDR_EL1 (DDI 0487, D24.2, "MPIDR_EL1"): four numbers of eight bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affinity(u64);

/// Aff3 in bits 39:32, Aff2 to Aff0 in bits 23:0; what is between has other meanings.
const AFFINITY: u64 = 0xff_00ff_ffff;

impl Affinity {
    /// That of a CPU whose MPIDR_EL1 reads so. Firmware's tables have the same (ACPI: MADT, GICC, MPIDR; device tree: `reg` of the CPU).
    pub const fn from_mpidr(mpidr: u64) -> Self {
        Self(mpidr & AFFINITY)
    }

    /// In the layout of MPIDR_EL1.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Aff0, which is a bit in a list of 16, and which of such lists it is in.
    pub(super) const fn bit(self) -> u32 {
        (self.0 & 0xf) as u32
    }

    pub(super) const fn selector(self) -> u64 {
        self.0 >> 4 & 0xf
    }

    /// What all CPUs that one write reaches have in common.
    pub(super) const fn group(self) -> u64 {
        self.0 & !0xf
    }
}

/// A CPU was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The map has no such index.
    IndexTooLarge(usize),
    /// The index has a CPU already.
    IndexTaken(usize),
    /// Another index has the affinity, or the interface.
    AffinityTaken(usize),
}

/// From CPU numbers of the host to affinities, for up to `N` CPUs. Usually a `static`, filled at boot.
#[derive(Debug)]
pub struct AffinityMap<const N: usize> {
    /// The affinity with [`PRESENT`], or 0.
    cpus: [AtomicU64; N],
}

/// No affinity has this bit.
const PRESENT: u64 = 1 << 63;

impl<const N: usize> AffinityMap<N> {
    /// Without any CPU.
    pub const fn new() -> Self {
        Self {
            cpus: [const { AtomicU64::new(0) }; N],
        }
    }

    /// Adds a CPU. One call at a time: two that add one affinity at the same time may both succeed.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; the map is as before then.
    pub fn insert(&self, cpu: usize, affinity: Affinity) -> Result<(), MapError> {
        if let Some(other) = (0..N).find(|&other| self.affinity(other) == Some(affinity)) {
            return Err(MapError::AffinityTaken(other));
        }
        let slot = self.cpus.get(cpu).ok_or(MapError::IndexTooLarge(cpu))?;
        // Relaxed: whoever sends to a CPU has learnt that it is online from something that orders this before.
        slot.compare_exchange(
            0,
            affinity.0 | PRESENT,
            Ordering::Relaxed,
            Ordering::Relaxed,
        )
        .map(drop)
        .map_err(|_| MapError::IndexTaken(cpu))
    }

    /// That of a CPU which is in the map.
    pub fn affinity(&self, cpu: usize) -> Option<Affinity> {
        let word = self.cpus.get(cpu)?.load(Ordering::Relaxed);
        (word & PRESENT != 0).then_some(Affinity(word & !PRESENT))
    }
}

impl<const N: usize> Default for AffinityMap<N> {
    fn default() -> Self {
        Self::new()
    }
}
