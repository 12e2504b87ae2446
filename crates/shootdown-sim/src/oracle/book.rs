//! [`Book`]: frames, and what was promised about them.

use std::cell::Cell;

use rustc_hash::FxHashMap;

use crate::machine::FailureKind;
use crate::walkthrough::{Fact, Key, Subject, Value};

/// A broken promise: its kind, and the story.
pub type Breach = (FailureKind, String);

/// What a physical frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// Nothing; its content may change at any time.
    Free,
    /// A page of user or kernel data.
    Data,
    /// A page-table page.
    Table,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    kind: FrameKind,
    /// How often it was taken into use or freed.
    life: u32,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    frame: u16,
    /// Of the frame: one that is freed early is another when it comes again. None inside a guest.
    life: Option<u32>,
    writable: bool,
    number: u64,
}

/// A point in the book: what was promised before, and what after.
///
/// A call withdraws what was promised before it changed the entry. While it waits, the page may be unmapped by
/// others and mapped again, even to the same frame: that is another promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark(u64);

/// What was promised about one page of one space.
#[derive(Clone, Default, Debug)]
struct Page {
    open: Vec<Promise>,
    struck_at: u64,
}

/// The oracle's memory.
#[derive(Clone, Debug)]
pub struct Book {
    frames: Vec<Frame>,
    pages: FxHashMap<(u64, usize), Page>,
    promises: u64,
    /// What the last breach was about.
    subject: Cell<Option<Subject>>,
}

impl Book {
    /// A machine with that many frames, all free.
    pub fn new(frames: usize) -> Self {
        let free = Frame {
            kind: FrameKind::Free,
            life: 0,
        };
        Self {
            frames: vec![free; frames],
            pages: FxHashMap::default(),
            promises: 0,
            subject: Cell::default(),
        }
    }

    /// A frame is taken into use.
    pub fn take(&mut self, frame: u16, kind: FrameKind) {
        let entry = &mut self.frames[usize::from(frame)];
        entry.kind = kind;
        entry.life += 1;
    }

    /// A frame is free again.
    pub fn release(&mut self, frame: u16) {
        let entry = &mut self.frames[usize::from(frame)];
        entry.kind = FrameKind::Free;
        entry.life += 1;
    }

    /// Which life of a table a walker has come upon.
    ///
    /// # Errors
    /// When the frame is none: whoever freed it did not make sure that nobody walks it (I4).
    pub fn life_of_table(&self, frame: u16) -> Result<u32, Breach> {
        let entry = self.frames[usize::from(frame)];
        if entry.kind == FrameKind::Table {
            return Ok(entry.life);
        }
        self.blame(Subject::Table(frame));
        let kind = format!("{:?}", entry.kind).to_lowercase();
        Err((
            FailureKind::FreedTable,
            format!("a page walk goes through frame {frame}, which is {kind}"),
        ))
    }

    /// A walker uses what it remembers of a table.
    ///
    /// # Errors
    /// When the frame has been freed since.
    pub fn check_table(&self, frame: u16, life: u32) -> Result<(), Breach> {
        let now = self.life_of_table(frame)?;
        if now == life {
            return Ok(());
        }
        self.blame(Subject::Table(frame));
        Err((
            FailureKind::FreedTable,
            format!("a page walk goes through frame {frame}, which has become another table since"),
        ))
    }

    /// The page tables are about to promise `frame` for a page.
    pub fn promise(&mut self, space: u64, page: usize, frame: u16, writable: bool) {
        let life = self.frames[usize::from(frame)].life;
        self.add((space, page), frame, Some(life), writable);
    }

    /// Page tables of a guest are about to promise its page `to` for a virtual one.
    pub fn promise_inside(&mut self, guest: u64, page: usize, to: u16, writable: bool) {
        self.add((guest, page), to, None, writable);
    }

    fn add(&mut self, of: (u64, usize), frame: u16, life: Option<u32>, writable: bool) {
        self.promises += 1;
        let promises = &mut self.pages.entry(of).or_default().open;
        promises.push(Promise {
            frame,
            life,
            writable,
            number: self.promises,
        });
    }

    /// Here, before an entry is changed.
    pub fn mark(&self) -> Mark {
        Mark(self.promises)
    }

    /// The flush that takes away what was promised before `mark` has reached its level.
    pub fn withdraw(&mut self, space: u64, page: usize, mark: Mark, now: u64) {
        self.strike(space, page, now, |promise| promise.number <= mark.0);
    }

