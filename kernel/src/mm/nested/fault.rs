//! Nested page faults: what a guest touches is shown to it as its VMM would see it.

use super::machine::GuestMemory;
use super::slot::Slot;
use super::state::State;
use super::table::NestedTable;
use crate::mm::access::{FaultAccess, FaultError};
use crate::mm::frames::{self, FrameChain};
use crate::mm::layout::{PhysAddr, page_floor};
use crate::mm::page_table::TABLES_BELOW_ROOT;
use crate::mm::pte::PteCell;
use crate::mm::space::Inner;

/// How often a page is asked for that others take away each time, before the guest tries itself.
pub(super) const TRIES: usize = 6;

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
    /// Tables are missing, and there are no spare ones.
    NoTables,
    /// The space or the slots have changed meanwhile.
    Changed,
}

/// What a guest wants.
#[derive(Clone, Copy)]
struct Wanted {
    page: usize,
    write: bool,
}

/// What the space has there.
struct Found {
    user: usize,
    frame: PhysAddr,
    may_write: bool,
}

impl GuestMemory {
    /// The guest wants to read, or to write, at `guest`. Pages are made, and copied, as if the VMM had accessed them. May sleep;
    /// interrupts and preemption are on.
    ///
    /// # Errors
    /// What the VMM may not access that way itself.
    pub fn fault(&self, guest: usize, write: bool) -> Result<NestedFault, FaultError> {
        let page = page_floor(guest);
        let mut spare = FrameChain::new();
        let done = self.show(Wanted { page, write }, &mut spare);
        if !spare.is_empty() {
            frames::free_chain(spare);
        }
        done
    }

    /// The same. What is left of `spare` is free.
    fn show(&self, wanted: Wanted, spare: &mut FrameChain) -> Result<NestedFault, FaultError> {
        for _ in 0..TRIES {
            match self.try_to_show(wanted, spare) {
                Tried::Shown => break,
                Tried::Widened => {
                    self.nested.first_write();
                    break;
                }
                Tried::NoMemory => return Ok(NestedFault::NoMemory),
                // Without the locks, which a fault takes.
                Tried::Absent(user) => self.space.fault(user, access(wanted.write))?,
                // Here, and not with interrupts off.
                Tried::NoTables => {
                    while spare.len() < TABLES_BELOW_ROOT {
                        spare.push(frames::alloc_zeroed().ok_or(FaultError::OutOfMemory)?);
                    }
                }
                Tried::Changed => {}
            }
        }
        Ok(NestedFault::Retry)
    }

    /// Shows what the space has, if that is enough, and if no flush of the space has been submitted since that was read: one that is submitted later finds it in the
    /// nested tables.
    fn try_to_show(&self, wanted: Wanted, spare: &mut FrameChain) -> Tried {
        let slot =
            (self.nested.state.lock().slot_for(wanted)).map(|(slot, _)| slot.user_of(wanted.page));
        let Some(user) = slot else {
            return Tried::NoMemory;
        };
        let space = &self.space.engine;
        let inner = self.space.lock();
        let generation = space.generation();
        let found = inner.found(user, wanted.write);
        drop(inner);
        let Some(found) = found else {
            return Tried::Absent(user);
        };
        let mut state = self.nested.state.lock();
        match space.generation() == generation {
            true => state.show(wanted, &found, spare),
            false => Tried::Changed,
        }
    }
}

impl Inner {
    /// What there is at a user address, if that is fit to be read, or written to.
    fn found(&self, user: usize, write: bool) -> Option<Found> {
        // What others lend has rights in the entry, but none in the area.
        self.areas.find(user).filter(|area| area.prot.any())?;
        let entry = self.table.leaf(user).map(PteCell::load)?;
        let (prot, frame) = (entry.prot(), entry.frame()?);
        let may_write = prot.write();
        (prot.any() && (!write || may_write)).then_some(Found {
            user,
            frame,
            may_write,
        })
    }
}

impl State {
    /// The slot that has the page, if that is fit.
    fn slot_for(
        &mut self,
        Wanted { page, write }: Wanted,
    ) -> Option<(&mut Slot, &mut NestedTable)> {
        let Self { slots, table } = self;
        let slot = slots.iter_mut().find(|slot| slot.holds(page))?;
        (!write || !slot.is_read_only).then_some((slot, table))
    }

    fn show(&mut self, wanted: Wanted, found: &Found, spare: &mut FrameChain) -> Tried {
        let Wanted { page, write } = wanted;
        let slot = self.slot_for(wanted);
        let Some((slot, table)) = slot.filter(|(slot, _)| slot.user_of(page) == found.user) else {
            return Tried::Changed;
        };
        let number = slot.page_of(page);
        // What is written to for the first time is noted, and that takes a fault.
        let may_write = found.may_write && !slot.is_read_only && (write || slot.is_dirty(number));
        let Some(is_wider) = table.show(page, found.frame, may_write, spare) else {
            return Tried::NoTables;
        };
        if write {
            slot.mark_dirty(number);
        }
        match is_wider {
            true => Tried::Widened,
            false => Tried::Shown,
        }
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
