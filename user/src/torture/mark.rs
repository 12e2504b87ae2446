//! What is written into pages: words that name who wrote them, where, and when.
//!
//! Three words of a page are used: [`CONTENT_WORD`] and [`TAIL_WORD`] hold a mark of the page's
//! owner, [`SCRIBBLE_WORD`] is where other workers write. A word that shows up anywhere else than
//! where its mark says got there through a translation that was no longer valid, or with a frame
//! that was in use twice.

use std::fmt;

use crate::region::PAGE_WORDS;

/// The word that its owner fills.
pub const CONTENT_WORD: usize = 0;
/// The word that anyone may write while the page is writable.
pub const SCRIBBLE_WORD: usize = 1;
/// The last word, filled like the first: it shows that a whole page was zeroed and kept.
pub const TAIL_WORD: usize = PAGE_WORDS - 1;

/// The most owners of a kind.
pub const MAX_OWNERS: usize = 1 << OWNER_BITS;
/// The most pages of one owner.
pub const MAX_PAGES: usize = 1 << PAGE_BITS;

const MAGIC: u64 = 0x5A;
const MAGIC_SHIFT: u32 = 56;
const SORT_SHIFT: u32 = 52;
const OWNER_SHIFT: u32 = 40;
const OWNER_BITS: u32 = 12;
const PAGE_SHIFT: u32 = 32;
const PAGE_BITS: u32 = 8;

/// Who writes a mark, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A slot's content, written by the worker that changes the slot.
    Content = 1,
    /// A trial write to a slot's page.
    Scribble = 2,
    /// A worker's own page.
    Private = 3,
    /// A forked child's own copy of any page.
    Child = 4,
}

/// A word that names its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Why it was written.
    pub sort: Sort,
    /// The number of the slot, or of the worker for private pages.
    pub owner: usize,
    /// The page of that slot or worker.
    pub page: usize,
    /// The slot's sequence number, or the worker's round, at the time of writing.
    pub version: u32,
}

impl Mark {
    /// A mark of all that.
    pub const fn new(sort: Sort, owner: usize, page: usize, version: u32) -> Self {
        Self {
            sort,
            owner,
            page,
            version,
        }
    }

    /// The word to store; never zero.
    pub fn to_word(self) -> u64 {
        debug_assert!(self.owner < MAX_OWNERS && self.page < MAX_PAGES);
        (MAGIC << MAGIC_SHIFT)
            | ((self.sort as u64) << SORT_SHIFT)
            | ((self.owner as u64) << OWNER_SHIFT)
            | ((self.page as u64) << PAGE_SHIFT)
            | u64::from(self.version)
    }

    /// The mark in `word`, if it is one.
    pub fn from_word(word: u64) -> Option<Self> {
        if word >> MAGIC_SHIFT != MAGIC {
            return None;
        }
        let sort = match (word >> SORT_SHIFT) & 0xf {
            1 => Sort::Content,
            2 => Sort::Scribble,
            3 => Sort::Private,
            4 => Sort::Child,
            _ => return None,
        };
        let owner = ((word >> OWNER_SHIFT) as usize) & (MAX_OWNERS - 1);
        let page = ((word >> PAGE_SHIFT) as usize) & (MAX_PAGES - 1);
        Some(Self::new(sort, owner, page, word as u32))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, page, version) = (self.owner, self.page, self.version);
        match self.sort {
            Sort::Content => write!(
                f,
                "content of slot {owner} page {page} written at {version}"
            ),
            Sort::Scribble => write!(f, "trial write to slot {owner} page {page} at {version}"),
            Sort::Private => write!(f, "page {page} of worker {owner} in its round {version}"),
            Sort::Child => write!(f, "a write to page {page} by a child of worker {owner}"),
        }
    }
}

/// `word` in words.
pub fn describe(word: u64) -> String {
    match (word, Mark::from_word(word)) {
        (0, _) => "zero".to_owned(),
        (_, Some(mark)) => mark.to_string(),
        (word, None) => format!("{word:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_survives_its_word() {
        for sort in [Sort::Content, Sort::Scribble, Sort::Private, Sort::Child] {
            let mark = Mark::new(sort, 4095, 255, u32::MAX - 1);
            assert_eq!(Mark::from_word(mark.to_word()), Some(mark));
        }
    }

    #[test]
    fn zero_and_garbage_are_no_marks() {
        for word in [0, 1, u64::MAX, 0x5A << 56, 0xA5 << 56 | 1 << 52] {
            assert_eq!(Mark::from_word(word), None, "{word:#x}");
        }
    }
}