    /// The flush that makes a page read-only has reached its level.
    pub fn withdraw_writable(&mut self, space: u64, page: usize, mark: Mark, now: u64) {
        self.strike(space, page, now, |promise| {
            promise.number <= mark.0 && promise.writable
        });
    }

    fn strike(&mut self, space: u64, page: usize, now: u64, which: impl Fn(&Promise) -> bool) {
        if let Some(entry) = self.pages.get_mut(&(space, page)) {
            entry.open.retain(|promise| !which(promise));
            entry.struck_at = now;
        }
    }

    /// What a broken promise is about.
    pub fn blame(&self, subject: Subject) {
        self.subject.set(Some(subject));
    }

    /// What was blamed last.
    pub fn subject(&self) -> Option<Subject> {
        self.subject.get()
    }

    /// The frames in use and the open promises, for those who look at them.
    pub(crate) fn add_facts(&self, facts: &mut Vec<Fact>) {
        let frames = self.frames.iter().enumerate();
        let used = frames.filter(|(_, frame)| frame.kind != FrameKind::Free);
        facts
            .extend(used.map(|(index, frame)| (Key::Frame(index as u16), Value::Used(frame.kind))));
        for ((space, page), promised) in &self.pages {
            facts.extend(promised.open.iter().map(|promise| {
                let key = Key::Promise(*space, *page, promise.frame);
                let same = |other: &&Promise| other.frame == promise.frame;
                let writable = promised.open.iter().filter(same).any(|it| it.writable);
                let frame = promise.frame.into();
                (key, Value::Frame { frame, writable })
            }));
        }
    }

    /// An access happens.
    ///
    /// # Errors
    /// When no open promise covers it.
    pub fn check_access(
        &self,
        space: u64,
        page: usize,
        frame: u16,
        writes: bool,
    ) -> Result<(), Breach> {
        let entry = self.pages.get(&(space, page));
        let open = entry.map_or(&[][..], |entry| &entry.open);
        let life = self.frames[usize::from(frame)].life;
        let covered = open.iter().any(|promise| {
            let is_it = promise.frame == frame && promise.life.is_none_or(|known| known == life);
            is_it && (promise.writable || !writes)
        });
        if covered {
            return Ok(());
        }
        self.blame(Subject::Page { page, frame });
        let verb = if writes { "stores to" } else { "loads from" };
        let struck_at = entry.map_or(0, |entry| entry.struck_at);
        Err((
            FailureKind::StaleAccess,
            format!(
                "page {page} of space {space} {verb} frame {frame}; promised is {open:?}, \
                 and the last promise ended at event {struck_at}"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Book, FrameKind};
    use crate::machine::FailureKind;

    #[test]
    fn an_access_needs_an_open_promise() {
        let mut book = Book::new(4);
        assert!(book.check_access(1, 0, 2, false).is_err());
        book.promise(1, 0, 2, true);
        let mark = book.mark();
        book.promise(1, 0, 2, false);
        assert!(book.check_access(1, 0, 2, true).is_ok());
        assert!(book.check_access(1, 1, 2, false).is_err());
        assert!(book.check_access(2, 0, 2, false).is_err());
        book.withdraw_writable(1, 0, mark, 10);
        assert!(book.check_access(1, 0, 2, false).is_ok());
        let breach = book.check_access(1, 0, 2, true).unwrap_err();
        assert_eq!(breach.0, FailureKind::StaleAccess);
        book.withdraw(1, 0, book.mark(), 11);
        assert!(book.check_access(1, 0, 2, false).is_err());
    }

    #[test]
    fn a_late_withdrawal_leaves_later_promises_alone() {
        let mut book = Book::new(4);
        book.promise(1, 0, 2, true);
        let mark = book.mark();
        book.promise(1, 0, 2, true);
        book.withdraw_writable(1, 0, mark, 10);
        assert!(book.check_access(1, 0, 2, true).is_ok());
    }

    #[test]
    fn a_table_that_was_freed_is_not_the_one_that_was_remembered() {
        let mut book = Book::new(2);
        assert!(book.life_of_table(1).is_err());
        book.take(1, FrameKind::Table);
        let life = book.life_of_table(1).unwrap();
        assert!(book.check_table(1, life).is_ok());
        book.release(1);
        assert!(book.check_table(1, life).is_err());
        book.take(1, FrameKind::Table);
        assert!(book.check_table(1, life).is_err());
    }
}
