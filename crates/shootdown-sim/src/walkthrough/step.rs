//! [`Step`]: one thing that happened.

use serde::Serialize;

use crate::walkthrough::Change;

/// What kind of thing.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Sort {
    /// A program, or the kernel that it runs on.
    Program,
    /// The engine.
    Engine,
    /// An interrupt is sent, taken or left.
    Interrupt,
    /// Translations are dropped.
    Flush,
    /// Somebody waits.
    Wait,
    /// A function that another CPU called.
    Function,
    /// A lock is taken or left.
    Lock,
    /// A cache line gets another holder, or a load sees an older value.
    Access,
    /// The hardware does something by itself.
    Hardware,
    /// The oracle's promises change.
    Oracle,
    /// A promise is broken.
    Violation,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Step {
    /// Of how many events the machine had had.
    pub event: u64,
    /// When, in picoseconds of the CPU's clock (timed model).
    pub at_ps: u64,
    /// Where, if it is known.
    pub cpu: Option<usize>,
    /// What kind of thing.
    pub sort: Sort,
    /// A few words.
    pub label: String,
    /// All that is known.
    pub text: String,
    /// Whether the story tells it.
    pub is_told: bool,
    /// What it made different.
    pub changes: Vec<Change>,
}
