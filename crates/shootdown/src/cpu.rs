//! CPU numbers.

use core::fmt;

/// The number of a CPU as the host counts them: dense, from zero, fixed while the machine runs.
///
/// It is an index, not a hardware identifier (on x86 the local APIC id is something else).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct CpuId(u32);

impl CpuId {
    /// The CPU with number `index`.
    #[inline]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The number as an array index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The number itself.
    #[inline]
    pub const fn as_u32(self) -> u32 {
        self.0
    }

    /// As in a word in which 0 is no CPU.
    #[inline]
    pub(crate) const fn as_mark(self) -> u64 {
        self.0 as u64 + 1
    }

    /// From an array index that is known to be a CPU number (below 4096, so it always fits).
    #[inline]
    pub(crate) const fn from_index(index: usize) -> Self {
        Self(index as u32)
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{}", self.0)
    }
}
