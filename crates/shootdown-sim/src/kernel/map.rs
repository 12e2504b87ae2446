//! Mapping, unmapping and protecting pages of a space.

use std::cell::Cell;
use std::rc::Rc;

use shootdown::{Capacity, FlushBatch, FlushRange, FreedTables, PageSize};

use crate::kernel::layout::address_of;
use crate::kernel::space::{Mapped, Space};
use crate::kernel::{PAGES_PER_TABLE, Pte, World};
use crate::machine::{FailureKind, context};
use crate::oracle::Mark;

/// What an entry of a region covers, as the engine counts: four pages.
pub(super) const REGION_SIZE: PageSize = PageSize::SIZE_16K;
/// The frames of a region and its table.
pub(super) const BATCH: usize = PAGES_PER_TABLE + 1;

/// What is taken from a space.
#[derive(Clone, Copy, Debug)]
pub(super) enum Removed {
    Page(usize, u16),
    Table(u16),
}

/// The same, until it is dropped: then nobody uses it any more.
#[derive(Debug)]
pub(super) struct Owned<'a, C: Capacity> {
    world: &'a World<C>,
    space: u64,
    mark: Mark,
    removed: Removed,
    /// The wait for its flush has begun and not returned.
    waits: Rc<Cell<bool>>,
}

impl<C: Capacity> Drop for Owned<'_, C> {
    fn drop(&mut self) {
        if self.waits.get() {
            let story = format!("{:?} comes back before its flush is over", self.removed);
            context().fail(FailureKind::EarlyReturn, story);
        }
        match self.removed {
            Removed::Page(page, frame) => {
                self.world.strike(self.space, page, self.mark);
                self.world.release_data(frame);
            }
            Removed::Table(table) => self.world.release_table(table),
        }
    }
}

impl<C: Capacity> World<C> {
    /// Here, before entries are changed under their lock.
    pub(super) fn mark(&self) -> Mark {
        self.hardware.book.borrow().mark()
    }

    /// The flush that takes a page from a space is over.
    pub(super) fn strike(&self, space: u64, page: usize, mark: Mark) {
        context().tell(|| format!("page {page} of space {space} must be forgotten by now"));
        let mut book = self.hardware.book.borrow_mut();
        book.withdraw(space, page, mark, context().events());
        drop(book);
        self.check_listeners(space);
    }

    /// The flush that makes a page read-only is over.
    pub(super) fn strike_writable(&self, space: u64, page: usize, mark: Mark) {
        context().tell(|| format!("page {page} of space {space} must be read-only by now"));
        let mut book = self.hardware.book.borrow_mut();
        book.withdraw_writable(space, page, mark, context().events());
        drop(book);
        self.check_listeners(space);
    }

    /// Writes the entry of a page, whose table is there, and promises what it says. The space's lock is held.
    pub(super) fn set_page(&self, space: &Space<C>, page: usize, mapped: Mapped) {
        let table = {
            let mut inner = space.inner.borrow_mut();
            inner.pages[page] = Some(mapped);
            inner.tables[page / PAGES_PER_TABLE].expect("the region has a table")
        };
        let (frame, writable) = (mapped.frame, mapped.writable);
        let mut book = self.hardware.book.borrow_mut();
        book.promise(space.number, page, frame, writable);
        drop(book);
        self.write_entry(table, page % PAGES_PER_TABLE, Pte::to(frame, writable));
    }

    /// Makes sure that a region has a table; `false` when memory is full. The space's lock is held.
    pub(super) fn need_table(&self, space: &Space<C>, region: usize) -> bool {
        if space.inner.borrow().tables[region].is_some() {
            return true;
        }
        let Some(table) = self.take_table() else {
            return false;
        };
        space.inner.borrow_mut().tables[region] = Some(table);
        self.write_entry(space.root, region, Pte::to(table, true));
        space.context().top_changed();
        true
    }

    /// Maps a fresh frame, if nothing is there. An empty entry is cached nowhere: no flush is due.
    pub(super) fn map(&self, space: &Space<C>, page: usize, writable: bool) {
        let held = space.lock.take(&self.engine);
        if space.inner.borrow().pages[page].is_none()
            && self.need_table(space, page / PAGES_PER_TABLE)
            && let Some(frame) = self.take_data()
        {
            let mapped = Mapped {
                frame,
                writable,
                copy_on_write: false,
            };
            self.set_page(space, page, mapped);
        }
        drop(held);
    }

