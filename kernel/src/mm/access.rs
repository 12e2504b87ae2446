//! What a faulting access was, and why it was refused.

use super::prot::Prot;
use crate::errno::Errno;
use core::fmt;

/// What the processor said about a faulting access (page-fault error code, Intel SDM vol. 3A,
/// section 4.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultAccess {
    /// It was a write.
    pub write: bool,
    /// It was an instruction fetch.
    pub exec: bool,
    /// It came from ring 3.
    pub user: bool,
    /// The entry was present: the rights forbade the access.
    pub present: bool,
}

impl FaultAccess {
    /// The rights that it needs in the entry.
    pub(super) const fn rights(self) -> Prot {
        match (self.write, self.exec) {
            (true, _) => Prot::READ_WRITE,
            (false, true) => Prot::READ.with(Prot::EXEC),
            (false, false) => Prot::READ,
        }
    }

    /// What a read by the kernel on behalf of a program would be.
    pub(super) const READ: Self = Self {
        write: false,
        exec: false,
        user: false,
        present: false,
    };
}

/// Why a fault could not be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No process is current: a kernel bug, or a wild pointer in a kernel thread.
    NoProcess,
    /// The address is not in the user half.
    KernelAddress,
    /// Nothing is mapped there.
    NoMapping,
    /// Just below the stack, but the stack may not grow that far.
    StackOverflow,
    /// The area is `PROT_NONE`.
    NotReadable,
    /// A write to an area without `PROT_WRITE`.
    NotWritable,
    /// A fetch from an area without `PROT_EXEC`.
    NotExecutable,
    /// No frame is left.
    OutOfMemory,
    /// The mapping goes on, but the file has ended.
    BeyondFile,
    /// Files have all the memory that they may have.
    NoFileSpace,
}

impl FaultError {
    /// Whether something is mapped there and only the rights are missing (`SEGV_ACCERR`, else
    /// `SEGV_MAPERR`).
    pub const fn is_access_violation(self) -> bool {
        matches!(
            self,
            Self::NotReadable | Self::NotWritable | Self::NotExecutable
        )
    }

    /// Whether something is mapped there that its file cannot provide (`SIGBUS`).
    pub const fn is_bus_error(self) -> bool {
        matches!(self, Self::BeyondFile | Self::NoFileSpace)
    }
}

impl fmt::Display for FaultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoProcess => "no process",
            Self::KernelAddress => "not a user address",
            Self::NoMapping => "no mapping",
            Self::StackOverflow => "stack overflow",
            Self::NotReadable => "mapped without access",
            Self::NotWritable => "mapped read-only",
            Self::NotExecutable => "mapped no-execute",
            Self::OutOfMemory => "out of memory",
            Self::BeyondFile => "beyond the end of the file",
            Self::NoFileSpace => "no memory left for files",
        })
    }
}

impl core::error::Error for FaultError {}

impl From<FaultError> for Errno {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::OutOfMemory => Self::ENOMEM,
            _ => Self::EFAULT,
        }
    }
}
