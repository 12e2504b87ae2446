//! Tracked spaces: roots of one CPU's own, which have the regions that their CPU has taken.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use shootdown::Capacity;
use shootdown::reach::ReachRoot;

use crate::kernel::layout::address_of;
use crate::kernel::sightings::Sight;
use crate::kernel::space::Private;
use crate::kernel::theme::Draw;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, Space, World};
use crate::machine::{FailureKind, context, root_at};

/// A CPU's own root of a tracked space.
#[derive(Debug)]
pub(super) struct OwnRoot<C: Capacity> {
    cpu: usize,
    pub(super) root: u16,
    /// Which life of the root's frame it is.
    pub(super) life: u32,
    /// The engine's view of it. It stays where it is: memory knows its words by their addresses.
    pub(super) engine: RefCell<Pin<Box<ReachRoot<C>>>>,
    is_retired: Cell<bool>,
}

impl<C: Capacity> World<C> {
    /// Something about tracked spaces, in the CPU's own program.
    pub(super) fn use_reach(&self, draw: &mut Draw) {
        match draw.below(16) {
            0..4 => self.change_own_root(draw),
            4..6 => self.take_a_region(draw),
            6..11 => self.move_something(draw),
            11..13 => self.unmap_widely(draw),
            13..15 => self.walk_tables(draw),
            _ => self.give_up_own_root(draw),
        }
        // So that there is something to go stale.
        for _ in 0..draw.below(3) {
            let (page, writes) = (draw.page(), draw.random.bool());
            let space = self.current[context().cpu()].borrow().clone();
            match space.filter(|space| draw.random.bool() && self.revive(space)) {
                Some(space) => {
                    self.map(&space, page, true);
                    self.put_space(space);
                }
                None => self.wake(),
            }
            self.wake();
            self.touch(page, writes);
        }
    }

    /// The loaded space goes on by this CPU's own root, or by the shared one; or a space is loaded.
    fn change_own_root(&self, draw: &mut Draw) {
        self.wake();
        let me = context().cpu();
        let space = self.current[me].borrow().clone();
        let Some(space) = space.filter(|space| self.revive(space)) else {
            return self.switch_somewhere(draw);
        };
        let has_own = self.own[me].borrow().is_some();
        match has_own {
            true => self.switch(Some(space)),
            false => self.switch_to_own(space, draw),
        }
    }

    /// Loads a space by this CPU's own root, or by the shared one where it is not tracked or when memory is full.
    pub(super) fn switch_to_own(&self, next: Rc<Space<C>>, draw: &mut Draw) {
        if draw.once_in(2) {
            self.track(&next);
        }
        context().preempt_disable();
        let own = self.own_root_here(&next);
        context().preempt_enable();
        self.switch_by(Some(next), own.map_or(Private::None, Private::Own));
    }

    fn track(&self, space: &Space<C>) {
        let held = space.lock.take(&self.engine);
        if !space.is_tracked.replace(true) {
            let view = space.context();
            self.hardware.saw(match view.cpus().is_empty() {
                true => Sight::Tracked,
                false => Sight::TrackedLoaded,
            });
            // SAFETY: 1. they are where the space is, which stays as long as the world does.
            unsafe {
                (self.engine.user_memory().reach()).track(&view, &space.regions);
            }
        }
        drop(held);
    }

    /// This CPU's own root of a space, a new one if there is none; `None` when memory is full, and where there can be none. The caller stays on this CPU.
    fn own_root_here(&self, space: &Space<C>) -> Option<Rc<OwnRoot<C>>> {
        if let Some(known) = self.known_own_root(space) {
            return Some(known);
        }
        let held = space.lock.take(&self.engine);
        let is_tracked = space.is_tracked.get() && !self.host_loads;
        drop(held);
        let root = is_tracked.then(|| self.take_table()).flatten()?;
        self.write_entry(root, KERNEL_REGION, Pte::to(Self::kernel_table(), true));
        let life = self.hardware.book.borrow().life_of_table(root);
        let cpu = context().cpu();
        let table = root_at(u64::from(root));
        let view = ReachRoot::new(&self.engine, &space.context(), self.numbers[cpu], table);
        let own = Rc::new(OwnRoot {
            cpu,
            root,
            life: self.insist(life),
            engine: RefCell::new(Box::pin(view)),
            is_retired: Cell::new(false),
        });
        space.own_roots.borrow_mut().push(own.clone());
        Some(own)
    }

    pub(super) fn known_own_root(&self, space: &Space<C>) -> Option<Rc<OwnRoot<C>>> {
        let cpu = context().cpu();
        let own = space.own_roots.borrow();
        let mut here = own.iter().filter(|own| own.cpu == cpu);
        here.find(|own| !own.is_retired.get()).cloned()
    }

    /// Before it is used.
    fn take_a_region(&self, draw: &mut Draw) {
        self.wake();
        let me = context().cpu();
        let (space, own) = (
            self.current[me].borrow().clone(),
            self.own[me].borrow().clone(),
        );
        if let (Some(space), Some(own)) = (space, own) {
            self.take_region(&space, &own, draw.page());
        }
    }

    /// A page fault by a CPU's own root: perhaps it lacks the region. Tells whether it has another entry now.
    pub(super) fn take_region(&self, space: &Space<C>, own: &OwnRoot<C>, page: usize) -> bool {
        let region = page / PAGES_PER_TABLE;
        let newest = |root| self.hardware.physical.newest(root, region);
        let before = newest(own.root);
        let take = || {
            let root = own.engine.borrow();
            let reach = self.engine.user_memory().reach();
            reach.take(&space.context(), root.as_ref(), address_of(page))
        };
        take();
        if newest(own.root) == before {
            // Nobody changes the shared root now, and no interrupt gives the region up: nothing can be missing.
            let held = space.lock.take(&self.engine);
            let (wanted, found) = self.with_interrupts(true, || {
                take();
                (newest(space.root), newest(own.root))
            });
            if found != wanted {
                let story = format!(
                    "entry {region} of table {} is {found} when it is taken, not {wanted} as in table {}",
                    own.root, space.root
                );
                context().fail(FailureKind::Other, story);
            }
            drop(held);
        }
        newest(own.root) != before
    }

    /// Leaves this CPU's own root of a space, if it has one, and ends it.
    fn give_up_own_root(&self, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        let is_private = self.own[context().cpu()].borrow().is_some();
        self.leave_private_root(&space, is_private, draw);
        if let Some(own) = self.known_own_root(&space) {
            self.retire_own(&space, &own);
        }
        self.put_space(space);
    }

    /// Ends all own roots of a space that nobody has loaded any more.
    pub(super) fn retire_all_own(&self, space: &Space<C>) {
        let all = space.own_roots.borrow().clone();
        all.iter().for_each(|own| self.retire_own(space, own));
    }

    /// Its CPU has left it and does not load it again.
    fn retire_own(&self, space: &Space<C>, own: &OwnRoot<C>) {
        if own.is_retired.replace(true) {
            return;
        }
        let mut view = own.engine.borrow_mut();
        let reach = self.engine.user_memory().reach();
        // SAFETY: 1. as here: its CPU ends it, or nobody finds the space any more.
        let root = unsafe { reach.retire(&space.context(), view.as_mut()) };
        drop(view);
        assert_eq!(root, root_at(u64::from(own.root)), "a root comes back");
        self.hardware.saw(Sight::OwnRootRetired);
        self.release_table(own.root);
    }
}
