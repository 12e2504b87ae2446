//! Why a change of an address space was refused, in the terms of the system calls that ask for it.

use crate::errno::Errno;
use core::fmt;

/// Refusals of calls that change mappings or files. Each corresponds to exactly one Linux error number.
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
    /// EACCES: the right to write to a file that was opened for reading.
    Denied,
    /// ENOSPC: files have all the memory that they may have.
    NoSpace,
    /// EFBIG: beyond the largest size of a file.
    TooBig,
}

impl From<MapError> for Errno {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Invalid => Self::EINVAL,
            MapError::NoMemory => Self::ENOMEM,
            MapError::Exists => Self::EEXIST,
            MapError::Forbidden => Self::EPERM,
            MapError::NotMapped => Self::EFAULT,
            MapError::Denied => Self::EACCES,
            MapError::NoSpace => Self::ENOSPC,
            MapError::TooBig => Self::EFBIG,
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
            Self::Denied => "file not opened for writing",
            Self::NoSpace => "no memory left for files",
            Self::TooBig => "file too large",
        })
    }
}

impl core::error::Error for MapError {}
