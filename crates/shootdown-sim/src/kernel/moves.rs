//! Moves of pages and tables within a space, and unmapping in several regions at once.

use std::rc::Rc;

use shootdown::{Capacity, FlushRange, FlushRanges, FreedTables, PageSize};

use crate::kernel::layout::address_of;
use crate::kernel::sightings::Sight;
use crate::kernel::space::Space;
use crate::kernel::theme::Draw;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, USER_PAGES, World};
use crate::machine::context;

fn page_of(page: usize) -> FlushRange {
    FlushRange::pages(address_of(page), 1, PageSize::SIZE_4K)
}

impl<C: Capacity> World<C> {
    /// The loaded space, or any.
    fn some_space(&self, draw: &mut Draw) -> Option<Rc<Space<C>>> {
        let own = self.current[context().cpu()].borrow().clone();
        match own.filter(|_| !draw.once_in(4)) {
            Some(space) => self.revive(&space).then_some(space),
            None => self.get_space(draw.place()),
        }
    }

    /// Moves what one address maps to another, or what one table maps.
    pub(super) fn move_something(&self, draw: &mut Draw) {
        let Some(space) = self.some_space(draw) else {
            return;
        };
        let (from, to) = (draw.page(), draw.page());
        let off = draw.once_in(6);
        let (kind, unmaps) = (draw.below(4), draw.random.bool());
        self.with_interrupts(off, || match kind {
            0 => self.move_table(&space, from / PAGES_PER_TABLE, to / PAGES_PER_TABLE),
            1 => self.move_beside(&space, from, to),
            _ => self.move_page(&space, from, to, unmaps),
        });
        self.put_space(space);
    }

    /// Has `to` map what `from` maps, if nothing is there. The space's lock is held.
    fn relink_page(&self, space: &Space<C>, from: usize, to: usize) -> bool {
        let is_free = space.inner.borrow().pages[to].is_none();
        let is_there = space.inner.borrow().pages[from].is_some();
        if !is_free || !is_there || !self.need_table(space, to / PAGES_PER_TABLE) {
            return false;
        }
        let mapped = self.clear_page(space, from);
        mapped
            .into_iter()
            .for_each(|it| self.set_page(space, to, it));
        true
    }

    /// Who moves a frame waits before the lock is released: the next to unmap it frees it after a flush of where it is now, which does not wait for this one, and asks those only
    /// that have taken that region. With `unmaps` that is this task.
    fn move_page(&self, space: &Space<C>, from: usize, to: usize, unmaps: bool) {
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        if !self.relink_page(space, from, to) {
            drop(held);
            return;
        }
        let ticket = (self.engine).submit_flush(&*space.context(), page_of(from), FreedTables::No);
        self.wait(ticket);
        drop(held);
        self.strike(space.number, from, mark);
        if unmaps {
            let pages = 1 << (to % PAGES_PER_TABLE);
            self.unmap(space, to / PAGES_PER_TABLE, pages, false);
        }
        self.hardware.saw(Sight::PageMoved);
    }

    /// The same within a region, in one flush with an unmapping in the next.
    fn move_beside(&self, space: &Space<C>, from: usize, to: usize) {
        let to = from / PAGES_PER_TABLE * PAGES_PER_TABLE + to % PAGES_PER_TABLE;
        let beside = (from + PAGES_PER_TABLE) % USER_PAGES;
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        if !self.relink_page(space, from, to) {
            drop(held);
            return;
        }
        let gone = self.clear_page(space, beside);
        let mut ranges = FlushRanges::from(page_of(from));
        ranges.add(page_of(beside));
        let ticket = (self.engine).submit_flush(&*space.context(), ranges, FreedTables::No);
        self.wait(ticket);
        drop(held);
        self.strike(space.number, from, mark);
        if let Some(gone) = gone {
            self.strike(space.number, beside, mark);
            self.release_data(gone.frame);
        }
    }

    /// The table of one region becomes that of another, as [`move_page`](Self::move_page).
    fn move_table(&self, space: &Space<C>, from: usize, to: usize) {
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        let is_free = space.inner.borrow().tables[to].is_none();
        if let Some(table) = is_free.then(|| self.clear_table(space, from)).flatten() {
            let first = from * PAGES_PER_TABLE;
            for (index, page) in (first..first + PAGES_PER_TABLE).enumerate() {
                let mut inner = space.inner.borrow_mut();
                let moved = inner.pages[page].take();
                let page = to * PAGES_PER_TABLE + index;
                inner.pages[page] = moved;
                if let Some(moved) = moved {
                    let mut book = self.hardware.book.borrow_mut();
                    book.promise(space.number, page, moved.frame, moved.writable);
                }
            }
            space.inner.borrow_mut().tables[to] = Some(table);
            self.write_entry(space.root, to, Pte::to(table, true));
            space.context().top_changed();
            let range = FlushRange::pages(address_of(first), PAGES_PER_TABLE, PageSize::SIZE_4K);
            let ticket = (self.engine).submit_flush(&*space.context(), range, FreedTables::Yes);
            self.wait(ticket);
            for page in first..first + PAGES_PER_TABLE {
                self.strike(space.number, page, mark);
            }
            self.hardware.saw(Sight::TableMoved);
        }
        drop(held);
    }

    /// Unmaps pages of all regions, and their tables where that leaves them empty, with one flush.
    pub(super) fn unmap_widely(&self, draw: &mut Draw) {
        let Some(space) = self.some_space(draw) else {
            return;
        };
        let pages = draw.random.u16(..) | draw.random.u16(..);
        let prunes = draw.random.bool();
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        let gone: Vec<_> = (0..USER_PAGES)
            .filter(|page| pages & (1 << page) != 0)
            .filter_map(|page| Some((page, self.clear_page(&space, page)?.frame)))
            .collect();
        let is_empty = |region: &usize| prunes && space.inner.borrow().is_empty(*region);
        let tables: Vec<_> = (0..KERNEL_REGION)
            .filter(is_empty)
            .filter_map(|region| self.clear_table(&space, region))
            .collect();
        let freed = match tables.is_empty() {
            true => FreedTables::No,
            false => FreedTables::Yes,
        };
        let range = FlushRange::new(0, address_of(USER_PAGES), PageSize::SIZE_4K);
        let ticket = self.engine.submit_flush(&*space.context(), range, freed);
        drop(held);
        self.wait(ticket);
        for (page, frame) in gone {
            self.strike(space.number, page, mark);
            self.release_data(frame);
        }
        tables
            .into_iter()
            .for_each(|table| self.release_table(table));
        self.put_space(space);
    }
}
