//! The self-check: what a process does to its pages in a check turn, so that a translation kept too long would show.
//!
//! Each turn begins by looking at every page, just after the switch to this process. Then comes one of:
//!
//! * nothing, so that the next turn finds what is older;
//! * new values in the frames that are there;
//! * other frames: those given back go to whoever takes frames next, mostly another process of the ring;
//! * other frames, taken while on another CPU. What this CPU remembers of this process is then older than what it left
//!   behind: the only change that no flush reaches while a process is away, and that its next switch has to notice;
//! * a fork, whose child must see what was there before, while this process writes new values; the child then writes its
//!   own. It ends at once, so that its tag (where there are tags) goes to somebody else.

use std::io;

use super::deaths;
use super::pages::{Pages, Renewal};
use crate::child::{Child, End};
use crate::machine;

/// Owners from here on are the children that [`Chore::Fork`] makes.
const CHILD_OWNERS: usize = 64;
/// The exit status for this many wrong pages and more.
const MOST_REPORTED: i32 = 100;
/// The exit status of a child that could not do its work.
const FAILED: i32 = 101;

/// What is done after the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chore {
    Nothing,
    Rewrite,
    Replace,
    ReplaceElsewhere,
    Fork,
}

/// Does check turns.
#[derive(Debug)]
pub struct Chores {
    random: fastrand::Rng,
    home: usize,
    elsewhere: Option<usize>,
    has_reported: bool,
}

impl Chores {
    /// For the process on `seat`, which lives on CPU `home` and may visit `elsewhere`.
    pub fn new(seed: u64, seat: usize, home: usize, elsewhere: Option<usize>) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(seat as u64)),
            home,
            elsewhere,
            has_reported: false,
        }
    }

    /// One turn; returns how many pages were wrong.
    pub fn turn(&mut self, pages: &mut Pages) -> io::Result<u64> {
        let found = self.look(pages, "after its switch");
        let (chore, when) = match self.random.u8(..6) {
            0 | 1 => (Chore::Nothing, ""),
            2 => (Chore::Rewrite, "after writing"),
            3 => (Chore::Replace, "after taking other frames"),
            4 => (Chore::ReplaceElsewhere, "after a visit to another CPU"),
            _ => (Chore::Fork, "after a fork"),
        };
        let wrong = match chore {
            Chore::Nothing => return Ok(found),
            Chore::Rewrite => pages.renew(Renewal::InPlace).map(|()| 0),
            Chore::Replace => pages.renew(Renewal::Afresh).map(|()| 0),
            Chore::ReplaceElsewhere => self.replace_elsewhere(pages).map(|()| 0),
            Chore::Fork => self.fork(pages),
        }?;
        Ok(found + wrong + self.look(pages, when))
    }

    /// A process's first act: checks the pages that it has from its parent, and makes them those of `owner`. Returns how
    /// many were wrong.
    pub fn inherit(&mut self, pages: &mut Pages, owner: usize) -> io::Result<u64> {
        let inherited = self.look(pages, "has inherited");
        pages.claim(owner)?;
        Ok(inherited + self.look(pages, "after its first writes"))
    }

    fn replace_elsewhere(&self, pages: &mut Pages) -> io::Result<()> {
        if let Some(cpu) = self.elsewhere {
            machine::pin_to(cpu)?;
            pages.renew(Renewal::Afresh)?;
            machine::pin_to(self.home)?;
        }
        Ok(())
    }

    /// Forks a child that checks its inheritance and its own copies; returns how many of its pages were wrong.
    fn fork(&mut self, pages: &mut Pages) -> io::Result<u64> {
        // This child's end is expected.
        let announced = deaths::ignore();
        let child = Child::start(|| {
            let owner = CHILD_OWNERS + pages.owner();
            match self.inherit(pages, owner) {
                Ok(wrong) => wrong.min(MOST_REPORTED as u64) as i32,
                Err(_) => FAILED,
            }
        })?;
        let renewed = pages.renew(Renewal::InPlace);
        let result = renewed.and_then(|()| child.wait()).and_then(wrong_pages);
        deaths::resume(announced);
        result
    }

    /// Looks at all pages; the first finding of a process is reported.
    fn look(&mut self, pages: &Pages, when: &str) -> u64 {
        let (wrong, first) = pages.look();
        if let (Some(finding), false) = (first, self.has_reported) {
            self.has_reported = true;
            eprintln!(
                "pingpong: process {} {when}: page {} held {:#x} instead of {:#x} ({wrong} such pages)",
                pages.owner(),
                finding.page,
                finding.seen,
                finding.expected,
            );
        }
        wrong
    }
}

fn wrong_pages(end: End) -> io::Result<u64> {
    match end {
        End::Exited(status @ 0..=MOST_REPORTED) => Ok(status as u64),
        End::Exited(_) => Err(io::Error::other("a forked child could not do its work")),
        End::Killed(signal) => Err(io::Error::other(format!(
            "a forked child was ended by signal {signal}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_pages_are_counted_and_failures_are_no_pages() {
        assert_eq!(wrong_pages(End::Exited(0)).unwrap(), 0);
        assert_eq!(wrong_pages(End::Exited(MOST_REPORTED)).unwrap(), 100);
        for end in [End::Exited(FAILED), End::Killed(libc::SIGSEGV)] {
            assert!(wrong_pages(end).is_err());
        }
    }
}
