//! Page-table entries as values, and as the memory cells that processors read and write by themselves.
//!
//! Bit layout: Intel SDM vol. 3A, section 4.5 (4-level paging). Bit 9 is ignored by hardware; here
//! it marks a *parked* entry: `PROT_NONE` was asked for, the frame is remembered and its data kept. Bit 10 marks a
//! *tracked* one: its page belongs to a file, which has to know of the first write.

use super::layout::PhysAddr;
use super::prot::Prot;
use core::sync::atomic::{AtomicU64, Ordering};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const PARKED: u64 = 1 << 9;
const TRACKED: u64 = 1 << 10;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The value of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pte(u64);

impl Pte {
    /// Nothing mapped.
    pub const EMPTY: Self = Self(0);

    /// An entry made elsewhere, such as those of the kernel half.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// An entry that points to a lower table. Rights are decided by the leaf alone.
    pub const fn table(table: PhysAddr) -> Self {
        Self(table.as_u64() & ADDRESS | PRESENT | WRITABLE | USER)
    }

    /// The same, but nothing behind it can be executed.
    #[cfg(feature = "isolation")]
    pub const fn without_code(self) -> Self {
        Self(self.0 | if self.is_present() { NO_EXECUTE } else { 0 })
    }

    /// A leaf for user code. Accessed and (for writable pages) dirty are set in advance, which spares
    /// the processor a locked update of the entry at the access that follows the fault.
    pub const fn leaf(frame: PhysAddr, prot: Prot) -> Self {
        Self(frame.as_u64() & ADDRESS | PRESENT | ACCESSED | DIRTY).with_prot(prot)
    }

    /// A leaf whose page belongs to a file. It may be written through only while the file has the page down as dirty.
    pub const fn tracked_leaf(frame: PhysAddr, prot: Prot) -> Self {
        Self(frame.as_u64() & ADDRESS | PRESENT | ACCESSED | DIRTY | TRACKED).with_prot(prot)
    }

    /// The same frame with other rights. Rights of none park the entry: not present, and with the
    /// address bits inverted, so that a processor that speculates past the present bit (L1 terminal
    /// fault) forms an address where no memory is.
    pub const fn with_prot(self, prot: Prot) -> Self {
        let frame = match self.frame() {
            Some(frame) => frame.as_u64(),
            None => return Self::EMPTY,
        };
        let marks = self.0 & (ACCESSED | DIRTY | TRACKED);
        if !prot.any() {
            return Self(!frame & ADDRESS | marks | PARKED);
        }
        let write = if prot.write() { WRITABLE } else { 0 };
        let no_execute = if prot.exec() { 0 } else { NO_EXECUTE };
        Self(frame | marks | PRESENT | USER | write | no_execute)
    }

    /// The frame or lower table that belongs to this entry, parked or not.
    pub const fn frame(self) -> Option<PhysAddr> {
        if self.0 & PRESENT != 0 {
            Some(PhysAddr::new(self.0 & ADDRESS))
        } else if self.0 & PARKED != 0 {
            Some(PhysAddr::new(!self.0 & ADDRESS))
        } else {
            None
        }
    }

    /// Whether nothing is mapped or remembered here.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether processors can translate through this entry.
    pub const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether its page belongs to a file that has to know of writes.
    pub const fn is_tracked(self) -> bool {
        self.0 & TRACKED != 0
    }

    /// Whether processors may be writing to a file's page through this entry.
    pub const fn writes_to_file(self) -> bool {
        self.is_tracked() && self.prot().write()
    }

    /// What user code may do through this entry.
    pub const fn prot(self) -> Prot {
        if !self.is_present() {
            return Prot::NONE;
        }
        let write = if self.0 & WRITABLE != 0 {
            Prot::WRITE
        } else {
            Prot::NONE
        };
        let exec = if self.0 & NO_EXECUTE == 0 {
            Prot::EXEC
        } else {
            Prot::NONE
        };
        Prot::READ.with(write).with(exec)
    }
}

/// An entry in memory. Processors set accessed and dirty bits in it at any time, so it changes only
/// by atomic read-modify-write.
#[derive(Debug)]
#[repr(transparent)]
pub struct PteCell(AtomicU64);

impl PteCell {
    /// The present value.
    pub fn load(&self) -> Pte {
        // ORDERING: acquires the zeroed table that the store in `fill` published.
        Pte(self.0.load(Ordering::Acquire))
    }

    /// Puts `value` into the entry if that is empty; whether it was. While nobody has the lock of the address space, beside others that do the same.
    pub fn fill_if_empty(&self, value: Pte) -> bool {
        // ORDERING: publishes the frame as `fill` does.
        let filled = self
            .0
            .compare_exchange(0, value.0, Ordering::Release, Ordering::Relaxed);
        filled.is_ok()
    }

    /// Puts `value` into an empty entry. Only under the lock of the address space.
    pub fn fill(&self, value: Pte) {
        // ORDERING: publishes the zeroed frame or table before processors can reach it; pairs with
        // the acquire in `load`, and with the page walk, which x86 orders like a load.
        self.0.store(value.0, Ordering::Release);
    }

    /// Empties the entry; what it held, with the last accessed and dirty bits.
    pub fn take(&self) -> Pte {
        // ORDERING: a locked exchange. I1: before the generation bump in `submit_batch`, which is
        // itself a full barrier; nothing stronger is needed here.
        Pte(self.0.swap(0, Ordering::AcqRel))
    }

    /// Puts `value` in place of what the entry holds, in one step; what it held, as [`take`](Self::take).
    pub fn replace(&self, value: Pte) -> Pte {
        // ORDERING: publishes the new frame's contents as `fill`, and is otherwise as `take`.
        Pte(self.0.swap(value.0, Ordering::AcqRel))
    }

    /// Changes the rights and keeps frame, accessed and dirty; the value before.
    pub fn protect(&self, prot: Prot) -> Pte {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            let new = Pte(old).with_prot(prot).0;
            if new == old {
                return Pte(old);
            }
            // ORDERING: as `take`; retried when a processor set accessed or dirty in between.
            match self
                .0
                .compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Pte(old),
                Err(now) => old = now,
            }
        }
    }
}
