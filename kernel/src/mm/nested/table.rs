//! [`NestedTable`]: from guest-physical pages to frames that others own.

use crate::mm::frames::FrameChain;
use crate::mm::layout::PhysAddr;
use crate::mm::page_table::PageTable;
use crate::mm::prot::Prot;
use crate::mm::pte::{Pte, PteCell};
use crate::mm::range::UserRange;

/// One past the last guest-physical address that there can be: as much as the half of a root that is not the kernel's.
pub const GUEST_END: usize = crate::mm::layout::USER_END;

/// What a guest may do with a page that it may write to, or not. Whether it executes it is its own affair.
const READ_EXEC: Prot = Prot::READ.with(Prot::EXEC);
const ALL: Prot = Prot::READ_WRITE.with(Prot::EXEC);

/// Nested page tables. AMD's processors read them as they read the host's, as if for user code (APM vol. 2, "Nested Paging").
///
/// Leaves have no share of their frames.
#[derive(Debug)]
pub(super) struct NestedTable(PageTable);

impl NestedTable {
    /// Tables that show nothing; `None` without memory.
    pub fn new() -> Option<Self> {
        PageTable::bare().map(Self)
    }

    /// Physical address of the root table.
    pub const fn root(&self) -> PhysAddr {
        self.0.root()
    }

    /// Shows `frame` at `guest`, where nothing or the same frame is, with these rights or those that are there already. Whether it was
    /// there and has gained a right; `None` if tables are missing that `spare` does not have.
    pub fn show(
        &mut self,
        guest: usize,
        frame: PhysAddr,
        may_write: bool,
        spare: &mut FrameChain,
    ) -> Option<bool> {
        let cell = self.0.leaf_or_put(guest, || spare.pop())?;
        let before = cell.load();
        let prot = if may_write { ALL } else { READ_EXEC };
        if before.is_empty() {
            // Not present before, and processors do not cache that: no flush is due.
            cell.fill(Pte::leaf(frame, prot));
            return Some(false);
        }
        assert!(
            before.frame() == Some(frame),
            "guests see a page that their machine's space has lost"
        );
        let gains = before.prot() != prot && before.prot().within(prot);
        if gains {
            // A right gained needs no flush.
            cell.protect(prot);
        }
        Some(gains)
    }

    /// Takes the right to write to the page at `guest` away; whether it was there.
    pub fn protect(&self, guest: usize) -> bool {
        self.0.leaf(guest).is_some_and(take_write)
    }

    /// The same of all pages of `range`.
    pub fn protect_all(&self, range: UserRange) {
        self.0.visit(range, |_, cell| {
            take_write(cell);
        });
    }

    /// Leaves of each page in `range` no more than `allowed` says: the frame that may be there, and whether it may be written to. Whether
    /// any lost something.
    pub fn narrow(
        &self,
        range: UserRange,
        allowed: impl Fn(usize) -> Option<(PhysAddr, bool)>,
    ) -> bool {
        let mut has_lost = false;
        self.0.visit(range, |guest, cell| {
            let entry = cell.load();
            let kept = allowed(guest).filter(|&(frame, _)| entry.frame() == Some(frame));
            has_lost |= match kept {
                None => {
                    cell.take();
                    true
                }
                Some((_, true)) => false,
                Some((_, false)) => take_write(cell),
            };
        });
        has_lost
    }

    /// Takes the tables out that serve `range` and nothing outside of `gap`, in which nothing is shown any more.
    pub fn prune(&mut self, range: UserRange, gap: (usize, usize)) -> FrameChain {
        let mut tables = FrameChain::new();
        self.0.prune(range, gap, |_, _, table| tables.push(table));
        tables
    }
}

/// Whether the entry had the right.
fn take_write(cell: &PteCell) -> bool {
    let could = cell.load().prot().write();
    if could {
        cell.protect(READ_EXEC);
    }
    could
}

impl Drop for NestedTable {
    fn drop(&mut self) {
        if let Some(all) = UserRange::from_bounds(0, GUEST_END) {
            // Or the page table would give up shares that are others'.
            self.narrow(all, |_| None);
        }
    }
}
