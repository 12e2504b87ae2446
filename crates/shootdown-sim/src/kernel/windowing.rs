//! What programs do with windows.

use std::rc::Rc;

use shootdown::Capacity;

use crate::kernel::layout::window_page;
use crate::kernel::sightings::Sight;
use crate::kernel::space::Private;
use crate::kernel::theme::Draw;
use crate::kernel::window::{Change, Window};
use crate::kernel::{PAGES_PER_TABLE, Space, World};
use crate::machine::context;

impl<C: Capacity> World<C> {
    /// Something about windows, in the CPU's own program.
    pub(super) fn use_windows(&self, draw: &mut Draw) {
        match draw.below(16) {
            0..3 => self.change_root(draw),
            3..8 => self.serve_through_window(draw),
            8..11 => self.touch_window(draw),
            11..13 => self.change_loaded_windows(draw),
            13..15 => self.change_any_windows(draw),
            _ => self.give_up_windows(draw),
        }
    }

    fn touch_window(&self, draw: &mut Draw) {
        let index = draw.page() % PAGES_PER_TABLE;
        let writes = draw.random.bool();
        self.wake();
        self.touch(window_page(index), writes);
    }

    /// As a server with windows does: has a page mapped there, uses it, and has it replaced or unmapped later.
    fn serve_through_window(&self, draw: &mut Draw) {
        if self.windowed[context().cpu()].borrow().is_none() {
            self.change_root(draw);
        }
        self.change_loaded_windows(draw);
        self.touch_window(draw);
    }

    /// The loaded space goes on by its other root; or a space is loaded.
    fn change_root(&self, draw: &mut Draw) {
        self.wake();
        let me = context().cpu();
        let space = self.current[me].borrow().clone();
        let Some(space) = space.filter(|space| self.revive(space)) else {
            return self.switch_somewhere(draw);
        };
        let has_windows = self.windowed[me].borrow().is_some();
        self.hardware.saw(Sight::RootChanged);
        if has_windows {
            self.switch(Some(space));
        } else {
            self.switch_to_windows(space);
        }
    }

    /// Loads a space by this CPU's private root, or by the shared one when memory is full.
    pub(super) fn switch_to_windows(&self, next: Rc<Space<C>>) {
        context().preempt_disable();
        let windows = self.windows_here(&next);
        context().preempt_enable();
        self.switch_by(Some(next), windows.map_or(Private::None, Private::Windows));
    }

    /// Changes windows of what is loaded, by whichever root, lazily too.
    fn change_loaded_windows(&self, draw: &mut Draw) {
        let space = self.current[context().cpu()].borrow().clone();
        match space.filter(|space| self.revive(space)) {
            Some(space) => {
                self.change_windows_of(&space, draw);
                self.put_space(space);
            }
            None => self.change_any_windows(draw),
        }
    }

    /// Changes this CPU's windows of any space, whatever it has loaded.
    pub(super) fn change_any_windows(&self, draw: &mut Draw) {
        if let Some(space) = self.get_space(draw.place()) {
            self.change_windows_of(&space, draw);
            self.put_space(space);
        }
    }

    fn change_windows_of(&self, space: &Space<C>, draw: &mut Draw) {
        let mut pages = 1 << (draw.page() % PAGES_PER_TABLE);
        if draw.once_in(3) {
            pages |= draw.random.u8(..1 << PAGES_PER_TABLE);
        }
        let indexes = (0..PAGES_PER_TABLE).filter(|index| pages & (1 << index) != 0);
        let changes: Vec<Change> = indexes
            .map(|index| (index, self.find_frame(draw)))
            .collect();
        let (prunes, widely, off) = (draw.random.bool(), draw.once_in(6), draw.once_in(6));
        context().preempt_disable();
        match self.windows_here(space) {
            Some(windows) => self.with_interrupts(off, || {
                self.change_windows(&windows, &changes, prunes, widely);
            }),
            None => self.give_back(&changes),
        }
        context().preempt_enable();
    }

    /// What a window shall show: nothing, a fresh frame, or a page of somebody.
    fn find_frame(&self, draw: &mut Draw) -> Option<Window> {
        let writable = !draw.once_in(4);
        match draw.below(8) {
            0..2 => None,
            2..4 => self.fresh_frame(writable),
            _ => self
                .shared_frame(draw, writable)
                .or_else(|| self.fresh_frame(writable)),
        }
    }

    fn fresh_frame(&self, writable: bool) -> Option<Window> {
        let frame = self.take_data()?;
        Some(Window { frame, writable })
    }

    fn shared_frame(&self, draw: &mut Draw, writable: bool) -> Option<Window> {
        let (place, page) = (draw.place(), draw.page());
        let owner = self.get_space(place)?;
        let held = owner.lock.take(&self.engine);
        let mapped = owner.inner.borrow().pages[page];
        let window = mapped.map(|mapped| Window {
            frame: mapped.frame,
            writable: writable && mapped.writable,
        });
        if let Some(window) = window {
            self.share(window.frame);
            self.hardware.saw(Sight::FrameShared);
        }
        drop(held);
        self.put_space(owner);
        window
    }

    /// Leaves the private root of a space, if this CPU has one, and ends it.
    fn give_up_windows(&self, draw: &mut Draw) {
        let Some(space) = self.get_space(draw.place()) else {
            return;
        };
        let is_private = self.windowed[context().cpu()].borrow().is_some();
        self.leave_private_root(&space, is_private, draw);
        self.drop_windows(&space);
        self.put_space(space);
    }

    /// Loads the shared root of `space`, or leaves it, if it is loaded here and that `is_private`.
    pub(super) fn leave_private_root(
        &self,
        space: &Rc<Space<C>>,
        is_private: bool,
        draw: &mut Draw,
    ) {
        let current = self.current[context().cpu()].borrow().clone();
        let is_loaded = current.is_some_and(|current| Rc::ptr_eq(&current, space));
        if is_loaded && is_private {
            let stays = draw.random.bool() && self.revive(space);
            self.switch(stays.then(|| space.clone()));
        }
    }

    /// What a kernel thread does with windows, wherever it runs.
    pub(super) fn meddle_with_windows(&self, draw: &mut Draw) {
        if !draw.has_windows() {
            return;
        }
        if draw.once_in(4) {
            if let Some(space) = self.get_space(draw.place()) {
                self.try_to_pin_all(&space);
                self.put_space(space);
            }
        } else {
            self.change_any_windows(draw);
        }
    }
}
