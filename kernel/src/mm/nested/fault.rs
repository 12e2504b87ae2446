//! Nested page faults: what a guest touches is shown to it as its VMM would see it.

use super::machine::GuestMemory;
use super::state::State;
use crate::mm::access::{FaultAccess, FaultError};
use crate::mm::layout::page_floor;
use crate::mm::pte::PteCell;
use crate::mm::space::Inner;

/// How often a page is asked for that others take away each time, before the guest tries itself.
pub(super) const TRIES: usize = 4;

/// What became of a nested page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NestedFault {
    /// The access may be tried again, and faults again if somebody took the page away meanwhile.
    Retry,
    /// There is no memory, or none that may be written to: it is the VMM's affair.
    NoMemory,
}

/// What an attempt found.
enum Tried {
    Shown,
    /// The page was shown before, and may be written to now.
    Widened,
    NoMemory,
    /// The space has nothing fit at this user address.
    Absent(usize),
}

impl GuestMemory {
    /// The guest wants to read, or to write, at `guest`. Pages are made, and copied, as if the VMM had accessed them. May sleep;
    /// interrupts and preemption are on.
    ///
    /// # Errors
    /// What the VMM may not access that way itself.
    pub fn fault(&self, guest: usize, write: bool) -> Result<NestedFault, FaultError> {
        for _ in 0..TRIES {
            match self.try_to_show(page_floor(guest), write)? {
                Tried::Shown => break,
                Tried::Widened => {
                    self.nested.first_write();
                    break;
                }
                Tried::NoMemory => return Ok(NestedFault::NoMemory),
                // Without the locks, which a fault takes.
                Tried::Absent(user) => self.space.fault(user, access(write))?,
            }
        }
        Ok(NestedFault::Retry)
    }

    fn try_to_show(&self, page: usize, write: bool) -> Result<Tried, FaultError> {
        let inner = self.space.lock();
        self.nested.state.lock().show(&inner, page, write)
    }
}

impl State {
    /// Shows what the space has, if that is enough. Both locks are held, so that a task that takes the page away from the space finds it
    /// here.
    fn show(&mut self, inner: &Inner, page: usize, write: bool) -> Result<Tried, FaultError> {
        let slot = self.slots.iter_mut().find(|slot| slot.holds(page));
        let Some(slot) = slot.filter(|slot| !write || !slot.is_read_only) else {
            return Ok(Tried::NoMemory);
        };
        let user = slot.user_of(page);
        // What others lend has rights in the entry, but none in the area.
        let area = inner.areas.find(user).filter(|area| area.prot.any());
        let entry = area.and_then(|_| inner.table.leaf(user)).map(PteCell::load);
        let usable = entry.filter(|entry| {
            let prot = entry.prot();
            prot.any() && (!write || prot.write())
        });
        let Some((entry, frame)) = usable.and_then(|entry| Some((entry, entry.frame()?))) else {
            return Ok(Tried::Absent(user));
        };
        let number = slot.page_of(page);
        // What is written to for the first time is noted, and that takes a fault.
        let may_write =
            entry.prot().write() && !slot.is_read_only && (write || slot.is_dirty(number));
        let shown = self.table.show(page, frame, may_write);
        let is_wider = shown.ok_or(FaultError::OutOfMemory)?;
        if write {
            slot.mark_dirty(number);
        }
        Ok(match is_wider {
            true => Tried::Widened,
            false => Tried::Shown,
        })
    }
}

/// The access by the VMM that makes a page fit for the guest.
pub(super) const fn access(write: bool) -> FaultAccess {
    FaultAccess {
        write,
        exec: false,
        user: true,
        present: false,
    }
}
