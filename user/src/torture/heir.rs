//! What a forked child does with its copy of everything.
//!
//! The child is alone with a frozen world: the slots' states are in memory that it inherits like their pages, and both
//! are as they were at one moment. So it judges its accesses by the same rule as every worker; a slot at rest must be
//! exactly as its state says. If a thread of the parent could still write to one of the child's pages, the page would
//! soon be newer than its state. Then the child writes to its own pages what nobody else ever writes: it must find
//! that again, and no worker may ever see it.
//!
//! Nothing here allocates or locks: other threads may have been inside the allocator at the fork.

use std::thread;

use super::board::Board;
use super::finding::{Finding, Letter};
use super::mark::{CONTENT_WORD, Mark, SCRIBBLE_WORD, Sort};
use super::private::PrivatePages;
use super::probe::Length;
use super::rule::{self, Effect, Seen};
use super::slot::Slot;
use crate::machine;

/// How often the child looks at everything it inherited, and again at everything it wrote.
const LOOKS: usize = 5;
/// Pages of each slot that it looks at; the first is random.
const PAGES: usize = 3;

/// Exit status of a child that found nothing wrong.
pub const CONTENT: i32 = 0;
/// Exit status of a child that has written a letter.
pub const COMPLAINS: i32 = 1;

/// A child, right after the fork.
#[derive(Debug)]
pub struct Heir<'a> {
    /// The parent's, frozen.
    pub board: &'a Board,
    /// The pages of the worker that forked.
    pub private: &'a PrivatePages,
    /// That worker's number.
    pub worker: usize,
    /// Where to be, if not where the worker is.
    pub cpu: Option<usize>,
    /// What choices depend on.
    pub choice: usize,
    /// Where to complain.
    pub letter: &'a Letter,
}

impl Heir<'_> {
    /// All that it does; its exit status.
    pub fn live(&self) -> i32 {
        if let Some(cpu) = self.cpu {
            // Elsewhere is better, but not necessary.
            let _ignored = machine::pin_to(cpu);
        }
        let life = || {
            self.look()?;
            self.write()?;
            self.look_again()
        };
        match life() {
            Ok(()) => CONTENT,
            Err(finding) => {
                self.letter.put(finding);
                COMPLAINS
            }
        }
    }

    fn look(&self) -> Result<(), Finding> {
        for _ in 0..LOOKS {
            for (number, slot, page) in self.pages() {
                self.judge(number, page, slot.load(page, Length::Short))?;
            }
            self.private.inspect_all().map_err(Finding::Private)?;
            thread::yield_now();
        }
        Ok(())
    }

    /// Writes to whatever is writable for certain.
    fn write(&self) -> Result<(), Finding> {
        for (number, slot, page) in self.pages().filter(|(_, slot, _)| is_writable(slot)) {
            for word in [CONTENT_WORD, SCRIBBLE_WORD] {
                self.judge(number, page, slot.store(page, word, self.mark(page)))?;
            }
        }
        self.private.spoil(|page| self.mark(page));
        Ok(())
    }

    fn look_again(&self) -> Result<(), Finding> {
        for _ in 0..LOOKS {
            for (number, slot, page) in self.pages().filter(|(_, slot, _)| is_writable(slot)) {
                let expected = self.mark(page);
                let seen = match slot.load(page, Length::Short).1 {
                    Effect::Loaded { content, scribble } if content == scribble => Some(content),
                    Effect::Loaded { content, scribble } if content == expected => Some(scribble),
                    Effect::Loaded { content, .. } => Some(content),
                    _ => None,
                };
                if seen != Some(expected) {
                    return Err(Finding::Own {
                        slot: number,
                        page,
                        expected,
                        seen,
                    });
                }
            }
            let spoiled = self.private.inspect_spoiled(|page| self.mark(page));
            spoiled.map_err(Finding::Private)?;
        }
        Ok(())
    }

    /// The pages that this child looks at, the same ones each time.
    fn pages(&self) -> impl Iterator<Item = (usize, &Slot, usize)> {
        let slots = self.board.slots.iter().enumerate();
        slots.flat_map(move |(number, slot)| {
            let pages = slot.pages();
            (0..PAGES.min(pages)).map(move |at| (number, slot, (self.choice + at) % pages))
        })
    }

    fn judge(&self, slot: usize, page: usize, seen: Seen) -> Result<(), Finding> {
        let verdict = rule::judge(self.board.slots[slot].place(page), seen);
        match verdict.is_violation() {
            true => Err(Finding::Slot { slot, page, seen }),
            false => Ok(()),
        }
    }

    fn mark(&self, page: usize) -> u64 {
        Mark::new(Sort::Child, self.worker, page, self.choice as u32).to_word()
    }
}

fn is_writable(slot: &Slot) -> bool {
    let state = slot.state();
    state.at_rest() && !state.to.store_faults()
}
