//! `fork`: a second address space with the same contents.
//!
//! No page is copied: both tables lead to the same frames, read-only, and whoever writes first makes a copy (see
//! `cow`). Entries that could be written lose that right, and every CPU must forget that it had it before anybody may
//! rely on the child's contents: one batch for the whole space. The lock is held until that is done. A thread of the parent
//! that faults meanwhile waits, so that the child sees either all of what it has written up to some moment, or none of
//! what it writes after.

use super::error::MapError;
use super::frames::Share;
use super::invalidate::Gather;
use super::page_table::PageTable;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::Area;
use alloc::sync::Arc;

impl MemorySpace {
    /// A new address space with the contents that this one has now. Waits for other CPUs.
    ///
    /// # Errors
    /// [`MapError::NoMemory`]; nothing is left of the copy then.
    pub fn fork(&self) -> Result<Arc<Self>, MapError> {
        let child = Self::new()?;
        child.barriers.inherit(&self.barriers);
        let mut gather = Gather::of(self, UserRange::ALL);
        let mut inner = self.lock();
        // Nobody else knows the child: its lock is free.
        let copied = inner.copy_into(&child, &mut child.lock(), &mut gather);
        // Also when it failed: the parent's entries have changed.
        self.submit_fork(&mut inner, gather).finish();
        drop(inner);
        copied.map(|()| child)
    }
}

impl Inner {
    /// Copies everything into `child`, which is the inside of `of_child`.
    fn copy_into(
        &mut self,
        of_child: &MemorySpace,
        child: &mut Self,
        gather: &mut Gather<'_>,
    ) -> Result<(), MapError> {
        child.areas = self.areas.duplicate_for_child()?;
        child.heap = self.heap;
        for area in self.areas.iter() {
            if let Some(shown) = area.kind.shown() {
                shown.file().add_mapper(of_child)?;
            }
        }
        // Memory that stays shared is found again at the first access.
        let is_copied = |area: &&Area| !area.kind.is_shared() && !area.is_for_guests();
        for area in self.areas.iter().filter(is_copied) {
            copy_area(area, &self.table, &mut child.table, gather).ok_or(MapError::NoMemory)?;
        }
        Ok(())
    }
}

/// Maps the pages of `area` in `copy` as well, without the right to write to them in either table. `None` without memory
/// for tables.
fn copy_area(
    area: &Area,
    table: &PageTable,
    copy: &mut PageTable,
    gather: &mut Gather<'_>,
) -> Option<()> {
    let mut done = Some(());
    table.visit(area.range, |addr, cell| {
        let (Some(()), Some(frame)) = (done, cell.load().frame()) else {
            return;
        };
        let Some(target) = copy.leaf_or_create(addr) else {
            done = None;
            return;
        };
        if cell.protect(area.prot.without_write()).prot().write() {
            gather.page(addr);
        }
        let _owned_by_target = Share::another(frame).into_raw();
        target.fill(cell.load());
    });
    done
}
