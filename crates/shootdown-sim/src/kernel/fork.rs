//! Forking a space, and copying a page when somebody writes to it.

use std::rc::Rc;

use shootdown::{Capacity, FlushRange, FreedTables, PageSize};

use crate::kernel::layout::address_of;
use crate::kernel::space::{Mapped, Space};
use crate::kernel::{PAGES_PER_TABLE, USER_PAGES, World};

impl<C: Capacity> World<C> {
    /// A copy of a space, which shares its frames read-only; it is published if there is a place for it.
    pub(super) fn fork(&self, parent: &Space<C>) {
        let Some(child) = self.new_space() else {
            return;
        };
        let held = parent.lock.take(&self.engine);
        let mark = self.mark();
        let mut weakened = Vec::new();
        for page in 0..USER_PAGES {
            let mapped = parent.inner.borrow().pages[page];
            let Some(mapped) = mapped else {
                continue;
            };
            if !self.need_table(&child, page / PAGES_PER_TABLE) {
                break;
            }
            let shared = Mapped {
                writable: false,
                copy_on_write: mapped.writable || mapped.copy_on_write,
                ..mapped
            };
            self.share(mapped.frame);
            self.set_page(&child, page, shared);
            if shared != mapped {
                self.set_page(parent, page, shared);
                weakened.push(page);
            }
        }
        let range = FlushRange::new(0, address_of(USER_PAGES), PageSize::SIZE_4K);
        let range = if weakened.is_empty() {
            FlushRange::pages(0, 0, PageSize::SIZE_4K)
        } else {
            range
        };
        let ticket = self
            .engine
            .submit_flush(&*parent.context(), range, FreedTables::No);
        drop(held);
        self.wait(ticket);
        for page in weakened {
            self.strike_writable(parent.number, page, mark);
        }
        if let Err(child) = self.publish_space(child) {
            self.put_space(child);
        }
    }

    /// Grants a store to a page that waits to be copied; tells whether it did.
    pub(super) fn copy_on_write(&self, space: &Rc<Space<C>>, page: usize) -> bool {
        let held = space.lock.take(&self.engine);
        let mark = self.mark();
        let mapped = space.inner.borrow().pages[page].filter(|mapped| mapped.copy_on_write);
        let Some(shared) = mapped else {
            drop(held);
            return false;
        };
        let own = |frame| Mapped {
            frame,
            writable: true,
            copy_on_write: false,
        };
        if self.is_sole(shared.frame) {
            // More rights need no flush: a processor that faults on the old entry looks again.
            self.set_page(space, page, own(shared.frame));
            drop(held);
            return true;
        }
        let Some(copy) = self.take_data() else {
            drop(held);
            return false;
        };
        self.set_page(space, page, own(copy));
        let range = FlushRange::pages(address_of(page), 1, PageSize::SIZE_4K);
        let ticket = self
            .engine
            .submit_flush(&*space.context(), range, FreedTables::No);
        drop(held);
        self.wait(ticket);
        self.strike(space.number, page, mark);
        self.release_data(shared.frame);
        true
    }
}
