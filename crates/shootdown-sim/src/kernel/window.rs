//! [`Windows`]: what one CPU alone can reach of a space, by a root of its own.
//!
//! Region [`WINDOW_REGION`] is empty in every root but these. A window leads to a frame of its own, or to one that a space maps too, as
//! zero-copy does it. Whoever changes it runs on its CPU, whatever that has loaded.

use std::cell::RefCell;
use std::mem;
use std::rc::Rc;

use shootdown::{Capacity, FlushRange, PageSize, flushes::FLUSH_CEILING_PAGES};
use shootdown::{
    Platform,
    windows::{PinnedWindows, WindowRoot},
};

use crate::kernel::layout::{address_of, window_page};
use crate::kernel::sightings::Sight;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, Space, WINDOW_REGION, World};
use crate::machine::{FailureKind, PLATFORM, SimPlatform, context, root_at};

/// What a window shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) frame: u16,
    pub(super) writable: bool,
}

/// What a window shall show; nothing if it shall be empty.
pub(super) type Change = (usize, Option<Window>);

/// A private root, and what hangs on it alone. Its CPU's own.
#[derive(Debug)]
pub(super) struct Windows {
    /// Its name in the oracle's book.
    pub(super) number: u64,
    pub(super) cpu: usize,
    pub(super) root: u16,
    /// Which life of the root's frame it is.
    pub(super) life: u32,
    /// The engine's view of it; none once it is retired.
    pub(super) engine: RefCell<Option<WindowRoot>>,
    table: RefCell<Option<u16>>,
    shown: RefCell<[Option<Window>; PAGES_PER_TABLE]>,
}

impl Windows {
    /// What a window shows now.
    pub(super) fn shown(&self, index: usize) -> Option<Window> {
        self.shown.borrow()[index]
    }

    pub(super) fn is_retired(&self) -> bool {
        self.engine.borrow().is_none()
    }

    fn is_empty(&self) -> bool {
        self.shown.borrow().iter().all(Option::is_none)
    }
}

impl<C: Capacity> World<C> {
    /// The private root of this CPU in a space, a new one if there is none; `None` when memory is full. The caller stays on this
    /// CPU.
    pub(super) fn windows_here(&self, space: &Space<C>) -> Option<Rc<Windows>> {
        if let Some(known) = self.known_windows(space) {
            return Some(known);
        }
        let cpu = context().cpu();
        let root = self.take_table()?;
        // The space's own entries come with the first load.
        self.write_entry(root, KERNEL_REGION, Pte::to(Self::kernel_table(), true));
        let life = self.hardware.book.borrow().life_of_table(root);
        let table = root_at(u64::from(root));
        let view = WindowRoot::new(&self.engine, &space.context(), self.numbers[cpu], table);
        let windows = Rc::new(Windows {
            number: self.next_space.replace(self.next_space.get() + 1),
            cpu,
            root,
            life: self.insist(life),
            engine: RefCell::new(Some(view)),
            table: RefCell::default(),
            shown: RefCell::default(),
        });
        space.windows.borrow_mut().push(windows.clone());
        Some(windows)
    }

    /// The private root of this CPU in a space, if it has one.
    pub(super) fn known_windows(&self, space: &Space<C>) -> Option<Rc<Windows>> {
        let cpu = context().cpu();
        let windows = space.windows.borrow();
        let mut here = windows.iter().filter(|windows| windows.cpu == cpu);
        here.find(|windows| !windows.is_retired()).cloned()
    }

    /// Changes windows of this CPU, and unlinks their table if they are empty then and `prunes`. One flush for all of it, and what was there
    /// is free when that has returned. With `widely`, the flush names more pages than are dropped one by one.
    pub(super) fn change_windows(
        &self,
        windows: &Windows,
        changes: &[Change],
        prunes: bool,
        widely: bool,
    ) {
        let view = windows.engine.borrow();
        let pinned = view
            .as_ref()
            .and_then(|root| self.engine.windows().pin(root).ok());
        let Some(pinned) = pinned.filter(|_| self.need_window_table(windows, changes)) else {
            return self.give_back(changes);
        };
        let mark = self.mark();
        let mut gone = Vec::new();
        for (index, wanted) in changes {
            let before = self.show(windows, *index, *wanted);
            gone.extend(before.map(|before| (window_page(*index), before.frame)));
        }
        let table = match prunes && windows.is_empty() {
            true => self.unlink_windows(windows),
            false => None,
        };
        if gone.is_empty() && table.is_none() {
            // What was empty is cached nowhere.
            return;
        }
        self.note_change(&pinned);
        let pages = if widely {
            2 * FLUSH_CEILING_PAGES
        } else {
            PAGES_PER_TABLE
        };
        let (first, pages) = match gone.as_slice() {
            [(page, _)] if table.is_none() && !widely => (*page, 1),
            _ => (window_page(0), pages),
        };
        let range = FlushRange::pages(address_of(first), pages, PageSize::SIZE_4K);
        pinned.flush(range);
        for (page, frame) in gone {
            self.strike(windows.number, page, mark);
            self.check_unreachable(page, frame);
            self.release_data(frame);
        }
        if let Some(table) = table {
            self.release_table(table);
        }
        drop(self.forget(pinned, &[]));
    }

