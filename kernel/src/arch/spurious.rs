//! Page faults of the kernel on kernel pages that permit the access by now.
//!
//! A right gained needs no flush, nor does a page that appears (SDM vol. 3A, "Optional Invalidation"): a CPU that still has the old translation, or
//! was walking the tables when they changed, faults. Nothing is wrong then, and the access is made again. Linux does the same for rights
//! (`spurious_kernel_fault` in `arch/x86/mm/fault.c`).
//!
//! The processor drops what it has of a page that faults, under the loaded tag; a global translation may be another tag's. INVLPG drops that, too (SDM
//! vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches"), so the next attempt finds what the tables have.

use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::addr::PhysAddr;

/// Error code of #PF (SDM vol. 3A, "Interrupt 14: Page-Fault Exception").
const CODE_PRESENT: u64 = 1 << 0;
const CODE_WRITE: u64 = 1 << 1;
const CODE_FETCH: u64 = 1 << 4;

/// Page-table entry bits (SDM vol. 3A, "Paging-Structure Entries").
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const NX: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Of the root; its entries are no leaves.
const TOP_LEVEL: u32 = 3;

/// A page fault in supervisor mode.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The address that was accessed.
    pub address: usize,
    /// The processor's error code.
    pub code: u64,
}

impl Fault {
    /// The code of a write.
    pub const WRITE: u64 = CODE_WRITE;

    /// Whether the tables under `root` permit the access now, and it is one that only an old translation, or the moment, can have refused: of the
    /// kernel, to its own half. `entry` reads an entry of the table in a frame. CR0.WP and EFER.NXE are set, as everywhere here.
    ///
    /// Never for a page of user mode, whatever its address: what SMAP or SMEP refuses it refuses again.
    pub fn is_spurious(self, root: PhysAddr, entry: impl Fn(PhysAddr, usize) -> u64) -> bool {
        let is_kernels = (self.address as isize) < 0;
        // By user mode, by a reserved bit, by a protection key, by a shadow stack: not by the rights that are looked at here.
        let is_known = self.code & !(CODE_PRESENT | CODE_WRITE | CODE_FETCH) == 0;
        if !is_kernels || !is_known {
            return false;
        }
        let mut table = root;
        let mut is_users = true;
        for level in (0..=TOP_LEVEL).rev() {
            let found = entry(table, self.address >> (12 + 9 * level) & 511);
            if !self.is_permitted_by(found) {
                return false;
            }
            is_users &= found & USER != 0;
            let is_leaf = level == 0 || found & LARGE != 0;
            if is_leaf {
                return level < TOP_LEVEL && !is_users;
            }
            table = PhysAddr::new(found & ADDRESS);
        }
        false
    }

    const fn is_permitted_by(self, entry: u64) -> bool {
        let writes = self.code & CODE_WRITE != 0;
        let fetches = self.code & CODE_FETCH != 0;
        entry & PRESENT != 0 && (!writes || entry & WRITE != 0) && (!fetches || entry & NX == 0)
    }
}

/// Retries of one CPU in a row at one page between two of its timer ticks, at most. One is enough for each change of an entry. Where there are more, the
/// processor refuses what the walk permits, and the CPU would hang without a word.
pub const MOST_RETRIES: u32 = 100;

/// What a CPU has retried last. An NMI handler in the middle of it may count one too many or too few.
#[derive(Debug)]
pub struct Retries {
    page: AtomicUsize,
    tick: AtomicU64,
    count: AtomicU32,
    /// Since boot.
    total: AtomicU64,
}

impl Retries {
    /// None.
    pub const fn none() -> Self {
        Self {
            page: AtomicUsize::new(0),
            tick: AtomicU64::new(0),
            count: AtomicU32::new(0),
            total: AtomicU64::new(0),
        }
    }

    /// Counts one more, and says whether it may be: [`MOST_RETRIES`].
    pub fn allow(&self, address: usize, tick: u64) -> bool {
        let page = address >> 12;
        let is_same = self.page.swap(page, Ordering::Relaxed) == page;
        let is_same = self.tick.swap(tick, Ordering::Relaxed) == tick && is_same;
        let before = match is_same {
            true => self.count.load(Ordering::Relaxed),
            false => 0,
        };
        let is_allowed = before < MOST_RETRIES;
        self.count
            .store(before + u32::from(is_allowed), Ordering::Relaxed);
        self.total
            .fetch_add(u64::from(is_allowed), Ordering::Relaxed);
        is_allowed
    }

    /// How many there were since boot.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}
