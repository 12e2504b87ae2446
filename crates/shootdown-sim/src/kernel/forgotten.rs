//! Tickets that the host forgets: `mem::forget` is safe code. What they hold is lost, and nothing of it is free early.

use std::cell::Cell;
use std::mem;

use shootdown::{Capacity, Cpus};

use crate::explore::Question;
use crate::kernel::{Sight, World};
use crate::machine::context;

/// What was forgotten, and how much more may be: memory is small.
#[derive(Debug)]
pub(super) struct Forgotten {
    left: Cell<u32>,
    frames: Cell<usize>,
}

impl Forgotten {
    pub(super) fn new(left: u32) -> Self {
        Self {
            left: Cell::new(left),
            frames: Cell::new(0),
        }
    }

    /// Frames that never come back.
    pub(super) fn count_frames(&self) -> usize {
        self.frames.get()
    }
}

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// Forgets a ticket that so many frames hang on, if it is to be; gives it back otherwise.
    pub(super) fn forget<T>(&self, ticket: T, frames: usize) -> Option<T> {
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
        lost.set(lost.get() + frames);
        self.hardware.saw(Sight::Forgotten);
        context().tell(|| "forgets a ticket".to_owned());
        mem::forget(ticket);
        None
    }
}