    fn note_change(&self, pinned: &PinnedWindows<'_, SimPlatform<C>>) {
        let me = context().cpu();
        let sight = match (pinned.is_loaded(), self.is_lazy[me].get()) {
            (true, false) => Sight::WindowChangedLoaded,
            (true, true) => Sight::WindowChangedLazily,
            (false, _) => Sight::WindowChangedUnloaded,
        };
        self.hardware.saw(sight);
    }

    /// What changes that are not made would have shown is used once less.
    pub(super) fn give_back(&self, changes: &[Change]) {
        for window in changes.iter().filter_map(|(_, wanted)| *wanted) {
            self.release_data(window.frame);
        }
    }

    /// Writes the entry of a window, and promises what it says; returns what was there.
    fn show(&self, windows: &Windows, index: usize, wanted: Option<Window>) -> Option<Window> {
        let before = mem::replace(&mut windows.shown.borrow_mut()[index], wanted);
        let table = *windows.table.borrow();
        let entry = match wanted {
            Some(Window { frame, writable }) => {
                let mut book = self.hardware.book.borrow_mut();
                book.promise(windows.number, window_page(index), frame, writable);
                Pte::to(frame, writable)
            }
            None => Pte::EMPTY,
        };
        if let Some(table) = table.filter(|_| before != wanted) {
            self.write_entry(table, index, entry);
        }
        before
    }

    /// Makes sure that there is a table if it is needed; `false` when memory is full.
    fn need_window_table(&self, windows: &Windows, changes: &[Change]) -> bool {
        let maps = changes.iter().any(|(_, wanted)| wanted.is_some());
        if !maps || windows.table.borrow().is_some() {
            return true;
        }
        let Some(table) = self.take_table() else {
            return false;
        };
        *windows.table.borrow_mut() = Some(table);
        self.write_entry(windows.root, WINDOW_REGION, Pte::to(table, true));
        true
    }

    fn unlink_windows(&self, windows: &Windows) -> Option<u16> {
        let table = windows.table.take()?;
        self.write_entry(windows.root, WINDOW_REGION, Pte::EMPTY);
        self.hardware.saw(Sight::WindowTableUnlinked);
        Some(table)
    }

    /// A window shows the frame no more, and its flush is over: no CPU has a translation left that it may not have.
    fn check_unreachable(&self, page: usize, frame: u16) {
        for cpu in 0..self.online.len() {
            let tlbs = self.hardware.tlbs.borrow();
            let mut usable = tlbs[cpu].usable();
            // In the middle of a load it may hold the window of the root that it comes from, whose frame this one shows too.
            let is_cached =
                !tlbs[cpu].is_midway && usable.any(|leaf| (leaf.page, leaf.frame) == (page, frame));
            drop(usable);
            drop(tlbs);
            if is_cached {
                let owner = self.owner_on(cpu, page);
                let book = self.hardware.book.borrow();
                let outcome = book.check_access(owner, page, frame, false);
                drop(book);
                self.insist(outcome.map_err(|(kind, story)| (kind, format!("cpu{cpu}: {story}"))));
            }
        }
    }

    /// Ends the private root of this CPU in a space, which the CPU has left. Not in a thread, which may lose its CPU.
    pub(super) fn drop_windows(&self, space: &Space<C>) {
        if let Some(windows) = self.known_windows(space) {
            self.retire(space, &windows);
        }
    }

    /// Ends all private roots of a space that nobody has loaded any more.
    pub(super) fn retire_all(&self, space: &Space<C>) {
        let all = space.windows.borrow().clone();
        all.iter().for_each(|windows| self.retire(space, windows));
    }

    /// Its CPU has left the private root and loads it never again: all that hangs on it is free, without a flush.
    fn retire(&self, space: &Space<C>, windows: &Windows) {
        let Some(view) = windows.engine.borrow_mut().take() else {
            return;
        };
        let root = match view.cpu() == PLATFORM.current_cpu() {
            true => self.engine.windows().retire(&space.context(), view),
            // SAFETY: 1. its last user has left the space, and nobody finds it any more.
            false => unsafe {
                self.engine
                    .windows()
                    .retire_elsewhere(&space.context(), view)
            },
        };
        assert_eq!(root, root_at(u64::from(windows.root)), "a root comes back");
        self.hardware.saw(Sight::RootRetired);
        let mark = self.mark();
        for index in 0..PAGES_PER_TABLE {
            let shown = windows.shown.borrow_mut()[index].take();
            if let Some(shown) = shown {
                self.strike(windows.number, window_page(index), mark);
                self.check_unreachable(window_page(index), shown.frame);
                self.release_data(shown.frame);
            }
        }
        if let Some(table) = windows.table.take() {
            self.release_table(table);
        }
        self.release_table(windows.root);
    }

    /// Whoever is on another CPU than a private root's cannot get hold of its windows.
    pub(super) fn try_to_pin_all(&self, space: &Space<C>) {
        context().preempt_disable();
        let me = context().cpu();
        let all = space.windows.borrow().clone();
        for windows in all {
            let view = windows.engine.borrow();
            let Some(root) = view.as_ref() else {
                continue;
            };
            let is_pinned = self.engine.windows().pin(root).is_ok();
            if is_pinned != (windows.cpu == me) {
                let message = format!("cpu{me} pins windows of cpu{}: {is_pinned}", windows.cpu);
                context().fail(FailureKind::Other, message);
            }
            if !is_pinned {
                self.hardware.saw(Sight::PinRefused);
            }
        }
        context().preempt_enable();
    }
}
