//! The kernel's own mappings: global pages that every root shares.

use shootdown::{Capacity, Cpus, FLUSH_CEILING_PAGES, FlushRange, FreedTables, PageSize};

use crate::kernel::layout::{KERNEL, address_of, kernel_page};
use crate::kernel::{Leaf, Pte, World};
use crate::machine::{FailureKind, context};

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// Maps a fresh frame, if nothing is there.
    pub(super) fn map_kernel(&self, index: usize) {
        let held = self.kernel_lock.take(&self.engine);
        if self.kernel_pages.borrow()[index].is_none()
            && let Some(frame) = self.take_data()
        {
            self.kernel_pages.borrow_mut()[index] = Some(frame);
            let page = kernel_page(index);
            let mut book = self.hardware.book.borrow_mut();
            book.promise(KERNEL, page, frame, true);
            drop(book);
            self.write_entry(Self::kernel_table(), index, Pte::to(frame, true));
        }
        drop(held);
    }

    /// Unmaps a kernel page on all CPUs. When the flush returns, the translation is gone everywhere: the kernel
    /// uses its own mappings at any time, also inside the responder.
    /// With `widely`, the range has more pages than are dropped one by one.
    pub(super) fn unmap_kernel(&self, index: usize, widely: bool) {
        let held = self.kernel_lock.take(&self.engine);
        let Some(frame) = self.kernel_pages.borrow_mut()[index].take() else {
            drop(held);
            return;
        };
        let page = kernel_page(index);
        let mark = self.mark();
        self.write_entry(Self::kernel_table(), index, Pte::EMPTY);
        let pages = if widely { 2 * FLUSH_CEILING_PAGES } else { 1 };
        let range = FlushRange::pages(address_of(page), pages, PageSize::SIZE_4K);
        let ticket = self.engine.submit_flush_kernel(range, FreedTables::No);
        drop(held);
        ticket.wait();
        self.strike(KERNEL, page, mark);
        for cpu in 0..self.online.len() {
            if self.online[cpu].get() {
                self.check_gone(cpu, page, frame);
            }
        }
        self.release_data(frame);
    }

    fn check_gone(&self, cpu: usize, page: usize, frame: u16) {
        let tlbs = self.hardware.tlbs.borrow();
        let is_stale = tlbs[cpu]
            .usable()
            .any(|leaf| (leaf.page, leaf.frame) == (page, frame));
        drop(tlbs);
        if is_stale {
            context().fail(
                FailureKind::StaleAccess,
                format!(
                    "kernel page {page} is flushed, and cpu{cpu} still has it at frame {frame}"
                ),
            );
        }
    }

    /// What this CPU has of the kernel's pages is not old. After `online` it has nothing else.
    pub(super) fn check_kernel_pages(&self, cpu: usize) {
        let leaves: Vec<Leaf> = self.hardware.tlbs.borrow()[cpu].usable().collect();
        for leaf in leaves {
            let book = self.hardware.book.borrow();
            let outcome = book.check_access(KERNEL, leaf.page, leaf.frame, false);
            drop(book);
            self.insist(outcome);
        }
    }
}
