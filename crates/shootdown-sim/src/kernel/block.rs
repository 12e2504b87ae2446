//! Blocks: four small pages become a large one in place (promotion, collapse), and that is unmapped as one page.

use shootdown::{Capacity, FlushBatch, FlushRange, FreedTables};

use crate::kernel::layout::address_of;
use crate::kernel::map::REGION_SIZE;
use crate::kernel::{PAGES_PER_TABLE, Pte, Space, World};

impl<C: Capacity> World<C> {
    /// The first region, whose pages are mapped to frames in a row, becomes a block of these frames. What CPUs have cached of the small pages stays right,
    /// and must be dropped all the same: whoever unmaps the block drops what its one address names. With `by_table` the flush names every page that the
    /// table could have mapped; without, the block as one page.
    pub(super) fn promote(&self, space: &Space<C>, by_table: bool) {
        let held = space.lock.take(&self.engine);
        let (frames, table) = {
            let mut inner = space.inner.borrow_mut();
            let frames: Vec<u16> = (inner.pages[..PAGES_PER_TABLE].iter())
                .map(|page| page.expect("all pages are mapped").frame)
                .collect();
            (frames, inner.tables[0].take().expect("they have a table"))
        };
        let in_a_row = frames.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(in_a_row, "a block is of frames in a row, not {frames:?}");
        self.write_entry(space.root, 0, Pte::block(frames[0]));
        space.context().top_changed();
        let view = space.context();
        let mut batch = FlushBatch::<u16, 1>::new(&*view);
        let recorded = match by_table {
            true => batch.table(address_of(0), REGION_SIZE, table),
            false => batch.page(address_of(0), REGION_SIZE, table),
        };
        assert!(recorded.is_ok(), "it is the only one");
        let ticket = self.engine.submit_batch(&*view, batch);
        drop(held);
        ticket.wait().for_each(|table| self.release_table(table));
    }

    /// Unmaps the block as the one page that it is.
    pub(super) fn unmap_block(&self, space: &Space<C>) {
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        let gone: Vec<_> = (space.inner.borrow_mut().pages[..PAGES_PER_TABLE].iter_mut())
            .filter_map(Option::take)
            .collect();
        self.write_entry(space.root, 0, Pte::EMPTY);
        space.context().top_changed();
        let range = FlushRange::pages(address_of(0), 1, REGION_SIZE);
        let ticket = self
            .engine
            .submit_flush(&*space.context(), range, FreedTables::No);
        drop(held);
        ticket.wait();
        for (page, mapped) in gone.into_iter().enumerate() {
            self.strike(space.number, page, mark);
            self.release_data(mapped.frame);
        }
    }
}
