//! A thread of low priority that maps, touches and unmaps, and notices a stale translation.
//!
//! Each worker has a region that all workers read while it is filled and discarded; what they may see is the rule of
//! `madvise` ([`crate::madvise::rule`]). Besides, each worker maps pages of its own, which must be new, and unmaps them; and
//! now and then it starts a thread that ends at once, or forks a child that writes its copies and exits.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::board::{Board, Tally};
use crate::child::{Child, End};
use crate::madvise::rule::{self, Epoch, Verdict};
use crate::region::Region;

/// A child is forked in every so-manyth round.
const FORK_EVERY: u64 = 64;
/// A thread is started in every so-manyth round.
const THREAD_EVERY: u64 = 32;

/// Whether a wrong read was reported.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// The region of one worker, which all see.
#[derive(Debug)]
pub struct Field {
    region: Region,
    epoch: AtomicU64,
}

/// One worker.
#[derive(Debug)]
pub struct Worker<'a> {
    fields: &'a [Field],
    own: usize,
    round: u64,
}

impl Field {
    /// A field of `pages` empty pages.
    pub fn new(pages: usize) -> io::Result<Self> {
        Ok(Self {
            region: Region::new(pages)?,
            epoch: AtomicU64::new(Epoch::gone(0).to_bits()),
        })
    }

    fn publish(&self, epoch: Epoch) {
        // ORDERING: what the owner did before this step is seen by whoever sees the step; pairs with `epoch`.
        self.epoch.store(epoch.to_bits(), Release);
    }

    fn epoch(&self) -> Epoch {
        // ORDERING: pairs with `publish`.
        Epoch::from_bits(self.epoch.load(Acquire))
    }

    /// Reads every page and judges what was seen; returns how many reads were wrong.
    fn look(&self) -> u64 {
        let is_wrong = |page: usize| {
            let first = self.epoch();
            // ORDERING: the second epoch is loaded after the page, as the rule demands; pairs with the owner's stores.
            let seen = self.region.word(page, 0).load(Acquire);
            let second = self.epoch();
            let verdict = rule::judge(page, first, seen, second);
            // The first one says enough.
            if verdict != Verdict::Fine && !REPORTED.swap(true, Relaxed) {
                eprintln!(
                    "preemptoff: {verdict:?}: {seen:#x} in page {page} between {first} and {second}"
                );
            }
            verdict != Verdict::Fine
        };
        (0..self.region.pages())
            .filter(|&page| is_wrong(page))
            .count() as u64
    }
}

impl<'a> Worker<'a> {
    /// The worker that owns `fields[own]`.
    pub fn new(fields: &'a [Field], own: usize) -> Self {
        Self {
            fields,
            own,
            round: 0,
        }
    }

    /// Works until the load is over.
    pub fn work(mut self, board: &Board) {
        let mut has_failed = false;
        while board.pass(self.own) {
            if has_failed {
                // The run is void; what is left is to obey the gate.
                std::thread::yield_now();
                continue;
            }
            match self.round() {
                Ok(tally) => board.add(self.own, tally),
                Err(error) => {
                    board.fail(self.own, &error);
                    has_failed = true;
                }
            }
        }
    }

    fn round(&mut self) -> io::Result<Tally> {
        self.round += 1;
        let field = &self.fields[self.own];
        let pages = field.region.pages();
        field.publish(Epoch::fill(self.round));
        for page in 0..pages {
            let value = rule::value(page, self.round);
            field.region.word(page, 0).store(value, Relaxed);
        }
        field.publish(Epoch::held(self.round));
        let other = (self.own + self.round as usize) % self.fields.len();
        let mut wrong = self.fields[other].look();
        field.publish(Epoch::drop_begun(self.round));
        field.region.discard(pages)?;
        field.publish(Epoch::gone(self.round));
        wrong += field.look() + map_and_unmap(pages)?;
        if self.round.is_multiple_of(FORK_EVERY) {
            wrong += self.fork()?;
        }
        if self.round.is_multiple_of(THREAD_EVERY) {
            let thread = std::thread::Builder::new().spawn(|| ())?;
            thread
                .join()
                .map_err(|_| io::Error::other("a thread panicked"))?;
        }
        Ok(Tally {
            operations: 1,
            reads: 3 * pages as u64,
            wrong,
            kept: 0,
        })
    }

    /// A child writes its copy of the field; the field itself must not change.
    fn fork(&self) -> io::Result<u64> {
        let region = &self.fields[self.own].region;
        let scribble = || {
            (0..region.pages()).for_each(|page| region.word(page, 0).store(1, Relaxed));
            0
        };
        match Child::start(scribble)?.wait()? {
            End::Exited(0) => Ok(self.fields[self.own].look()),
            end => Err(io::Error::other(format!("a forked child ended: {end:?}"))),
        }
    }
}

/// Touches new pages and gives them back; returns how many were not empty.
fn map_and_unmap(pages: usize) -> io::Result<u64> {
    let region = Region::new(pages)?;
    let is_old = |page: &usize| {
        region.word(*page, 0).store(1, Relaxed);
        region.word(*page, 1).swap(1, Relaxed) != 0
    };
    Ok((0..pages).filter(is_old).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_outlives_its_discard_is_noticed() {
        let field = Field::new(2).unwrap();
        assert_eq!(field.look(), 0);
        field.region.word(1, 0).store(rule::value(1, 1), Relaxed);
        field.publish(Epoch::drop_begun(1));
        assert_eq!(field.look(), 0, "not discarded yet");
        field.publish(Epoch::gone(1));
        assert_eq!(field.look(), 1);
    }

    #[test]
    fn workers_see_nothing_wrong_in_each_other() {
        let fields: Vec<Field> = (0..2).map(|_| Field::new(3).unwrap()).collect();
        std::thread::scope(|scope| {
            for own in 0..2 {
                let mut worker = Worker::new(&fields, own);
                scope.spawn(move || {
                    for _ in 0..2 * FORK_EVERY {
                        let tally = worker.round().unwrap();
                        assert_eq!((tally.operations, tally.wrong), (1, 0));
                    }
                });
            }
        });
    }
}
