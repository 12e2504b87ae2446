//! How the host changes nested page tables: what narrows them is flushed, what widens them is not.

use shootdown::{Capacity, FlushBatch, FlushRange, FlushTicket, FreedTables, PageSize};

use crate::kernel::guest::layout::GUEST_PAGES;
use crate::kernel::guest::vm::{NestedPage, Vm};
use crate::kernel::layout::address_of;
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::kernel::{Held, PAGES_PER_TABLE, Pte, World};
use crate::machine::SimPlatform;

/// What an entry of a nested root covers.
const REGION_SIZE: PageSize = PageSize::SIZE_16K;
/// The frames of all pages, and a table.
const BATCH: usize = GUEST_PAGES + 1;

/// What is taken from a virtual machine.
#[derive(Clone, Copy, Debug)]
enum Removed {
    Page(usize, u16),
    Table(u16),
}

impl<C: Capacity> World<C> {
    /// Writes the entry of a page, whose table is there, and promises what it says. The lock is held.
    pub(super) fn set_nested(&self, vm: &Vm<C>, page: usize, nested: NestedPage) {
        let table = {
            let mut inner = vm.inner.borrow_mut();
            inner.pages[page] = Some(nested);
            inner.tables[page / PAGES_PER_TABLE].expect("the region has a table")
        };
        let (frame, writable) = (nested.frame, nested.writable);
        let mut book = self.hardware.book.borrow_mut();
        book.promise(vm.number, page, frame, writable);
        drop(book);
        self.write_entry(table, page % PAGES_PER_TABLE, Pte::to(frame, writable));
    }

    /// Makes sure that a region has a table; `false` when memory is full. The lock is held.
    fn need_nested_table(&self, vm: &Vm<C>, region: usize) -> bool {
        if vm.inner.borrow().tables[region].is_some() {
            return true;
        }
        let Some(table) = self.take_table() else {
            return false;
        };
        vm.inner.borrow_mut().tables[region] = Some(table);
        self.write_entry(vm.root, region, Pte::to(table, true));
        true
    }

    /// The guest has left because a page is missing, or may not be written.
    pub(super) fn serve_violation(&self, vm: &Vm<C>, page: usize, writes: bool, draw: &mut Draw) {
        let held = vm.lock.take(&self.engine);
        let nested = vm.inner.borrow().pages[page];
        match nested {
            None => self.populate(vm, page, writes),
            Some(nested) if !writes || nested.writable => self.hardware.saw(Sight::GuestSpurious),
            Some(nested) if nested.is_own => self.grant_store(vm, page, nested),
            Some(_) => return self.replace(vm, page, held, draw),
        }
        drop(held);
    }

    /// Maps a fresh frame where nothing is: an empty entry is cached nowhere. The lock is held.
    pub(super) fn populate(&self, vm: &Vm<C>, page: usize, writable: bool) {
        if vm.inner.borrow().pages[page].is_some()
            || !self.need_nested_table(vm, page / PAGES_PER_TABLE)
        {
            return;
        }
        let Some(frame) = self.take_data() else {
            return;
        };
        if writable {
            vm.log.record(page);
        }
        let nested = NestedPage {
            frame,
            writable,
            is_own: true,
        };
        self.set_nested(vm, page, nested);
    }

    /// The guest may write to a page: more rights need no flush. The lock is held.
    pub(super) fn grant_store(&self, vm: &Vm<C>, page: usize, nested: NestedPage) {
        if vm.log.record(page) {
            self.hardware.saw(Sight::DirtyRecorded);
        }
        let granted = NestedPage {
            writable: true,
            is_own: true,
            ..nested
        };
        self.hardware.saw(Sight::GuestWidened);
        self.set_nested(vm, page, granted);
    }

    /// A page gets another frame, which the guest may write to; the old one is free after the flush.
    pub(super) fn replace(&self, vm: &Vm<C>, page: usize, held: Held<'_>, draw: &mut Draw) {
        let mark = self.mark();
        let old = vm.inner.borrow().pages[page];
        let fresh = old.and_then(|old| Some((old, self.take_data()?)));
        let Some((old, frame)) = fresh else {
            drop(held);
            return;
        };
        vm.log.record(page);
        let nested = NestedPage {
            frame,
            writable: true,
            is_own: true,
        };
        self.set_nested(vm, page, nested);
        let ticket = self.flush_guest(vm, held, draw);
        self.wait(ticket);
        self.strike(vm.number, page, mark);
        self.check_listeners(vm.number);
        self.release_data(old.frame);
    }

