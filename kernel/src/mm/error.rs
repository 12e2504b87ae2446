//! Why a change of an address space was refused, in the terms of the system calls that ask for it.

use core::fmt;

/// Refusals of mapping calls. Each corresponds to exactly one Linux error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// EINVAL: an unaligned address, an empty length, or flags that mean nothing.
    Invalid,
    /// ENOMEM: no frame, no kernel memory, no room, or a hole where a mapping must be.
    NoMemory,
    /// EEXIST: something is mapped where `MAP_FIXED_NOREPLACE` wants to be.
    Exists,
    /// EPERM: an address below the lowest one that may be mapped.
    Forbidden,
    /// EFAULT: `mremap` of something that is not one mapping.
    NotMapped,
}

impl MapError {
    /// The Linux error number (positive).
    pub const fn errno(self) -> i32 {
        match self {
            Self::Forbidden => 1,
            Self::NoMemory => 12,
            Self::NotMapped => 14,
            Self::Exists => 17,
            Self::Invalid => 22,
        }
    }
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid address, length or flags",
            Self::NoMemory => "out of memory or address space",
            Self::Exists => "range already mapped",
            Self::Forbidden => "address below the lowest mappable one",
            Self::NotMapped => "range is not one mapping",
        })
    }
}

impl core::error::Error for MapError {}
