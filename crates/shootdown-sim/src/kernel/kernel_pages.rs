//! The kernel's own mappings: global pages that every root shares. Their addresses are given out again, as those of stacks and buffers are.

use std::mem;

use shootdown::flushes::FLUSH_CEILING_PAGES;
use shootdown::{Capacity, FlushBatch, FlushRange, FlushScope, FreedTables, PageSize};

use crate::kernel::layout::{KERNEL, address_of, kernel_page};
use crate::kernel::lock::Held;
use crate::kernel::{KERNEL_REGION, Leaf, PAGES_PER_TABLE, Pte, Sight, World};
use crate::machine::{FailureKind, context};
use crate::oracle::Mark;

/// A page that is unmapped and not flushed yet: nobody gets its address or its frame.
#[derive(Debug)]
pub(super) struct Parked {
    index: usize,
    frame: u16,
    mark: Mark,
}

/// As many as wait for one flush at most.
pub(super) type ParkedPages = FlushBatch<Parked, 2>;

/// One page of the kernel, as the engine counts.
pub(super) fn kernel_range(index: usize) -> FlushRange {
    FlushRange::pages(address_of(kernel_page(index)), 1, PageSize::SIZE_4K)
}

impl<C: Capacity> World<C> {
    /// Maps a fresh frame, if nothing is there and the address is free, and uses it at once: no CPU has anything else at the address, so no flush
    /// is due.
    pub(super) fn map_kernel(&self, index: usize) {
        let index = index % self.kernel_addresses;
        if self.withheld[index].get() {
            self.flush_parked(self.kernel_lock.take(&self.engine));
        }
        let held = self.kernel_lock.take(&self.engine);
        if self.kernel_pages.borrow()[index].is_none()
            && !self.withheld[index].get()
            && let Some(frame) = self.take_data()
        {
            let unmapped_by = self.unmapped_by[index].take();
            if unmapped_by.is_some_and(|cpu| cpu != context().cpu()) {
                self.hardware.saw(Sight::KernelAddressReused);
            }
            self.kernel_pages.borrow_mut()[index] = Some(frame);
            let page = kernel_page(index);
            let mut book = self.hardware.book.borrow_mut();
            book.promise(KERNEL, page, frame, true);
            drop(book);
            self.write_entry(Self::kernel_table(), index, Pte::to(frame, true));
            if self.online[context().cpu()].get() {
                self.use_kernel_page(index);
            }
        }
        drop(held);
    }

    /// Kernel code on this CPU uses a page that is mapped, if it believes so. The lock is held.
    pub(super) fn use_kernel_page(&self, index: usize) {
        let page = kernel_page(index);
        let (Some(mapped), Some(leaf)) = (self.kernel_pages.borrow()[index], self.translate(page))
        else {
            return;
        };
        let book = self.hardware.book.borrow();
        let outcome = book.check_access(KERNEL, page, leaf.frame, true);
        drop(book);
        self.insist(outcome);
        if leaf.frame != mapped {
            let story = format!(
                "kernel page {page} is at frame {mapped}, and is used at frame {}, where it was before",
                leaf.frame
            );
            context().fail(FailureKind::StaleAccess, story);
        }
        self.use_frame(leaf.frame);
    }

    /// Unmaps a kernel page on all CPUs. When the flush returns, the translation is gone everywhere: the kernel
    /// uses its own mappings at any time, also inside the responder.
    /// With `widely`, the range has more pages than are dropped one by one.
    pub(super) fn unmap_kernel(&self, index: usize, widely: bool) {
        let index = index % self.kernel_addresses;
        let held = self.kernel_lock.take(&self.engine);
        let Some(frame) = self.kernel_pages.borrow_mut()[index].take() else {
            drop(held);
            return;
        };
        // The address is withheld as the frame is: whoever mapped something there now could find the old frame on this CPU or another.
        self.withheld[index].set(true);
        let page = kernel_page(index);
        let mark = self.mark();
        self.write_entry(Self::kernel_table(), index, Pte::EMPTY);
        if index % 2 == 1 && !widely {
            let mut parked = self.parked.borrow_mut();
            let page = parked.page(
                address_of(page),
                PageSize::SIZE_4K,
                Parked { index, frame, mark },
            );
            page.expect("it is flushed when it is full");
            let is_full = parked.is_full();
            drop(parked);
            if is_full {
                self.hardware.saw(Sight::KernelPagesParked);
                self.flush_parked(held);
            }
            return;
        }
        let pages = if widely { 2 * FLUSH_CEILING_PAGES } else { 1 };
        let range = FlushRange::pages(address_of(page), pages, PageSize::SIZE_4K);
        let ticket = self
            .engine
            .submit_flush(FlushScope::Kernel, range, FreedTables::No);
        drop(held);
        match widely {
            // As good as waiting.
            true => drop(ticket),
            false => self.wait(ticket),
        }
        self.free_kernel(Parked { index, frame, mark });
    }

    /// Flushes what waits for that, together, because an address or a frame is asked for.
    pub(super) fn flush_parked(&self, kernel: Held<'_>) {
        let parked = mem::replace(&mut *self.parked.borrow_mut(), ParkedPages::kernel());
        let ticket = self.engine.submit_batch(FlushScope::Kernel, parked);
        drop(kernel);
        for parked in self.wait(ticket) {
            self.free_kernel(parked);
        }
    }

    /// No CPU has it any more.
    fn free_kernel(&self, parked: Parked) {
        let Parked { index, frame, mark } = parked;
        let page = kernel_page(index);
        self.strike(KERNEL, page, mark);
        self.check_listeners(KERNEL);
        for cpu in 0..self.online.len() {
            if self.online[cpu].get() && !self.quiet.is_quiet(cpu) {
                self.check_gone(cpu, page, frame);
            }
        }
        self.release_data(frame);
        let held = self.kernel_lock.take(&self.engine);
        self.withheld[index].set(false);
        self.unmapped_by[index].set(Some(context().cpu()));
        drop(held);
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

    /// What this CPU has of the kernel's pages is not old. After `online` it has nothing else but what its root maps.
    pub(super) fn check_kernel_pages(&self, cpu: usize) {
        self.check_under_host_root();
        self.check_kernel_leaves(cpu);
    }

    /// The same wherever its root leads to, perhaps in the middle of a load.
    pub(super) fn check_kernel_leaves(&self, cpu: usize) {
        let leaves: Vec<Leaf> = self.hardware.tlbs.borrow()[cpu].usable().collect();
        let of_kernel = |leaf: &Leaf| leaf.page / PAGES_PER_TABLE == KERNEL_REGION;
        for leaf in leaves.into_iter().filter(of_kernel) {
            let book = self.hardware.book.borrow();
            let outcome = book.check_access(KERNEL, leaf.page, leaf.frame, false);
            drop(book);
            self.insist(outcome);
        }
    }
}
