//! `madvise`: the operation that workload T1 measures.

use super::error::MapError;
use super::invalidate::Gather;
use super::range::UserRange;
use super::space::MemorySpace;
use super::vma::AreaKind;

/// What an advice makes this kernel do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Forget the contents: `MADV_DONTNEED`, and `MADV_FREE`, which may do so at any time.
    Discard,
    /// Known, and nothing to do: memory is neither swapped, read ahead, merged nor inherited.
    Ignore,
}

impl Advice {
    /// From the `advice` argument of `madvise`; `None` for what Linux does not know on anonymous
    /// memory either, or this kernel cannot do.
    pub const fn from_linux(advice: usize) -> Option<Self> {
        match advice {
            4 | 8 => Some(Self::Discard),
            // NORMAL RANDOM SEQUENTIAL WILLNEED, DONTFORK DOFORK MERGEABLE UNMERGEABLE HUGEPAGE
            // NOHUGEPAGE DONTDUMP DODUMP, COLD PAGEOUT
            0..=3 | 10..=17 | 20 | 21 => Some(Self::Ignore),
            _ => None,
        }
    }
}

impl MemorySpace {
    /// Follows an advice about the range.
    ///
    /// # Errors
    /// [`MapError::Invalid`] for an unaligned address or program memory, [`MapError::NoMemory`] for a
    /// hole in the range (the mapped parts have followed the advice, as on Linux).
    pub fn advise(&self, addr: usize, len: usize, advice: Advice) -> Result<(), MapError> {
        if len == 0 && UserRange::new(addr, 1).is_ok() {
            return Ok(());
        }
        let range = UserRange::new(addr, len)?;
        let mut inner = self.lock();
        let area = inner.areas.find(range.start()).copied();
        let whole =
            area.is_some_and(|area| area.range.contains(range)) || inner.areas.covers(range);
        let outcome = if whole {
            Ok(())
        } else {
            Err(MapError::NoMemory)
        };
        if advice == Advice::Ignore {
            return outcome;
        }
        // A program's pages have no file behind them here: discarding would lose them for good.
        if area.is_some_and(|area| area.kind == AreaKind::Image) {
            return Err(MapError::Invalid);
        }
        let mut gather = Gather::new();
        inner.discard(range, &mut gather);
        let pending = self.submit(&mut inner, gather);
        drop(inner);
        pending.finish();
        outcome
    }
}
