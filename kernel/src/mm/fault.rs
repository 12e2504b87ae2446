//! Page faults: demand-zero memory, a stack that grows, writes to what a fork left shared, and the reasons for
//! refusing.

use super::access::{FaultAccess, FaultError};
use super::file;
use super::frames::{self, Frame, Share};
use super::invalidate::Gather;
use super::layout::{PhysAddr, STACK_GUARD, STACK_LIMIT, STACK_TOP, USER_END, page_floor};
use super::page_table::PageTable;
use super::pte::Pte;
use super::range::UserRange;
use super::space::{Inner, MemorySpace};
use super::vma::{Area, AreaKind};
use crate::platform::SHOOTDOWN;

/// What became of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolved {
    /// The access may be tried again.
    Done,
    /// The page belongs to other processes or to a file, too: it has to be copied first.
    CopyDue,
}

impl MemorySpace {
    /// Makes the page of `addr` accessible as `access` wants it, if its area allows. Another CPU may take it away again
    /// before the access repeats, which then faults once more.
    ///
    /// # Errors
    /// Says why not; nothing is changed then.
    pub fn fault(&self, addr: usize, access: FaultAccess) -> Result<(), FaultError> {
        let outcome = self.try_fault(addr, access);
        let is_short = matches!(
            outcome,
            Err(FaultError::OutOfMemory | FaultError::NoFileSpace)
        );
        match is_short && file::make_room() {
            true => self.try_fault(addr, access),
            false => outcome,
        }
    }

    fn try_fault(&self, addr: usize, access: FaultAccess) -> Result<(), FaultError> {
        if addr >= USER_END {
            return Err(FaultError::KernelAddress);
        }
        // Zeroed before the lock is taken: it is most of the work, and other threads fault too.
        // A fault on a present entry is a missing right, or one that another CPU has just granted.
        let mut spare = if access.present {
            None
        } else {
            frames::alloc_zeroed()
        };
        if self.fill_in_passing(addr, access, &mut spare) {
            return Ok(());
        }
        let mut outcome = self.lock().resolve(addr, access, &mut spare);
        if outcome == Err(FaultError::NoMapping) {
            let grown = self.grow_stack(addr);
            outcome = grown.and_then(|()| self.lock().resolve(addr, access, &mut spare));
        }
        if outcome == Ok(Resolved::CopyDue) {
            // The copy is read-only until every CPU has forgotten the original: see `cow`.
            let copied = self.copy_page(addr);
            outcome = copied.and_then(|()| self.lock().resolve(addr, access, &mut spare));
        }
        if let Some(unused) = spare {
            frames::free(unused);
        }
        outcome.map(|_| ())
    }

    /// Fills the empty entry of `addr` with `spare`, while nobody has the lock, beside other threads that fault: the most frequent fault, of memory that belongs to
    /// nobody else, whose tables are there. False where it takes more, or somebody else has filled it; nothing is changed then.
    ///
    /// Whoever removes areas or tables has the lock: it comes before, and is seen here, or after, and finds the entry. As under the lock, no flush is due.
    fn fill_in_passing(&self, addr: usize, access: FaultAccess, spare: &mut Option<Frame>) -> bool {
        let Some(inner) = self.inner.glance() else {
            return false;
        };
        let area = inner.areas.find(addr).filter(|area| area.kind.is_own());
        let Some(area) = area.filter(|area| check(area, access).is_ok()) else {
            return false;
        };
        let Some(cell) = inner.table.leaf(addr) else {
            return false;
        };
        let Some(frame) = spare.take() else {
            return false;
        };
        let is_filled = cell.fill_if_empty(Pte::leaf(frame.address(), area.prot));
        match is_filled {
            // It belongs to the entry.
            true => drop(Share::of(frame).into_raw()),
            false => *spare = Some(frame),
        }
        is_filled
    }

    /// Whether another thread has made the page accessible since a processor faulted on it: then the access need only be repeated. Without the lock, which that
    /// thread may hold.
    pub fn is_granted(&self, addr: usize, access: FaultAccess) -> bool {
        if addr >= USER_END {
            return false;
        }
        let Some(walk) = self.walk_tables(addr) else {
            return false;
        };
        // SAFETY: 1. the walk is this space's.
        let entry = unsafe { PageTable::peek(PhysAddr::new(self.engine().root()), addr) };
        drop(walk);
        entry.is_some_and(|entry| access.rights().within(entry.prot()))
    }

    /// No table that leads to `addr` is freed until this is dropped. `None` where this CPU would have to tell others first.
    fn walk_tables(&self, addr: usize) -> Option<impl Sized> {
        #[cfg(feature = "breaks")]
        if super::invalidate::breaks::walks_unprotected() {
            return Some(None);
        }
        match self.is_tracked() {
            true => self.walk_region(addr).map(Some),
            false => Some(Some(SHOOTDOWN.user_memory().walk(self.engine()))),
        }
    }

    /// Makes the stack above `addr` reach down to it. The addresses are given out anew: waits for whoever has taken something away there, with the lock
    /// held, because other threads may use the stack as soon as the area is there.
    fn grow_stack(&self, addr: usize) -> Result<(), FaultError> {
        let mut inner = self.lock();
        if inner.areas.find(addr).is_none() {
            let grown = inner.grow_stack(addr)?;
            self.submit(&mut inner, Gather::of(self, grown)).finish();
        }
        Ok(())
    }
}

