//! Tickets and guards that the host forgets: `mem::forget` is safe code. What they hold is lost, and nothing of it is free early.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem;

use shootdown::Capacity;

use crate::explore::Question;
use crate::kernel::{Sight, World};
use crate::machine::context;

/// What was forgotten, and how much more may be: memory is small.
#[derive(Debug)]
pub(super) struct Forgotten {
    left: Cell<u32>,
    /// A frame that several spaces share may be lost more than once.
    frames: RefCell<BTreeSet<u16>>,
}

impl Forgotten {
    pub(super) fn new(left: u32) -> Self {
        Self {
            left: Cell::new(left),
            frames: RefCell::default(),
        }
    }

    /// Frames that never come back.
    pub(super) fn count_frames(&self) -> usize {
        self.frames.borrow().len()
    }
}

impl<C: Capacity> World<C> {
    /// Forgets a ticket that these frames hang on, if it is to be; gives it back otherwise.
    pub(super) fn forget<T>(&self, ticket: T, frames: &[u16]) -> Option<T> {
        let Forgotten { left, frames: lost } = &self.forgotten;
        let forgets = left.get() > 0
            && context().with(|state| {
                let explore = state.explore();
                explore.is_some_and(|explore| explore.chooser.choose(Question::Workload, 4) == 3)
            });
        if !forgets {
            return Some(ticket);
        }
        left.set(left.get() - 1);
        lost.borrow_mut().extend(frames);
        self.hardware.saw(Sight::Forgotten);
        context().tell(|| "forgets a ticket".to_owned());
        mem::forget(ticket);
        None
    }

    /// A frame that its owner has leaked.
    pub(super) fn lose(&self, frame: Option<u16>) {
        self.forgotten.frames.borrow_mut().extend(frame);
    }
}
