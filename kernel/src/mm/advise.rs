//! `madvise`: the operation that workload T1 measures.

use super::error::MapError;
use super::invalidate::{Gather, Pending};
use super::layout::{PAGE_SIZE, page_ceil};
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::witness;

/// Preemption is off while so many bytes are discarded without the lock.
const MOST_IN_PASSING: usize = 32 * PAGE_SIZE;

/// What an advice makes this kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Forget the contents: `MADV_DONTNEED`, and `MADV_FREE`, which may do so at any time.
    Discard,
    /// Known, and nothing to do: memory is neither swapped, read ahead nor merged.
    Ignore,
}

impl Advice {
    /// From the `advice` argument of `madvise`; `None` for what Linux does not know on anonymous
    /// memory either, or this kernel cannot do.
    pub const fn from_linux(advice: usize) -> Option<Self> {
        match advice {
            4 | 8 => Some(Self::Discard),
            // NORMAL RANDOM SEQUENTIAL WILLNEED, DOFORK MERGEABLE UNMERGEABLE HUGEPAGE NOHUGEPAGE
            // DONTDUMP DODUMP, COLD PAGEOUT. A fork copies everything: DONTFORK cannot be done.
            0..=3 | 11..=17 | 20 | 21 => Some(Self::Ignore),
            _ => None,
        }
    }
}

impl MemorySpace {
    /// Follows an advice about the range.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned address or an end beyond all addresses,
    /// [`MapError::NoMemory`] for a hole in the range (the mapped parts have followed the advice, as on Linux).
    pub fn advise(&self, addr: usize, len: usize, advice: Advice) -> Result<(), MapError> {
        if len == 0 && UserRange::new(addr, 1).is_ok() {
            return Ok(());
        }
        if addr.checked_add(len).and_then(page_ceil).is_none() {
            return Err(MapError::Invalid);
        }
        let range = UserRange::new(addr, len)?;
        if advice == Advice::Discard
            && let Some(pending) = self.discard_in_passing(range)
        {
            pending.finish();
            return Ok(());
        }
        let mut inner = self.lock();
        let outcome = if inner.is_covered(range) {
            Ok(())
        } else {
            Err(MapError::NoMemory)
        };
        if advice == Advice::Ignore {
            return outcome;
        }
        let mut gather = Gather::of(self, range);
        inner.discard(range, &mut gather);
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
        outcome
    }

    /// Discards a few pages of one area that belongs to nobody else, while nobody has the lock, beside other threads that do so or fault; `None`, and nothing done, where it
    /// takes more. Areas and tables stay; entries are emptied one by one, by exchanges.
    fn discard_in_passing(&self, range: UserRange) -> Option<Pending<'_>> {
        if range.end() - range.start() > MOST_IN_PASSING {
            return None;
        }
        let mut gather = Gather::in_passing(self, range);
        // As under the lock, what is taken away is submitted before others are let in.
        let _held = witness::Held::of(self.engine.root());
        let inner = self.inner.glance()?;
        let area = inner.areas.find(range.start())?;
        // What machines show is flushed under the lock.
        if range.end() > area.range.end() || !area.kind.is_own() || self.machines.are_any() {
            return None;
        }
        inner.discard(range, &mut gather);
        Some(self.submit_in_passing(&inner, gather))
    }
}

impl Inner {
    /// Whether areas cover all of `range`.
    fn is_covered(&self, range: UserRange) -> bool {
        let mut covered_to = range.start();
        for area in self.areas.touching(range) {
            if area.range.start() <= covered_to {
                covered_to = area.range.end();
            }
        }
        covered_to >= range.end()
    }
}
