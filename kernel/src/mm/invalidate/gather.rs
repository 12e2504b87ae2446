//! [`Gather`]: what one operation on an address space took away.

use super::in_flight::InFlight;
use crate::mm::frames::{Frame, FrameChain, Share, ShareList};
use crate::mm::layout::PAGE_SIZE;
use crate::mm::pte::Pte;
use crate::mm::range::UserRange;
use crate::mm::space::MemorySpace;
use crate::platform::SHOOTDOWN;
use shootdown::{FlushRange, FreedTables, PageSize};

/// Addresses whose translations must be forgotten, and what may be freed once they are.
#[must_use = "gathered frames are freed by submitting and finishing only"]
#[derive(Debug)]
pub struct Gather<'a> {
    space: &'a MemorySpace,
    /// What nobody uses any more as it was when the operation is over, also where others took it away before.
    promised: Option<UserRange>,
    span: Option<(usize, usize)>,
    /// It counts as in flight already, because others take pages away beside it.
    pub(super) noted: Option<InFlight>,
    pub(super) frames: FrameChain,
    pub(super) tables: FrameChain,
    /// Of frames that other processes own too: they cannot be chained.
    pub(super) shares: ShareList,
    pub(super) lost_writers: bool,
}

impl<'a> Gather<'a> {
    /// Nothing of this space yet, by an operation on all of `range`.
    pub fn of(space: &'a MemorySpace, range: UserRange) -> Self {
        Self {
            promised: Some(range),
            ..Self::of_found(space)
        }
    }

    /// The same, by one that promises nothing of what others have taken away before.
    pub const fn of_found(space: &'a MemorySpace) -> Self {
        Self {
            space,
            promised: None,
            span: None,
            noted: None,
            frames: FrameChain::new(),
            tables: FrameChain::new(),
            shares: ShareList::new(),
            lost_writers: false,
        }
    }

    /// As [`of`](Self::of), by an operation that only glances at the space: others may find what it takes away gone before it is submitted, and wait as well.
    pub fn in_passing(space: &'a MemorySpace, range: UserRange) -> Self {
        Self {
            noted: Some(space.in_flight.clone()),
            ..Self::of(space, range)
        }
    }

    /// The lock is held, and nothing more is gathered: what others have taken away in the range counts as well, unless they are done with it.
    pub(super) fn add_what_is_in_flight(&mut self) {
        if let Some(range) = self.promised
            && (self.space.in_flight).is_any_but(usize::from(self.noted.is_some()))
        {
            self.widen(range.start(), range.end());
        }
    }

    /// The page at `addr` lost rights or moved elsewhere; its frame lives on.
    pub fn page(&mut self, addr: usize) {
        self.widen(addr, addr + PAGE_SIZE);
    }

    /// The page at `addr` is gone; `share` of its frame was behind it.
    pub fn freed_page(&mut self, addr: usize, share: Share) {
        self.page(addr);
        if share.is_only() {
            share
                .release()
                .into_iter()
                .for_each(|frame| self.frames.push(frame));
        } else if let Err(share) = self.shares.push(share) {
            self.release_now(addr, share);
        }
    }

    /// Flushes the page at `addr` at once, because no memory is left to note `share` on. The lock of the space is held,
    /// which is legal here: whoever wants it sleeps.
    #[cold]
    fn release_now(&mut self, addr: usize, share: Share) {
        let range = FlushRange::pages(addr, 1, PageSize::SIZE_4K);
        SHOOTDOWN.flush(&self.space.engine, range, FreedTables::No);
        share
            .release()
            .into_iter()
            .for_each(|frame| self.frames.push(frame));
    }

    /// The table that translated `bytes` bytes from `addr` up is unlinked.
    pub fn freed_table(&mut self, addr: usize, bytes: usize, table: Frame) {
        self.widen(addr, addr + bytes);
        self.tables.push(table);
    }

    /// `before` is gone or has lost rights. If it let processors write to a file's page, they can until the flush is over,
    /// and the page table no longer says so: `submit` waits then, because a sync that came
    /// first would find nothing to flush, and copy the page too early.
    pub const fn note_writer(&mut self, before: Pte) {
        self.lost_writers |= before.writes_to_file();
    }

    /// Whether nothing was gathered.
    pub(super) const fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// What to flush: the smallest range around everything gathered. Over-flushing is legal (I10).
    pub(super) fn range(&self) -> FlushRange {
        match self.span {
            Some((start, end)) => FlushRange::new(start, end, PageSize::SIZE_4K),
            None => FlushRange::WHOLE,
        }
    }

    /// Whether paging-structure caches must be flushed as well (I4).
    pub(super) const fn freed_tables(&self) -> FreedTables {
        if self.tables.is_empty() {
            FreedTables::No
        } else {
            FreedTables::Yes
        }
    }

    fn widen(&mut self, start: usize, end: usize) {
        self.span = Some(match self.span {
            Some((low, high)) => (low.min(start), high.max(end)),
            None => (start, end),
        });
    }
}
