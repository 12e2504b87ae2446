//! The published flag (VM_LOCAL_CPU): a mapping that is said to be one CPU's, in page tables that others have loaded too.
//!
//! Whoever unmaps it flushes its own CPU and nobody else. That is unsound, because no processor asks who uses a mapping before it
//! caches the translation. It is here to be caught ([`Scenario::PublishedFlag`](crate::kernel::Scenario)); the engine does not offer it.

use shootdown::{Capacity, FlushRange, FreedTables, LocalFlush, PageSize, Platform};

use crate::kernel::layout::{address_of, window_page};
use crate::kernel::window::Window;
use crate::kernel::{PAGES_PER_TABLE, Pte, Space, WINDOW_REGION, World};
use crate::machine::PLATFORM;

impl<C: Capacity> World<C> {
    /// Maps a frame at the first window's address, in the shared root. Returns the table, which is new.
    pub(super) fn map_flagged(&self, space: &Space<C>, window: Window) -> u16 {
        let held = space.lock.take(&self.engine);
        let table = self.take_table().expect("memory for a table");
        self.write_entry(space.root, WINDOW_REGION, Pte::to(table, true));
        let Window { frame, writable } = window;
        let mut book = self.hardware.book.borrow_mut();
        book.promise(space.number, window_page(0), frame, writable);
        drop(book);
        self.write_entry(table, 0, Pte::to(frame, writable));
        drop(held);
        table
    }

    /// Unmaps it, as published: this CPU forgets it, and the frame is free.
    pub(super) fn unmap_flagged(&self, space: &Space<C>, table: u16, frame: u16) {
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        self.write_entry(table, 0, Pte::EMPTY);
        let range = FlushRange::pages(address_of(window_page(0)), 1, PageSize::SIZE_4K);
        self.with_interrupts(true, || {
            PLATFORM.local_flush(LocalFlush::Pages(range, FreedTables::No))
        });
        drop(held);
        self.strike(space.number, window_page(0), mark);
        self.release_data(frame);
    }

    /// Unlinks the table, on all CPUs.
    pub(super) fn unlink_flagged(&self, space: &Space<C>, table: u16) {
        let held = space.lock.take(&self.engine);
        self.write_entry(space.root, WINDOW_REGION, Pte::EMPTY);
        let address = address_of(window_page(0));
        let range = FlushRange::pages(address, PAGES_PER_TABLE, PageSize::SIZE_4K);
        let ticket = self
            .engine
            .submit_flush(&*space.context(), range, FreedTables::Yes);
        drop(held);
        ticket.wait();
        self.release_table(table);
    }
}
