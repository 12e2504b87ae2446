//! [`FlushBatch`]: many page-table changes, one shootdown.
//!
//! The batch owns the frames and tables that the changes unlinked. They leave it only through the wait of
//! the ticket that [`submit_batch`](crate::Shootdown::submit_batch) makes of it, so reusing one too early is not
//! something that safe code can write (I4, I5).

use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;

use crate::capacity::Capacity;
use crate::tlb::{FlushRange, FlushRanges, FlushScope, FreedTables, PageSize, SpaceId};

/// Pages and tables that have been unlinked from one space and not yet flushed, at most `CAP`; `T` is the host's name for a
/// physical frame.
///
/// Dropping a batch that was not submitted leaks what it holds: it cannot be known to be safe to reuse.
#[must_use = "the changes are not flushed and the frames not freed until the batch is submitted"]
pub struct FlushBatch<T, const CAP: usize> {
    owner: SpaceId,
    entries: [MaybeUninit<T>; CAP],
    len: usize,
    ranges: FlushRanges,
    freed: FreedTables,
}

/// The batch has no room; here is the frame again. Submit, wait, and go on with a new batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchFull<T>(pub T);

impl<T> fmt::Display for BatchFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the flush batch is full: submit it, wait, and go on with a new one")
    }
}

impl<T, const CAP: usize> FlushBatch<T, CAP> {
    /// An empty batch for changes of `scope`: a space, or the nested page tables of a guest. It lives wherever the caller puts it; nothing is
    /// allocated.
    pub fn new<'a, C: Capacity>(scope: impl Into<FlushScope<'a, C>>) -> Self {
        Self::of(scope.into().id())
    }

    /// An empty batch for changes of the kernel's part, which all spaces share ([`FlushScope::Kernel`]).
    pub const fn kernel() -> Self {
        Self::of(SpaceId::KERNEL)
    }

    const fn of(owner: SpaceId) -> Self {
        Self {
            owner,
            entries: [const { MaybeUninit::uninit() }; CAP],
            len: 0,
            ranges: FlushRanges::EMPTY,
            freed: FreedTables::No,
        }
    }

    /// The leaf entry for the page at `address` was cleared or replaced, and `frame` is what it mapped.
    ///
    /// # Errors
    /// [`BatchFull`] with the frame; the page is not recorded. Ask [`is_full`](Self::is_full) before
    /// changing the entry.
    pub fn page(&mut self, address: usize, size: PageSize, frame: T) -> Result<(), BatchFull<T>> {
        self.keep(frame)?;
        self.ranges.add(FlushRange::pages(address, 1, size));
        Ok(())
    }

    /// A page-table page was unlinked that translated the region of size `covered` at `address`.
    ///
    /// # Errors
    /// [`BatchFull`] with the table; it is not recorded.
    pub fn table(
        &mut self,
        address: usize,
        covered: PageSize,
        table: T,
    ) -> Result<(), BatchFull<T>> {
        self.keep(table)?;
        self.freed = FreedTables::Yes;
        self.ranges.add(FlushRange::of_table(address, covered));
        Ok(())
    }

    /// Entries in `ranges` were changed and no frame was unlinked (protection).
    pub fn range(&mut self, ranges: impl Into<FlushRanges>) {
        self.ranges.merge(&ranges.into());
    }

    /// Whether there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.ranges.is_empty()
    }

    /// Whether no further frame or table fits.
    pub fn is_full(&self) -> bool {
        self.len == CAP
    }

    /// How many frames and tables it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The ranges that hold every change so far.
    pub fn ranges(&self) -> FlushRanges {
        self.ranges
    }

    /// Whether a table was unlinked.
    pub fn freed_tables(&self) -> FreedTables {
        self.freed
    }

    fn keep(&mut self, frame: T) -> Result<(), BatchFull<T>> {
        match self.entries.get_mut(self.len) {
            Some(entry) => {
                entry.write(frame);
                self.len += 1;
                Ok(())
            }
            None => Err(BatchFull(frame)),
        }
    }

    /// It is flushed for `space`: the flush of another one would say nothing of what it holds.
    ///
    /// # Panics
    /// When that is not its own.
    #[track_caller]
    pub(crate) fn check_owner(&self, space: SpaceId) {
        assert!(
            self.owner == space,
            "a flush batch of {:?} is submitted for {space:?}",
            self.owner
        );
    }

    /// Gives everything back; the flush is complete.
    pub(crate) fn reclaim(self) -> Reclaimed<T, CAP> {
        Reclaimed {
            entries: self.entries,
            left: 0..self.len,
        }
    }
}

impl<T, const CAP: usize> fmt::Debug for FlushBatch<T, CAP> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, ranges, .. } = self;
        write!(f, "FlushBatch({len} of {CAP} held, {ranges:?})")
    }
}

/// Frames and tables that no CPU can reach any more: an iterator over them. Dropping it drops the rest.
#[must_use = "these frames are free: give them back to their allocator"]
pub struct Reclaimed<T, const CAP: usize> {
    entries: [MaybeUninit<T>; CAP],
    left: Range<usize>,
}

impl<T, const CAP: usize> Iterator for Reclaimed<T, CAP> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let entry = &self.entries[self.left.next()?];
        // SAFETY: entries below the length were written by `keep`, and each is read once as what is left only shrinks.
        Some(unsafe { entry.assume_init_read() })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T, const CAP: usize> ExactSizeIterator for Reclaimed<T, CAP> {}

impl<T, const CAP: usize> Drop for Reclaimed<T, CAP> {
    fn drop(&mut self) {
        self.by_ref().for_each(drop);
    }
}

impl<T, const CAP: usize> fmt::Debug for Reclaimed<T, CAP> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reclaimed({} left)", self.left.len())
    }
}
