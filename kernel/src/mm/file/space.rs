//! What syncs and changes of a file's size do in an address space that maps it.

use super::counters;
use super::memory_file::MemoryFile;
use super::pages::offset_of;
use crate::mm::FileArea;
use crate::mm::invalidate::{Gather, Reclaim};
use crate::mm::layout::PhysAddr;
use crate::mm::map::share_of;
use crate::mm::range::UserRange;
use crate::mm::space::{Inner, MemorySpace};
use crate::mm::vma::Area;

impl MemorySpace {
    /// Takes the right to write to `pages` of `file`, which ascend, away. Returns when no CPU has it any more: one flush.
    pub(super) fn write_protect(&self, file: &MemoryFile, pages: &[u32]) {
        // Others that take it away wait for that under the lock (`note_writer`), or are syncs, of which the file lets the second wait.
        let mut gather = Gather::of_found(self);
        let mut inner = self.lock();
        let mut entries = 0;
        let mut is_mapped = false;
        for (area, shown) in inner.parts_of(file) {
            is_mapped = true;
            if area.kind.is_shared() {
                entries += inner.write_protect(shown, area.range, pages, &mut gather);
            }
        }
        if !is_mapped {
            file.mappers.remove(self);
        }
        let pending = self.submit_sync(&mut inner, gather);
        drop(inner);
        pending.finish();
        counters::count_flush(entries);
    }

    /// Unmaps the pages of `file` from number `first` on, and copies of them; areas stay. CPUs may translate to them until `reclaim` is finished.
    ///
    /// The size says already that they are gone: no access brings them back. A sync that finds one of them here no more may store it while a CPU writes to it,
    /// and call it clean: the stored copy is given up with the page.
    pub(super) fn unmap_file(&self, file: &MemoryFile, first: u32, reclaim: &mut Reclaim) {
        let mut gather = Gather::of(self, UserRange::ALL);
        let inner = self.lock();
        for (area, shown) in inner.parts_of(file) {
            let range = area.range;
            let kept = offset_of(first).saturating_sub(shown.offset(range.start()));
            let gone = UserRange::from_bounds(range.start().saturating_add(kept), range.end());
            gone.into_iter()
                .for_each(|range| inner.discard(range, &mut gather));
        }
        reclaim.add(self, &inner, gather);
    }
}

impl MemorySpace {
    /// Unmaps those of `pages` of `file`, which ascend, that are mapped from these frames and may not be written to; areas stay. CPUs may translate to them
    /// until `reclaim` is finished.
    pub(super) fn unmap_shown(
        &self,
        file: &MemoryFile,
        pages: &[(u32, PhysAddr)],
        reclaim: &mut Reclaim,
    ) {
        let mut gather = Gather::of(self, UserRange::ALL);
        let inner = self.lock();
        for (area, shown) in inner.parts_of(file) {
            let start = shown.offset(area.range.start());
            let before = |end: usize| pages.partition_point(|&(page, _)| offset_of(page) < end);
            for &(page, frame) in &pages[before(start)..before(start + area.range.bytes())] {
                let addr = area.range.start() + (offset_of(page) - start);
                inner.unmap_read_only(addr, frame, &mut gather);
            }
        }
        reclaim.add(self, &inner, gather);
    }
}

impl Inner {
    fn unmap_read_only(&self, addr: usize, frame: PhysAddr, gather: &mut Gather<'_>) {
        let Some(cell) = self.table.leaf(addr) else {
            return;
        };
        let entry = cell.load();
        if entry.frame() != Some(frame) || entry.prot().write() {
            return;
        }
        if let Some(share) = share_of(cell.take()) {
            gather.freed_page(addr, share);
        }
    }

    /// The areas that show parts of `file`, and which.
    fn parts_of(&self, file: &MemoryFile) -> impl Iterator<Item = (&Area, &FileArea)> {
        self.areas.iter().filter_map(move |area| {
            let shown = area.kind.shown()?;
            core::ptr::eq(&**shown.file(), file).then_some((area, shown))
        })
    }

    /// Takes the right to write away where the area `range` shows one of `pages`; from how many entries.
    fn write_protect(
        &self,
        shown: &FileArea,
        range: UserRange,
        pages: &[u32],
        gather: &mut Gather<'_>,
    ) -> usize {
        let start = shown.offset(range.start());
        let before = |end: usize| pages.partition_point(|&page| offset_of(page) < end);
        let mut entries = 0;
        for &page in &pages[before(start)..before(start + range.bytes())] {
            let addr = range.start() + (offset_of(page) - start);
            let Some(cell) = self.table.leaf(addr) else {
                continue;
            };
            let prot = cell.load().prot();
            if prot.write() {
                cell.protect(prot.without_write());
                gather.page(addr);
                entries += 1;
            }
        }
        entries
    }
}
