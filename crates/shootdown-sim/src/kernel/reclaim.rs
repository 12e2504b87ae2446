//! Taking pages out of many spaces with one flush, and flushes that another task waits for.

use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};

use shootdown::Capacity;
use shootdown::reclaim::{PendingFlush, Reclaim};

use crate::kernel::layout::SPACES;
use crate::kernel::theme::Draw;
use crate::kernel::{Lock, Sight, USER_PAGES, World};
use crate::machine::{SimPlatform, context};
use crate::oracle::Mark;

/// So many flushes wait for somebody to wait for them, at most: memory is small.
const MOST_HANDED: usize = 3;

/// A page of a space that is gone, and what it mapped.
#[derive(Debug)]
struct Taken {
    space: u64,
    page: usize,
    frame: u16,
    mark: Mark,
}

type Frames = Vec<ManuallyDrop<Taken>>;

/// A flush of the space with this number that any task may wait for.
type Pending<C> = (usize, PendingFlush<'static, SimPlatform<C>, Frames>);

/// Flushes that any task may wait for.
#[derive(Debug)]
pub(super) struct Handed<C: Capacity> {
    lock: Lock,
    /// The engine lives as long as they do: the last program empties this.
    flushes: RefCell<Vec<Pending<C>>>,
}

impl<C: Capacity> Default for Handed<C> {
    fn default() -> Self {
        Self {
            lock: Lock::new(),
            flushes: RefCell::default(),
        }
    }
}

impl<C: Capacity> World<C> {
    /// Unmaps pages of some spaces, has them flushed together, and frees them, or has somebody else do that.
    pub(super) fn reclaim(&self, draw: &mut Draw) {
        if draw.once_in(3) {
            self.free_handed();
        }
        let mut reclaim = Reclaim::new(&*self.engine, Frames::new());
        let (mut spaces, mut frames) = (Vec::new(), Vec::new());
        let holders = self.loaded_spaces();
        for _ in 0..1 + draw.below(2 * SPACES) {
            let (place, off) = (draw.place(), draw.once_in(6));
            let pages = draw.random.u16(..) | draw.random.u16(..);
            let Some(space) = self.get_space(place) else {
                continue;
            };
            let taken = self.with_interrupts(off, || {
                let held = space.lock.take(&self.engine);
                let mark = self.mark();
                let pages = (0..USER_PAGES).filter(|page| pages & (1 << page) != 0);
                let taken: Vec<Taken> = (pages)
                    .filter_map(|page| {
                        let frame = self.clear_page(&space, page)?.frame;
                        let space = space.number;
                        Some(Taken {
                            space,
                            page,
                            frame,
                            mark,
                        })
                    })
                    .collect();
                if !taken.is_empty() {
                    reclaim.add(&space.context());
                }
                drop(held);
                taken
            });
            if !taken.is_empty() && !spaces.contains(&space.number) {
                spaces.push(space.number);
            }
            for page in taken {
                frames.push(page.frame);
                reclaim.keep(page);
            }
            self.put_space(space);
            self.rest_awhile_at_most(draw, 12);
            // Another task gets this CPU, and it has the rest done later.
            if context().task() == context().cpu() && draw.once_in(3) {
                self.switch_somewhere(draw);
            }
        }
        if spaces.is_empty() {
            return;
        }
        self.see_reclaim(&spaces, &holders);
        let ticket = reclaim.submit();
        let Some(ticket) = self.forget(ticket, &frames) else {
            return;
        };
        if draw.random.bool() || self.handed.flushes.borrow().len() >= MOST_HANDED {
            return self.free_taken(self.wait(ticket));
        }
        let pending = ticket.hand_over();
        // SAFETY: see `Handed::flushes`.
        let pending: PendingFlush<'static, SimPlatform<C>, Frames> =
            unsafe { mem::transmute(pending) };
        let held = self.handed.lock.take(&self.engine);
        self.handed
            .flushes
            .borrow_mut()
            .push((context().task(), pending));
        drop(held);
    }

    /// Waits for what another task has handed over, and frees that; false if there was nothing.
    pub(super) fn free_handed(&self) -> bool {
        let held = self.handed.lock.take(&self.engine);
        let next = self.handed.flushes.borrow_mut().pop();
        drop(held);
        let Some((from, pending)) = next else {
            return false;
        };
        if from != context().task() {
            self.hardware.saw(Sight::HandedOver);
        }
        self.free_taken(self.wait_pending(pending));
        true
    }

    fn free_taken(&self, taken: Frames) {
        for taken in taken.into_iter().map(ManuallyDrop::into_inner) {
            self.strike(taken.space, taken.page, taken.mark);
            self.release_data(taken.frame);
        }
    }

    /// What each CPU has loaded.
    fn loaded_spaces(&self) -> Vec<Option<u64>> {
        let number = |cpu: usize| self.current[cpu].borrow().as_ref().map(|it| it.number);
        (0..self.current.len()).map(number).collect()
    }

    /// `before` is what CPUs had loaded when it began.
    fn see_reclaim(&self, spaces: &[u64], before: &[Option<u64>]) {
        match spaces {
            [_] => self.hardware.saw(Sight::ReclaimedFromOne),
            _ => self.hardware.saw(Sight::ReclaimedFromMany),
        }
        let is_of = |space: &Option<u64>| space.is_some_and(|it| spaces.contains(&it));
        let mut pairs = before.iter().zip(self.loaded_spaces());
        if spaces.len() > 1
            && pairs.any(|(before, now)| is_of(before) && now.is_some() && now != *before)
        {
            self.hardware.saw(Sight::ReclaimServedElsewhere);
        }
    }
}