    /// A page becomes read-only, and stays that until it gets another frame, or nobody else has this one any more.
    pub(super) fn share_nested(&self, vm: &Vm<C>, page: usize, draw: &mut Draw) {
        let held = vm.lock.take(&self.engine);
        let mark = self.mark();
        let Some(nested) = vm.inner.borrow().pages[page] else {
            drop(held);
            return;
        };
        let shared = NestedPage {
            writable: false,
            is_own: false,
            ..nested
        };
        self.set_nested(vm, page, shared);
        let ticket = self.flush_guest(vm, held, draw);
        // Dropping it must be as good.
        match draw.random.bool() {
            true => drop(ticket),
            false => self.wait(ticket),
        }
        self.strike_writable(vm.number, page, mark);
        self.check_listeners(vm.number);
    }

    /// Unmaps those pages whose bit is set, and the tables that this leaves empty if it `prunes`.
    pub(super) fn unmap_nested(&self, vm: &Vm<C>, pages: u8, prunes: bool, draw: &mut Draw) {
        let held = vm.lock.take(&self.engine);
        let mark = self.mark();
        let mut batch = FlushBatch::<Removed, BATCH>::new(&*vm.space());
        for page in (0..GUEST_PAGES).filter(|page| pages & (1 << page) != 0) {
            self.unlink_nested(vm, page, &mut batch);
        }
        let region = draw.below(GUEST_PAGES) / PAGES_PER_TABLE;
        if prunes && vm.inner.borrow().is_empty(region) {
            self.unlink_nested_table(vm, region, &mut batch);
        }
        if batch.is_empty() {
            drop(held);
            return;
        }
        let held = self.maybe_unlock(held, draw);
        let ticket = self.engine.submit_batch(&*vm.space(), batch);
        drop(held);
        self.note_flush(ticket.is_done());
        for removed in self.wait(ticket) {
            match removed {
                Removed::Page(page, frame) => {
                    self.strike(vm.number, page, mark);
                    self.check_listeners(vm.number);
                    self.release_data(frame);
                }
                Removed::Table(table) => {
                    self.hardware.saw(Sight::NestedTableFreed);
                    self.release_table(table);
                }
            }
        }
    }

    fn unlink_nested(&self, vm: &Vm<C>, page: usize, batch: &mut FlushBatch<Removed, BATCH>) {
        let mut inner = vm.inner.borrow_mut();
        let (Some(nested), Some(table)) = (
            inner.pages[page].take(),
            inner.tables[page / PAGES_PER_TABLE],
        ) else {
            return;
        };
        drop(inner);
        self.write_entry(table, page % PAGES_PER_TABLE, Pte::EMPTY);
        let removed = Removed::Page(page, nested.frame);
        let recorded = batch.page(address_of(page), PageSize::SIZE_4K, removed);
        assert!(recorded.is_ok(), "a batch holds all pages");
    }

    fn unlink_nested_table(
        &self,
        vm: &Vm<C>,
        region: usize,
        batch: &mut FlushBatch<Removed, BATCH>,
    ) {
        let Some(table) = vm.inner.borrow_mut().tables[region].take() else {
            return;
        };
        self.write_entry(vm.root, region, Pte::EMPTY);
        let address = address_of(region * PAGES_PER_TABLE);
        let recorded = batch.table(address, REGION_SIZE, Removed::Table(table));
        assert!(recorded.is_ok(), "a batch holds all pages and a table");
    }

    /// Sends the flush for what has been changed under the lock; releases that before or after.
    pub(super) fn flush_guest<'a>(
        &'a self,
        vm: &Vm<C>,
        held: Held<'_>,
        draw: &mut Draw,
    ) -> FlushTicket<'a, SimPlatform<C>> {
        let held = self.maybe_unlock(held, draw);
        let ticket = self
            .engine
            .submit_flush(&*vm.space(), FlushRange::WHOLE, FreedTables::No);
        drop(held);
        self.note_flush(ticket.is_done());
        ticket
    }

    /// Releases a lock, or keeps it for now.
    fn maybe_unlock<'a>(&self, held: Held<'a>, draw: &mut Draw) -> Option<Held<'a>> {
        (!draw.once_in(4)).then_some(held)
    }

    fn note_flush(&self, is_done: bool) {
        let sight = match is_done {
            true => Sight::GuestFlushAlone,
            false => Sight::GuestFlushKicks,
        };
        self.hardware.saw(sight);
    }
}
