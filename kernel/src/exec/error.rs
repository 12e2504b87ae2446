//! Why a file cannot be run.

use crate::errno::Errno;
use crate::mm::MapError;
use core::fmt;

/// Why a file cannot be run as a program here. The text names the cause and, where there is one, the
/// remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecError {
    /// It does not begin with the ELF magic.
    NotElf,
    /// It ends before something that its headers promise.
    Truncated,
    /// ELF, but for 32-bit processors.
    ThirtyTwoBit,
    /// ELF, but big-endian.
    BigEndian,
    /// ELF for another processor (the number from the header).
    WrongMachine(u16),
    /// ELF, but not a program (the type number: 1 an object file, 4 a core dump).
    NotProgram(u16),
    /// Its interpreter cannot be had.
    Interpreter(Errno),
    /// A program header that makes no sense.
    BadSegment(&'static str),
    /// Arguments and environment are too large.
    ArgumentsTooLong,
    /// The address space refused.
    Memory(MapError),
}

impl fmt::Display for ExecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotElf => f.write_str("not an ELF file"),
            Self::Truncated => f.write_str("truncated ELF file: copy it again"),
            Self::ThirtyTwoBit => f.write_str("32-bit ELF file: build for x86_64"),
            Self::BigEndian => f.write_str("big-endian ELF file: build for x86_64"),
            Self::WrongMachine(machine) => {
                write!(f, "ELF file for machine {machine}: build for x86_64 (62)")
            }
            Self::NotProgram(kind) => write!(f, "ELF file of type {kind}, not a program: link it"),
            Self::Interpreter(why) => write!(
                f,
                "its dynamic linker cannot be opened ({why:?}): put it into the image, or link statically"
            ),
            Self::BadSegment(why) => write!(f, "bad program header: {why}"),
            Self::ArgumentsTooLong => f.write_str("arguments and environment too large"),
            Self::Memory(error) => write!(f, "cannot map the program: {error}"),
        }
    }
}

impl core::error::Error for ExecError {}

impl From<MapError> for ExecError {
    fn from(error: MapError) -> Self {
        Self::Memory(error)
    }
}

impl From<ExecError> for Errno {
    fn from(error: ExecError) -> Self {
        match error {
            ExecError::ArgumentsTooLong => Self::E2BIG,
            ExecError::Memory(error) => error.into(),
            ExecError::Interpreter(errno) => errno,
            _ => Self::ENOEXEC,
        }
    }
}
