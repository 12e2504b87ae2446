//! [`DirtyLog`]: which pages were written to since they were last taken down as clean.
//!
//! A sync must not look at every page of a large file to find the few that are dirty. So each page that becomes dirty is noted,
//! up to a limit; beyond it, or without memory for the note, the log says only that all pages have to be looked at.

use super::pages::PageRange;
use crate::mm::limit;
use alloc::vec::Vec;

/// What a log knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logged {
    /// All dirty pages of the range.
    All,
    /// Too little: the pages themselves say whether they are dirty.
    TooLittle,
}

impl Logged {
    /// Most pages in a log.
    pub const MOST: usize = limit(1024, 3);
}

/// Pages that have become dirty, in that order.
#[derive(Debug)]
pub(super) struct DirtyLog {
    pages: Vec<u32>,
    is_complete: bool,
}

impl DirtyLog {
    /// No page is dirty.
    pub const fn new() -> Self {
        Self {
            pages: Vec::new(),
            is_complete: true,
        }
    }

    /// Notes a page that was clean.
    pub fn add(&mut self, page: u32) {
        let has_room = self.pages.len() < Logged::MOST && self.pages.try_reserve(1).is_ok();
        if self.is_complete && has_room {
            self.pages.push(page);
        } else {
            self.is_complete = false;
        }
    }

    /// Gives `taker` all pages of `range` that are noted, and forgets them. A page may come twice, or may be clean or gone.
    ///
    /// If too little was known, the log begins anew where `range` is the whole file: whoever looks at all pages
    /// afterwards misses none, because what becomes dirty meanwhile is noted.
    pub fn take(&mut self, range: PageRange, mut taker: impl FnMut(u32)) -> Logged {
        if self.is_complete {
            self.pages.retain(|&page| {
                let is_taken = range.holds(page);
                if is_taken {
                    taker(page);
                }
                !is_taken
            });
            return Logged::All;
        }
        if range == PageRange::WHOLE {
            self.pages.clear();
            self.is_complete = true;
        }
        Logged::TooLittle
    }
}
