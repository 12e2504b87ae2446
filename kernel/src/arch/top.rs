//! The top of page tables: what the private root of a CPU takes over from the shared one of its space, and, with isolation, which root user mode has.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::FlushRange;

use crate::addr::{PhysAddr, TOP_ENTRY_BYTES, WINDOWS};

const ENTRIES: usize = 512;
/// Root entries of the user half; those above belong to the kernel and are the same everywhere.
const USER_ENTRIES: usize = ENTRIES / 2;
/// The root's entry for windows.
const WINDOWS_ENTRY: usize = WINDOWS.start / TOP_ENTRY_BYTES;
/// What says whether there is a table and where: the processor marks the rest.
const PRESENT_ADDRESS: u64 = 0x000f_ffff_ffff_f001;

/// Makes those entries of the root table `private` that translate `range` equal to those of `shared`, but for the windows'; with isolation those of their user
/// roots, too. Any context; reads and writes entries, no more.
pub fn copy_top(shared: PhysAddr, private: PhysAddr, range: FlushRange) {
    // Page walks are ordered by it, and not by the barrier before.
    // SAFETY: it changes nothing.
    unsafe { core::arch::asm!("lfence", options(nostack, preserves_flags)) };
    copy(shared, private, range);
    #[cfg(feature = "isolation")]
    if let (Some(shared), Some(private)) = (user_root(shared), user_root(private)) {
        copy(shared, private, range);
    }
}

/// Which of a space's regions `addr` is in: the number of its root entry.
pub const fn region_of(addr: usize) -> usize {
    addr / TOP_ENTRY_BYTES
}

/// Clears those entries of the root table `private` that translate `range`; with isolation those of its user root, too. Context as of [`copy_top`].
pub fn clear_top(private: PhysAddr, range: FlushRange) {
    clear(private, range);
    #[cfg(feature = "isolation")]
    user_root(private).inspect(|root| clear(*root, range));
}

fn clear(root: PhysAddr, range: FlushRange) {
    (entries(root)[user_entries(range)].iter()).for_each(|entry| entry.store(0, Ordering::Relaxed));
}

/// The root's entries that translate `range`.
fn user_entries(range: FlushRange) -> Range<usize> {
    region_of(range.start())..range.end().div_ceil(TOP_ENTRY_BYTES).min(USER_ENTRIES)
}

fn copy(shared: PhysAddr, private: PhysAddr, range: FlushRange) {
    let (from, to) = (entries(shared), entries(private));
    for index in user_entries(range).filter(|&index| index != WINDOWS_ENTRY) {
        // ORDERING: acquires the zeroed table that its maker published with the entry.
        let entry = from[index].load(Ordering::Acquire);
        // The processor may be marking the entry as accessed: only what differs is written.
        if (to[index].load(Ordering::Relaxed) ^ entry) & PRESENT_ADDRESS != 0 {
            // ORDERING: publishes that table; pairs with the page walk, which x86 orders like a load.
            to[index].store(entry, Ordering::Release);
        }
    }
}

/// The root's entry that says which root user mode has instead: a number behind an entry that is never present.
#[cfg(feature = "isolation")]
const USER_ROOT_ENTRY: usize = USER_ENTRIES + 1;

/// The root that user mode has instead of `root`, if it runs on any. Any context.
#[cfg(feature = "isolation")]
pub fn user_root(root: PhysAddr) -> Option<PhysAddr> {
    let entry = entries(root)[USER_ROOT_ENTRY].load(Ordering::Relaxed);
    (entry != 0).then_some(PhysAddr::new(entry))
}

/// Says so. Nobody has `root` loaded yet.
#[cfg(feature = "isolation")]
pub fn set_user_root(root: PhysAddr, user: PhysAddr) {
    entries(root)[USER_ROOT_ENTRY].store(user.as_u64(), Ordering::Relaxed);
}

/// The table in this frame.
fn entries(root: PhysAddr) -> &'static [AtomicU64; ENTRIES] {
    // SAFETY: roots are whole frames in the direct map, full of initialized entries that change by atomics only; the
    // engine has a use of both spaces meanwhile.
    unsafe { &*root.to_direct().cast() }
}
