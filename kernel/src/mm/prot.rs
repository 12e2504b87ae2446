//! [`Prot`]: what user code may do with a page.

use core::fmt;

/// A set of the rights read, write and execute. The empty set is `PROT_NONE`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Prot(u8);

impl Prot {
    /// No access.
    pub const NONE: Self = Self(0);
    /// `PROT_READ`.
    pub const READ: Self = Self(1);
    /// `PROT_WRITE`; the processor lets such pages be read as well.
    pub const WRITE: Self = Self(2);
    /// `PROT_EXEC`; the processor lets such pages be read as well.
    pub const EXEC: Self = Self(4);
    /// Read and write.
    pub const READ_WRITE: Self = Self(3);

    /// From the `prot` argument of `mmap` and `mprotect`; `None` for unknown bits.
    pub const fn from_linux(bits: usize) -> Option<Self> {
        if bits & !7 == 0 {
            Some(Self(bits as u8))
        } else {
            None
        }
    }

    /// Both sets together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The same without the right to write. On x86 what could be written can still be read.
    #[must_use]
    pub const fn without_write(self) -> Self {
        if self.write() {
            Self(self.0 & Self::EXEC.0 | Self::READ.0)
        } else {
            self
        }
    }

    /// Whether user code may access the page at all.
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether user code may write.
    pub const fn write(self) -> bool {
        self.0 & Self::WRITE.0 != 0
    }

    /// Whether user code may execute.
    pub const fn exec(self) -> bool {
        self.0 & Self::EXEC.0 != 0
    }

    /// Whether every access that `self` allows is allowed by `other` too: on x86 a page that may be
    /// accessed at all may be read, so only write, execute and "any" matter.
    pub const fn within(self, other: Self) -> bool {
        (!self.any() || other.any())
            && (!self.write() || other.write())
            && (!self.exec() || other.exec())
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As in `/proc/self/maps`: `rwx` with dashes.
impl fmt::Display for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (right, letter) in [(Self::READ, 'r'), (Self::WRITE, 'w'), (Self::EXEC, 'x')] {
            let shown = if self.0 & right.0 != 0 { letter } else { '-' };
            fmt::Write::write_char(f, shown)?;
        }
        Ok(())
    }
}
