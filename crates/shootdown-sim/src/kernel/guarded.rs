//! Unmapping by guards: collections that are full and panic, and guards that are forgotten, which is safe code. Nothing of what they hold is free early.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use shootdown::{Capacity, PageSize};

use crate::kernel::layout::address_of;
use crate::kernel::lock::Held;
use crate::kernel::map::{Owned, REGION_SIZE, Removed};
use crate::kernel::space::Space;
use crate::kernel::{PAGES_PER_TABLE, Sight, World};
use crate::machine::context;

/// A collection had no room. Anything else that unwinds is a mistake.
struct Full;

/// What is unlinked under a guard. It unwinds when it has no room, without a message.
struct Collection<'a, C: Capacity> {
    unlinked: Vec<ManuallyDrop<Owned<'a, C>>>,
    room: usize,
}

impl<'a, C: Capacity> Extend<ManuallyDrop<Owned<'a, C>>> for Collection<'a, C> {
    fn extend<I: IntoIterator<Item = ManuallyDrop<Owned<'a, C>>>>(&mut self, more: I) {
        for unlinked in more {
            if self.unlinked.len() == self.room {
                resume_unwind(Box::new(Full));
            }
            self.unlinked.push(unlinked);
        }
    }
}

/// Leaves the lock when it is dropped, unless somebody else has left it.
struct Unlocks<'a>(Rc<RefCell<Option<Held<'a>>>>);

impl Drop for Unlocks<'_> {
    fn drop(&mut self) {
        let held = self.0.borrow_mut().take();
        drop(held);
    }
}

impl<C: Capacity> World<C> {
    /// As [`unmap`](Self::unmap), by a guard whose collection has so much room.
    pub(super) fn unmap_guarded(
        &self,
        space: &Space<C>,
        region: usize,
        pages: u8,
        (prunes, room): (bool, usize),
    ) {
        let held = Rc::new(RefCell::new(Some(space.lock.take(&self.engine))));
        let lost = Cell::new(None);
        let view = space.context();
        let before = (self.mark(), Rc::new(Cell::new(true)));
        let waits = before.1.clone();
        let unlink = || {
            let free = |all: Collection<'_, C>| {
                waits.set(false);
                let unlinked = all.unlinked.into_iter();
                unlinked.map(ManuallyDrop::into_inner).for_each(drop);
            };
            let collection = Collection {
                unlinked: Vec::new(),
                room,
            };
            let mut guard = (self.engine).guard(&*view, Unlocks(held.clone()), collection, free);
            let mut removed = Vec::new();
            for index in (0..PAGES_PER_TABLE).filter(|index| pages & (1 << index) != 0) {
                let page = region * PAGES_PER_TABLE + index;
                let Some(mapped) = self.clear_page(space, page) else {
                    continue;
                };
                lost.set(Some(mapped.frame));
                removed.push(mapped.frame);
                let owned = self.own(space, &before, Removed::Page(page, mapped.frame));
                guard.unlinked_page(address_of(page), PageSize::SIZE_4K, owned);
            }
            // What nobody flushes may be walked for ever, so no table goes that way.
            let Some(mut guard) = self.forget(guard, &removed) else {
                return;
            };
            if prunes
                && space.inner.borrow().is_empty(region)
                && let Some(table) = self.clear_table(space, region)
            {
                lost.set(Some(table));
                let owned = self.own(space, &before, Removed::Table(table));
                guard.unlinked_table(address_of(region * PAGES_PER_TABLE), REGION_SIZE, owned);
            }
        };
        if let Err(why) = catch_unwind(AssertUnwindSafe(unlink)) {
            if !why.is::<Full>() {
                resume_unwind(why);
            }
            self.hardware.saw(Sight::CollectionFull);
            context().tell(|| "its collection is full".to_owned());
            self.lose(lost.get());
        }
        // That of a forgotten guard.
        drop(Unlocks(held));
    }
}
