//! What syncs and cuts did, for `/proc/shootdown/stats`.

use core::sync::atomic::{AtomicU64, Ordering};

static SYNCS: AtomicU64 = AtomicU64::new(0);
static PAGES_STORED: AtomicU64 = AtomicU64::new(0);
static FLUSHES: AtomicU64 = AtomicU64::new(0);
static PAGES_PROTECTED: AtomicU64 = AtomicU64::new(0);
static CUT_FLUSHES: AtomicU64 = AtomicU64::new(0);
static CUT_SPACES: AtomicU64 = AtomicU64::new(0);

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
    /// Flushes that cuts needed, one for all spaces.
    pub cut_flushes: u64,
    /// Spaces from which they took pages away.
    pub cut_spaces: u64,
}

/// The counts now.
pub fn counters() -> Counters {
    let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counters {
        syncs: value(&SYNCS),
        pages_stored: value(&PAGES_STORED),
        flushes: value(&FLUSHES),
        pages_protected: value(&PAGES_PROTECTED),
        cut_flushes: value(&CUT_FLUSHES),
        cut_spaces: value(&CUT_SPACES),
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

/// A cut took pages away from so many spaces.
pub(super) fn count_cut(spaces: usize) {
    CUT_FLUSHES.fetch_add(u64::from(spaces > 0), Ordering::Relaxed);
    CUT_SPACES.fetch_add(spaces as u64, Ordering::Relaxed);
}
