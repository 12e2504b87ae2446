//! Lending pages: shares of what a buffer shows now, for somebody else to map.
//!
//! Who has a share keeps the frame, whatever becomes of the buffer. It has the page, not the place: when the lender
//! replaces the page, the two part.

use super::access::FaultAccess;
use super::frames::{self, FrameChain, Share};
use super::prot::Prot;
use super::pte::PteCell;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::AreaKind;
use crate::errno::Errno;
use alloc::vec::Vec;

/// What may be done with lent pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// Reading.
    Reading,
    /// Writing, too.
    Writing,
}

impl Lending {
    /// The rights of an entry that maps such a page.
    pub(super) const fn prot(self) -> Prot {
        match self {
            Self::Reading => Prot::READ,
            Self::Writing => Prot::READ_WRITE,
        }
    }

    /// The access by the lender that makes a page fit for it.
    const fn access(self) -> FaultAccess {
        FaultAccess {
            write: matches!(self, Self::Writing),
            exec: false,
            user: true,
            present: false,
        }
    }
}

/// Where lending stopped.
enum Lent {
    All,
    /// The page here is not mapped as is needed.
    Absent(usize),
}

impl MemorySpace {
    /// Puts shares of all pages of `range` into `pages`, in order. Pages are made, and copied, as if the program had
    /// accessed them. May sleep; interrupts and preemption are on.
    ///
    /// # Errors
    /// EFAULT for what the program may not access that way, and for a file's pages that would be written to; ENOMEM; EINTR
    /// when the thread `is_ending` meanwhile. `pages` has what was lent by then.
    ///
    /// # Panics
    /// When `pages` has less room than `range` has pages.
    pub fn lend(
        &self,
        range: UserRange,
        lending: Lending,
        pages: &mut Vec<Share>,
        is_ending: impl Fn() -> bool,
    ) -> Result<(), Errno> {
        let mut rest = Some(range);
        while let Some(left) = rest {
            // Without the lock, which a fault takes.
            let lent = self.lock().lend(left, lending, pages)?;
            match lent {
                Lent::All => return Ok(()),
                Lent::Absent(at) => {
                    self.fault(at, lending.access())?;
                    rest = UserRange::from_bounds(at, range.end());
                }
            }
            // Another thread may take away each page that this one makes.
            if is_ending() {
                return Err(Errno::EINTR);
            }
        }
        Ok(())
    }
}

impl Inner {
    /// As far as the pages are there.
    fn lend(
        &self,
        range: UserRange,
        lending: Lending,
        pages: &mut Vec<Share>,
    ) -> Result<Lent, Errno> {
        for addr in range.pages() {
            let area = self.areas.find(addr);
            let counts_writes =
                area.is_some_and(|area| matches!(area.kind, AreaKind::SharedFile(_)));
            if counts_writes && lending == Lending::Writing {
                return Err(Errno::EFAULT);
            }
            let is_allowed = |prot: Prot| lending.prot().within(prot);
            // What others lend has rights in the entry, but none in the area.
            let cell = area
                .filter(|area| is_allowed(area.prot))
                .and_then(|_| self.table.leaf(addr));
            let entry = cell.map(PteCell::load);
            let usable = entry.filter(|entry| is_allowed(entry.prot()));
            let Some(frame) = usable.and_then(|entry| entry.frame()) else {
                return Ok(Lent::Absent(addr));
            };
            assert!(pages.len() < pages.capacity(), "no room for lent pages");
            pages.push(Share::another(frame));
        }
        Ok(Lent::All)
    }
}

/// Gives up lent pages, to which no CPU can translate because of these shares any more (I5).
pub fn release(pages: &mut Vec<Share>) {
    let mut freed = FrameChain::new();
    pages
        .drain(..)
        .filter_map(Share::release)
        .for_each(|frame| freed.push(frame));
    if !freed.is_empty() {
        frames::free_chain(freed);
    }
}
