//! CPUs without user code that keep their space loaded, and what that means for the end of a space.
//!
//! As in real kernels a space has two counts. When its last user is gone, everything is unmapped, tables included,
//! with a flush if CPUs are still lazy in it. Only when these have left is its root free.

use std::rc::Rc;

use shootdown::Capacity;
use shootdown::sim::Ordering;

use crate::kernel::space::Private;
use crate::kernel::{KERNEL_REGION, Space, World};
use crate::machine::{context, kernel_root_at};

/// All pages of a region.
const WHOLE_REGION: u8 = u8::MAX;

impl<C: Capacity> World<C> {
    /// This CPU goes on without user code, the loaded space stays loaded.
    pub(super) fn enter_lazy(&self) {
        let me = context().cpu();
        let Some(space) = self.current[me].borrow().clone() else {
            return;
        };
        context().tell(|| format!("is lazy in space {}", space.number));
        let was_lazy = self.is_lazy[me].replace(true);
        if !was_lazy {
            space.keepers.fetch_add(1, Ordering::Relaxed);
        }
        // Again is allowed: from one kernel thread to the next.
        let root = kernel_root_at(self.some_kernel_root().into());
        self.engine.user_memory().enter_lazy(&space.context(), root);
        if !was_lazy {
            self.put_space(space);
        }
    }

    /// This CPU wants to run user code again: that of the space that it kept, unless that is gone.
    pub(super) fn wake(&self) {
        let me = context().cpu();
        if !self.is_lazy[me].get() {
            return;
        }
        let space = self.current[me].borrow().clone();
        let windows = self.windowed[me].borrow().clone();
        let own = self.own[me].borrow().clone().map(Private::Own);
        let root = windows.map(Private::Windows).or(own);
        match space.filter(|space| self.revive(space)) {
            Some(space) => self.switch_by(Some(space), root.unwrap_or(Private::None)),
            None => self.switch(None),
        }
    }

    /// Becomes a user of a space that this CPU only keeps; tells whether it could.
    pub(super) fn revive(&self, space: &Rc<Space<C>>) -> bool {
        let held = self.directory.take(&self.engine);
        // Its place is a user; without a place it may have had its last one.
        let mut places = self.spaces.borrow().clone().into_iter().flatten();
        let is_alive = places.any(|other| Rc::ptr_eq(&other, space));
        if is_alive {
            space.users.fetch_add(1, Ordering::Relaxed);
        }
        drop(held);
        is_alive
    }

    /// The user of a space is done with it. After the last one nothing is mapped.
    pub(super) fn put_space(&self, space: Rc<Space<C>>) {
        // ORDERING: Release publishes what this user did to the space; Acquire lets the last one see all of it.
        if space.users.fetch_add(u64::MAX, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: acquires that those who were lazy here have left; pairs with `put_keeper`.
        if space.keepers.load(Ordering::Acquire) == 1 {
            self.release_listener(&space.tables(&space.context()));
            self.free_unused(&space);
        } else {
            for region in 0..KERNEL_REGION {
                self.unmap(&space, region, WHOLE_REGION, true);
            }
        }
        self.put_keeper(&space);
    }

    /// No CPU has it loaded, and none will, so no flush is due: frames and tables are free at once.
    fn free_unused(&self, space: &Space<C>) {
        let inner = space.inner.borrow().clone();
        for (page, mapped) in inner.pages.iter().enumerate() {
            if let Some(mapped) = mapped {
                self.strike(space.number, page, self.mark());
                self.release_data(mapped.frame);
            }
        }
        for table in inner.tables.into_iter().flatten() {
            self.release_table(table);
        }
    }

    /// A CPU has left a space that it kept, or its last user is gone. The last one frees the root.
    pub(super) fn put_keeper(&self, space: &Space<C>) {
        // ORDERING: Release publishes that this CPU's root is another one; Acquire lets the last one see that of all.
        if space.keepers.fetch_add(u64::MAX, Ordering::AcqRel) == 1 {
            self.release_listener(&space.tables(&space.context()));
            self.retire_all(space);
            self.retire_all_own(space);
            space.end();
            self.free_side_table(space);
            self.release_table(space.root);
        }
    }
}
