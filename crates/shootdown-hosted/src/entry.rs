//! [`Entry`]: what a page-table entry says.

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    Unmapped,
    Frame(u32),
    /// The table was given back.
    Freed,
}

impl Entry {
    const FREED: u32 = u32::MAX;

    pub(crate) fn word(self) -> u32 {
        match self {
            Self::Unmapped => 0,
            Self::Frame(frame) => frame + 1,
            Self::Freed => Self::FREED,
        }
    }

    pub(crate) fn of(word: u32) -> Self {
        match word {
            0 => Self::Unmapped,
            Self::FREED => Self::Freed,
            word => Self::Frame(word - 1),
        }
    }
}
