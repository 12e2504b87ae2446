//! The states of a thread that others change: what it is to see to, and whether it sleeps.

/// Things a thread must see to before it returns to user mode; bits of one word.
pub(super) mod work {
    /// The process is ending: so does the thread.
    pub const EXIT: u32 = 1 << 0;
    /// A signal that is not blocked may be pending.
    pub const SIGNAL: u32 = 1 << 1;
    /// The thread may no longer be allowed on this CPU.
    pub const MIGRATE: u32 = 1 << 2;
    /// All CPUs that the thread was pinned to are offline: it may use every one now, and says so once.
    pub const UNPINNED: u32 = 1 << 3;
    /// The thread was a server, and has been dismissed.
    pub const DISMISSED: u32 = 1 << 4;
}

/// Where a thread stands between running and sleeping.
pub(super) mod park_state {
    /// Runs or is queued to run.
    pub const RUNNABLE: u8 = 0;
    /// As `RUNNABLE`, and the next park returns at once.
    pub const NOTIFIED: u8 = 1;
    /// Sleeps; whoever changes this queues the thread.
    pub const PARKED: u8 = 2;
}
