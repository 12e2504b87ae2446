//! What ends a run early.

use std::fmt;

/// The kind of a [`Failure`], so that a shrunk run can be compared with the run it came from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureKind {
    /// A load or store used a translation that the page tables no longer promised.
    StaleAccess,
    /// A page walk went through a table that had been freed.
    FreedTable,
    /// A wait ended before what it waits for had happened.
    EarlyReturn,
    /// A wait never ended.
    NoProgress,
    /// The run was not over after as many events as it may have.
    OutOfEvents,
    /// A function ran twice, never, on the wrong CPU or with the wrong argument.
    WrongCall,
    /// Memory was accessed without the exclusion that its protocol promises.
    DataRace,
    /// A store is in no log of what was written.
    LostStore,
    /// Memory was accessed that the loaded root does not map.
    Unmapped,
    /// The code panicked.
    Panic,
    /// A promise of another kind was broken.
    Other,
}

impl FailureKind {
    /// Every kind with its name.
    pub const NAMES: [(Self, &'static str); 11] = [
        (Self::StaleAccess, "stale-access"),
        (Self::FreedTable, "freed-table"),
        (Self::EarlyReturn, "early-return"),
        (Self::NoProgress, "no-progress"),
        (Self::OutOfEvents, "out-of-events"),
        (Self::WrongCall, "wrong-call"),
        (Self::DataRace, "data-race"),
        (Self::LostStore, "lost-store"),
        (Self::Unmapped, "unmapped"),
        (Self::Panic, "panic"),
        (Self::Other, "other"),
    ];
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES
            .iter()
            .find(|(kind, _)| kind == self)
            .map_or("unknown", |(_, name)| name);
        f.write_str(name)
    }
}

/// Why a run ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// The virtual CPU that noticed.
    pub cpu: usize,
    /// After how many events.
    pub event: u64,
    /// What exactly.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on cpu{} at event {}: {}",
            self.kind, self.cpu, self.event, self.message
        )
    }
}
