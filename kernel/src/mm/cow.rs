//! Copy on write: what a fork left shared, and what a private mapping shows of a file, is copied when somebody writes to it.
//!
//! A shared page is read-only wherever it is mapped (a file's may be written to where it is mapped as such). At a write, a page that still has other owners is copied in three
//! steps: the entry changes to the copy, read-only; every CPU forgets the original; only then may the copy be written.
//! Otherwise one thread could write to the copy while another still reads the original through an old translation, and
//! would not see what the first one says that it wrote. The lock is held over the second step, or a third thread that faults
//! on the same page could do the last one early.

use super::access::FaultError;
use super::frames::{self, Frame, Share};
use super::invalidate::Gather;
use super::layout::{PAGE_SIZE, page_floor};
use super::prot::Prot;
use super::pte::{Pte, PteCell};
use super::space::{Inner, MemorySpace};
use super::vma::{Area, AreaKind};
use super::witness;

impl Area {
    /// What user code may do through `entry` of this area now: nobody writes to a page that another process has, too,
    /// unless they are meant to share it.
    pub(super) fn prot_of(&self, entry: Pte) -> Prot {
        if entry.is_tracked() {
            // What a file counts is granted by a fault only.
            return if entry.prot().write() {
                self.prot
            } else {
                self.prot.without_write()
            };
        }
        let others = entry.frame().is_some_and(frames::is_shared);
        if others && !self.kind.is_shared() {
            self.prot.without_write()
        } else {
            self.prot
        }
    }
}

impl MemorySpace {
    /// Gives this space a copy of the page of `addr`, if it shares one there, that it may not write to yet. Waits until
    /// no CPU translates to the original any more.
    ///
    /// # Errors
    /// [`FaultError::OutOfMemory`]; nothing is changed then.
    pub(super) fn copy_page(&self, addr: usize) -> Result<(), FaultError> {
        let mut fresh = Some(frames::alloc().ok_or(FaultError::OutOfMemory)?);
        // Who shares the page has waited until nobody could write to it.
        let mut gather = Gather::of_found(self);
        let mut inner = self.lock();
        inner.copy_page(page_floor(addr), &mut fresh, &mut gather);
        self.submit(&mut inner, gather).finish();
        drop(inner);
        if let Some(unused) = fresh {
            frames::free(unused);
        }
        Ok(())
    }
}

impl Inner {
    /// Puts a copy on `fresh` in place of the page at `page`. Another thread may have done so, or unmapped the page.
    fn copy_page(&mut self, page: usize, fresh: &mut Option<Frame>, gather: &mut Gather<'_>) {
        let (Some(area), Some(cell)) = (self.areas.find(page), self.table.leaf(page)) else {
            return;
        };
        let is_own = area.prot.write() && !area.kind.is_shared();
        let is_due = is_own && cell.load().is_present() && !area.prot_of(cell.load()).write();
        if let Some(fresh) = fresh.take_if(|_| is_due) {
            gather.freed_page(page, exchange(cell, fresh, area));
        }
    }
}

/// Puts a copy of the page of `cell`, which is in `area`, on `fresh` and maps that instead. The share that the entry had.
fn exchange(cell: &PteCell, fresh: Frame, area: &Area) -> Share {
    let Some(original) = cell.load().frame() else {
        unreachable!("the lock is held, and the entry had a frame");
    };
    let (from, to) = (original.to_direct(), fresh.address().to_direct());
    let is_files = matches!(area.kind, AreaKind::PrivateFile(_));
    witness::copying(original, fresh.address(), is_files);
    // SAFETY: the entry has a share of the one frame, `fresh` owns the other, and both are in the direct map. All
    // owners map the original read-only, or it is a file's: what a program writes there meanwhile is in the copy or not.
    unsafe { to.copy_from_nonoverlapping(from, PAGE_SIZE) };
    let prot = area.prot.without_write();
    cell.replace(Pte::leaf(fresh.into_raw(), prot));
    // SAFETY: 1. entries hold usable frames. 2. the entry had the share and has another frame now.
    unsafe { Share::from_raw(original) }
}
