//! How urgent a thread is.

/// A scheduling priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority(u8);

impl Priority {
    /// Threads that take turns.
    pub const NORMAL: Self = Self(0);
}