    /// Unmaps those pages of a region whose bit is set, and its table if that leaves it empty and `prunes`.
    /// Interrupts may be off from before the lock to after the wait.
    pub(super) fn unmap(&self, space: &Space<C>, region: usize, pages: u8, prunes: bool) {
        let held = space.lock.take(&self.engine);
        let before = (self.mark(), Rc::new(Cell::new(false)));
        let mut batch = FlushBatch::<Owned<'_, C>, BATCH>::new(&*space.context());
        let mut removed = Vec::new();
        for index in (0..PAGES_PER_TABLE).filter(|index| pages & (1 << index) != 0) {
            let page = region * PAGES_PER_TABLE + index;
            removed.extend(self.unlink_page(space, page, &before, &mut batch));
        }
        if prunes && space.inner.borrow().is_empty(region) {
            removed.extend(self.unlink_table(space, region, &before, &mut batch));
        }
        if batch.is_empty() {
            drop(held);
            return;
        }
        let waits = before.1;
        let ticket = self.engine.submit_batch(&*space.context(), batch);
        drop(held);
        let Some(ticket) = self.forget(ticket, &removed) else {
            return;
        };
        // A wait that unwinds leaves this as it is.
        waits.set(true);
        let freed: Vec<_> = self.wait(ticket).collect();
        waits.set(false);
        drop(freed);
    }

    fn unlink_page<'a>(
        &'a self,
        space: &Space<C>,
        page: usize,
        before: &(Mark, Rc<Cell<bool>>),
        batch: &mut FlushBatch<Owned<'a, C>, BATCH>,
    ) -> Option<u16> {
        let frame = self.clear_page(space, page)?.frame;
        let removed = self.own(space, before, Removed::Page(page, frame));
        let recorded = batch.page(address_of(page), PageSize::SIZE_4K, removed);
        assert!(recorded.is_ok(), "a batch holds a whole region");
        Some(frame)
    }

    /// Clears the entry of a page, if it maps something. The space's lock is held.
    pub(super) fn clear_page(&self, space: &Space<C>, page: usize) -> Option<Mapped> {
        let mut inner = space.inner.borrow_mut();
        let mapped = inner.pages[page].take()?;
        let table = inner.tables[page / PAGES_PER_TABLE]?;
        drop(inner);
        self.write_entry(table, page % PAGES_PER_TABLE, Pte::EMPTY);
        Some(mapped)
    }

    pub(super) fn own(
        &self,
        space: &Space<C>,
        before: &(Mark, Rc<Cell<bool>>),
        removed: Removed,
    ) -> Owned<'_, C> {
        let (mark, waits) = before;
        Owned {
            world: self,
            space: space.number,
            mark: *mark,
            removed,
            waits: waits.clone(),
        }
    }

    fn unlink_table<'a>(
        &'a self,
        space: &Space<C>,
        region: usize,
        before: &(Mark, Rc<Cell<bool>>),
        batch: &mut FlushBatch<Owned<'a, C>, BATCH>,
    ) -> Option<u16> {
        let table = self.clear_table(space, region)?;
        let removed = self.own(space, before, Removed::Table(table));
        let address = address_of(region * PAGES_PER_TABLE);
        let recorded = batch.table(address, REGION_SIZE, removed);
        assert!(recorded.is_ok(), "a batch holds a whole region");
        Some(table)
    }

    /// Clears the entry of a region's table, if there is one. The space's lock is held.
    pub(super) fn clear_table(&self, space: &Space<C>, region: usize) -> Option<u16> {
        let table = space.inner.borrow_mut().tables[region].take()?;
        self.write_entry(space.root, region, Pte::EMPTY);
        space.context().top_changed();
        Some(table)
    }

    /// Makes a page read-only. With `drops`, the ticket is dropped, which must be as good as waiting.
    pub(super) fn protect(&self, space: &Space<C>, page: usize, drops: bool) {
        let held = space.lock.take(&self.engine);
        let mapped = space.inner.borrow().pages[page].filter(|mapped| mapped.writable);
        let Some(mapped) = mapped else {
            drop(held);
            return;
        };
        let mark = self.mark();
        let read_only = Mapped {
            writable: false,
            ..mapped
        };
        self.set_page(space, page, read_only);
        let range = FlushRange::pages(address_of(page), 1, PageSize::SIZE_4K);
        let ticket = self
            .engine
            .submit_flush(&*space.context(), range, FreedTables::No);
        drop(held);
        if drops {
            drop(ticket);
        } else {
            self.wait(ticket);
        }
        self.strike_writable(space.number, page, mark);
    }
}
