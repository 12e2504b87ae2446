//! [`Shadow`]: a table that software makes from those of a space, as shadow paging does. It is read under a lock of its own, which whoever tells of a flush
//! takes, too.

use std::cell::{Cell, RefCell};

use shootdown::sim::Ordering;
use shootdown::{Capacity, remote::FlushRequest};

use crate::kernel::device::names_page;
use crate::kernel::secondary::SHADOW;
use crate::kernel::theme::Draw;
use crate::kernel::{Leaf, Lock, PAGES_PER_TABLE, Pte, Sight, Space, World};
use crate::machine::context;

/// The shadow table, of one space at a time.
#[derive(Default, Debug)]
pub(super) struct Shadow {
    /// Taken with interrupts off.
    lock: Lock,
    /// The space's number.
    of: Cell<Option<u64>>,
    installed: RefCell<Vec<Leaf>>,
}

impl Shadow {
    pub(super) fn begin(&self, space: u64) {
        self.of.set(Some(space));
    }

    pub(super) fn end(&self) {
        self.of.set(None);
        self.installed.borrow_mut().clear();
    }

    pub(super) fn drop_named(&self, request: &FlushRequest) {
        let mut installed = self.installed.borrow_mut();
        installed.retain(|leaf| !names_page(request, leaf.page));
    }
}

impl<C: Capacity> World<C> {
    /// Does something under the shadow table's lock.
    pub(super) fn with_shadow<T>(&self, work: impl FnOnce(&Shadow) -> T) -> T {
        self.with_interrupts(true, || {
            let held = self.secondary.shadow.lock.take(&self.engine);
            let result = work(&self.secondary.shadow);
            drop(held);
            result
        })
    }

    /// Fills the shadow table of a space, and uses it.
    pub(super) fn use_shadow(&self, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        if space.listener.get().is_none() {
            self.listen_by_shadow(&space);
        }
        // A section is its CPU's.
        context().preempt_disable();
        for _ in 0..2 + draw.below(8) {
            if space.listener.get() != Some(SHADOW) {
                break;
            }
            match draw.below(3) {
                0..2 => self.install(&space, draw),
                _ => self.with_shadow(|shadow| self.use_installed(&space, shadow, draw)),
            }
        }
        context().preempt_enable();
        self.put_space(space);
    }

    /// Without the space's lock: what is installed was there when no change was counted that this CPU does not know of.
    fn install(&self, space: &Space<C>, draw: &mut Draw) {
        let page = draw.page();
        let view = space.context();
        let generation = view.generation();
        let section = self.engine.user_memory().walk(&view);
        let found = self.look_up(space, page);
        drop(section);
        self.rest_awhile_at_most(draw, 12);
        let Some(leaf) = found else {
            return;
        };
        self.with_shadow(|shadow| {
            if shadow.of.get() != Some(space.number) {
                return;
            }
            if view.generation() != generation {
                return self.hardware.saw(Sight::ShadowRefused);
            }
            let mut installed = shadow.installed.borrow_mut();
            installed.retain(|known| known.page != page);
            installed.push(leaf);
        });
    }

    /// Where the tables lead that a walk protects.
    fn look_up(&self, space: &Space<C>, page: usize) -> Option<Leaf> {
        let physical = &self.hardware.physical;
        let (region, index) = (page / PAGES_PER_TABLE, page % PAGES_PER_TABLE);
        // ORDERING: acquires the contents of the table; pairs with `write_entry`.
        let entry = Pte(physical.entry(space.root, region).load(Ordering::Acquire));
        let table = entry.frame().filter(|_| !entry.is_block())?;
        let life = self.insist(self.hardware.book.borrow().life_of_table(table));
        let leaf = Pte(physical.entry(table, index).load(Ordering::Relaxed));
        self.insist(self.hardware.book.borrow().check_table(table, life));
        leaf.frame().map(|frame| Leaf {
            page,
            frame,
            writable: leaf.is_writable(),
            is_block: false,
        })
    }

    /// The lock is held.
    fn use_installed(&self, space: &Space<C>, shadow: &Shadow, draw: &mut Draw) {
        let installed = shadow.installed.borrow().clone();
        if shadow.of.get() != Some(space.number) || installed.is_empty() {
            return;
        }
        self.check_shadow();
        self.use_frame(draw.one_of(&installed).frame);
        self.hardware.saw(Sight::ShadowUsed);
    }

    /// All that it has may be used.
    pub(super) fn check_shadow(&self) {
        let Shadow { of, installed, .. } = &self.secondary.shadow;
        let Some(space) = of.get() else {
            return;
        };
        let book = self.hardware.book.borrow();
        for leaf in installed.borrow().iter() {
            let outcome = book.check_access(space, leaf.page, leaf.frame, leaf.writable);
            let of_shadow = |(kind, story)| (kind, format!("the shadow table: {story}"));
            self.insist(outcome.map_err(of_shadow));
        }
    }
}