impl Inner {
    /// Fills the entry for `addr`, with `spare` if need be, when it is empty and the access is allowed.
    fn resolve(
        &mut self,
        addr: usize,
        access: FaultAccess,
        spare: &mut Option<Frame>,
    ) -> Result<Resolved, FaultError> {
        let area = self.areas.find(addr).cloned();
        let area = area.ok_or(FaultError::NoMapping)?;
        check(&area, access)?;
        let cell = self
            .table
            .leaf_or_create(addr)
            .ok_or(FaultError::OutOfMemory)?;
        if let AreaKind::SharedFile(shown) = &area.kind {
            return shown
                .resolve(&area, cell, addr, access, spare)
                .map(|()| Resolved::Done);
        }
        if let (AreaKind::PrivateFile(shown), true) = (&area.kind, cell.load().is_empty()) {
            // A copy at once: there is no translation that anybody would have to forget.
            let copies = access.write && spare.is_some();
            let shows = match copies {
                true => Ok(()),
                false => shown.show(&area, cell, addr, spare),
            };
            // Also where files have all the memory that they may have: else others' files would keep a program from its own code.
            let copies = copies || shows == Err(FaultError::NoFileSpace);
            match spare.take_if(|_| copies) {
                Some(frame) if shown.copy_to(page_floor(addr), &frame) => {
                    cell.fill(Pte::leaf(Share::of(frame).into_raw(), area.prot));
                }
                Some(frame) => {
                    *spare = Some(frame);
                    return Err(FaultError::BeyondFile);
                }
                None => shows?,
            }
        }
        let entry = cell.load();
        if entry.is_empty() {
            let share = page_of(&area, addr, spare).ok_or(FaultError::OutOfMemory)?;
            // Not present before, and processors do not cache that: no flush is due.
            cell.fill(Pte::leaf(share.into_raw(), area.prot));
        } else if access.write && !entry.prot().write() {
            let prot = area.prot_of(entry);
            if !prot.write() {
                return Ok(Resolved::CopyDue);
            }
            // The other owners have gone. A right gained needs no flush.
            cell.protect(prot);
        }
        // Else another thread filled it or granted the right first, and the access just repeats.
        Ok(Resolved::Done)
    }

    /// Puts a page at `addr`, which an area must hold, if none is there; for `MAP_POPULATE`.
    pub(super) fn populate(&mut self, addr: usize, area: &Area) -> Result<(), FaultError> {
        let cell = self
            .table
            .leaf_or_create(addr)
            .ok_or(FaultError::OutOfMemory)?;
        if let AreaKind::SharedFile(shown) = &area.kind {
            return shown.resolve(area, cell, addr, FaultAccess::READ, &mut None);
        }
        if cell.load().is_empty() {
            if let AreaKind::PrivateFile(shown) = &area.kind {
                return shown.show(area, cell, addr, &mut None);
            }
            let share = page_of(area, addr, &mut None).ok_or(FaultError::OutOfMemory)?;
            cell.fill(Pte::leaf(share.into_raw(), area.prot));
        }
        Ok(())
    }

    /// The same; what it has gained. No area holds `addr`.
    fn grow_stack(&mut self, addr: usize) -> Result<UserRange, FaultError> {
        let above = self.areas.next_above(addr).ok_or(FaultError::NoMapping)?;
        if above.kind != AreaKind::Stack {
            return Err(FaultError::NoMapping);
        }
        let start = page_floor(addr);
        let grown = UserRange::from_bounds(start, above.range.start());
        let grown = grown.ok_or(FaultError::NoMapping)?;
        let guard = start.saturating_sub(STACK_GUARD);
        let guarded = UserRange::from_bounds(guard, start).is_some_and(|r| self.areas.is_free(r));
        let limit = STACK_TOP - STACK_LIMIT;
        if start < limit - STACK_GUARD {
            return Err(FaultError::NoMapping);
        }
        if start < limit || !guarded {
            return Err(FaultError::StackOverflow);
        }
        self.areas.grow_down(grown);
        Ok(grown)
    }
}

/// A page for `addr`, which `area` holds and which has none: zeroes, or what others have put there.
fn page_of(area: &Area, addr: usize, spare: &mut Option<Frame>) -> Option<Share> {
    match &area.kind {
        AreaKind::Shared(shared) => shared.page(addr, spare),
        // Without a spare: the entry was present, and another thread discarded the page since.
        _ => Some(Share::of(spare.take().or_else(frames::alloc_zeroed)?)),
    }
}

/// Whether the rights of `area` allow the access. On x86 whatever may be accessed may be read.
fn check(area: &Area, access: FaultAccess) -> Result<(), FaultError> {
    match () {
        () if !area.prot.any() => Err(FaultError::NotReadable),
        () if access.write && !area.prot.write() => Err(FaultError::NotWritable),
        () if access.exec && !area.prot.exec() => Err(FaultError::NotExecutable),
        () => Ok(()),
    }
}
