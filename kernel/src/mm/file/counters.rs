//! What syncs did, for `/proc/shootdown/stats`.

use core::sync::atomic::{AtomicU64, Ordering};

static SYNCS: AtomicU64 = AtomicU64::new(0);
static PAGES_STORED: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);
static PAGES_PROTECTED: AtomicU64 = AtomicU64::new(0);

/// Counts since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Syncs of files, also of clean ones.
    pub syncs: u64,
    /// Pages that they stored.
    pub pages_stored: u64,
    /// Flushes of an address space that they needed.
    pub flushes: u64,
    /// Entries that lost the right to write.
    pub pages_protected: u64,
}

/// The counts now.
pub fn counters() -> Counters {
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counters {
        syncs: value(&SYNCS),
        pages_stored: value(&PAGES_STORED),
        flushes: value(&FLUSHES),
        pages_protected: value(&PAGES_PROTECTED),
    }
}

/// A sync of so many dirty pages.
pub(super) fn count_sync(pages: usize) {
    SYNCS.fetch_add(1, Ordering::Relaxed);
    PAGES_STORED.fetch_add(pages as u64, Ordering::Relaxed);
}

/// An address space lost the right to write through so many entries.
pub(super) fn count_flush(entries: usize) {
    FLUSHES.fetch_add(u64::from(entries > 0), Ordering::Relaxed);
    PAGES_PROTECTED.fetch_add(entries as u64, Ordering::Relaxed);
}
