//! [`State`]: slots and nested tables of one machine.

use super::slot::{Log, Slot, SlotRequest};
use super::table::{GUEST_END, NestedTable};
use crate::errno::Errno;
use crate::mm::frames::FrameChain;
use alloc::vec::Vec;

/// Most slots of one machine: they are looked through one by one.
pub const MOST_SLOTS: usize = 64;

/// What the lock of a machine protects.
#[derive(Debug)]
pub(super) struct State {
    pub slots: Vec<Slot>,
    pub table: NestedTable,
}

/// What a change of a slot has left to do.
#[derive(Debug)]
pub(super) enum Change {
    /// All: a log of so many pages is missing.
    Log(usize),
    /// Nothing: no guest has lost anything.
    Done,
    /// A flush, and these tables are free afterwards.
    Flush(FrameChain),
}

impl State {
    /// The slot with that number.
    pub fn slot_mut(&mut self, id: u32) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.id == id)
    }

    /// Adds, changes or removes a slot, as Linux's `KVM_SET_USER_MEMORY_REGION`. A new log is taken from `log`, whose pages are all dirty if `all_dirty`; an old
    /// one is left there, because interrupts are off.
    ///
    /// # Errors
    /// EINVAL for what cannot be or cannot be changed, EEXIST where another slot is; nothing is changed then.
    pub fn set(
        &mut self,
        wanted: &SlotRequest,
        log: &mut Option<Log>,
        all_dirty: bool,
    ) -> Result<Change, Errno> {
        if wanted.id as usize >= MOST_SLOTS {
            return Err(Errno::EINVAL);
        }
        let at = self.slots.iter().position(|slot| slot.id == wanted.id);
        match (at, wanted.bytes) {
            (None, 0) => Err(Errno::EINVAL),
            (Some(at), 0) => Ok(self.remove(at, log)),
            (None, _) => self.add(wanted, log),
            (Some(at), _) => self.change(at, wanted, log, all_dirty),
        }
    }

    fn add(&mut self, wanted: &SlotRequest, log: &mut Option<Log>) -> Result<Change, Errno> {
        let mut slot = Slot::new(wanted)?;
        self.check_free(&slot)?;
        if wanted.logs && log.is_none() {
            return Ok(Change::Log(slot.pages()));
        }
        slot.log = log.take();
        // There is room: it was reserved, and numbers are below it.
        self.slots.push(slot);
        Ok(Change::Done)
    }

    /// A slot keeps its size and its place in the space; it may move, and have a log or not.
    fn change(
        &mut self,
        at: usize,
        wanted: &SlotRequest,
        log: &mut Option<Log>,
        all_dirty: bool,
    ) -> Result<Change, Errno> {
        let new = Slot::new(wanted)?;
        let old = &mut self.slots[at];
        let is_alike = new.user == old.user
            && new.pages() == old.pages()
            && new.is_read_only == old.is_read_only;
        if !is_alike {
            return Err(Errno::EINVAL);
        }
        let is_moved = new.guest != old.guest;
        if is_moved {
            self.check_free(&new)?;
        }
        let old = &mut self.slots[at];
        let begins = wanted.logs && (is_moved || old.log.is_none());
        if begins && log.is_none() {
            return Ok(Change::Log(new.pages()));
        }
        if is_moved {
            return Ok(self.relocate(at, new, log));
        }
        if begins {
            return Ok(self.begin_log(at, log, all_dirty));
        }
        if !wanted.logs {
            // Pages that are read-only for the log's sake gain a right at the next write.
            *log = old.log.take();
        }
        Ok(Change::Done)
    }

    fn relocate(&mut self, at: usize, mut new: Slot, log: &mut Option<Log>) -> Change {
        new.log = log.take();
        let change = self.remove(at, log);
        self.slots.push(new);
        change
    }

    /// From now on each page is noted at the first write to it.
    fn begin_log(&mut self, at: usize, log: &mut Option<Log>, all_dirty: bool) -> Change {
        self.slots[at].log = log.take();
        if all_dirty {
            return Change::Done;
        }
        self.table.protect_all(self.slots[at].guest);
        // Also where all of them were read-only already: the reader that made them so may still be waiting for the flush.
        Change::Flush(FrameChain::new())
    }

    fn remove(&mut self, at: usize, log: &mut Option<Log>) -> Change {
        let gone = self.slots.swap_remove(at);
        *log = gone.log;
        let gone = gone.guest;
        let mut gap = (0, GUEST_END);
        for other in &self.slots {
            if other.guest.end() <= gone.start() {
                gap.0 = gap.0.max(other.guest.end());
            } else {
                gap.1 = gap.1.min(other.guest.start());
            }
        }
        self.table.narrow(gone, |_| None);
        Change::Flush(self.table.prune(gone, gap))
    }

    fn check_free(&self, new: &Slot) -> Result<(), Errno> {
        let mut others = self.slots.iter().filter(|slot| slot.id != new.id);
        match others.any(|slot| slot.guest.intersect(new.guest).is_some()) {
            true => Err(Errno::EEXIST),
            false => Ok(()),
        }
    }
}
