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

    /// Adds, changes or removes a slot, as Linux's `KVM_SET_USER_MEMORY_REGION`. The pages of a new log are all dirty if `all_dirty`.
    ///
    /// # Errors
    /// EINVAL for what cannot be or cannot be changed, EEXIST where another slot is, ENOMEM; nothing is changed then.
    pub fn set(&mut self, wanted: &SlotRequest, all_dirty: bool) -> Result<Change, Errno> {
        if wanted.id as usize >= MOST_SLOTS {
            return Err(Errno::EINVAL);
        }
        let at = self.slots.iter().position(|slot| slot.id == wanted.id);
        match (at, wanted.bytes) {
            (None, 0) => Err(Errno::EINVAL),
            (Some(at), 0) => Ok(self.remove(at)),
            (None, _) => self.add(wanted, all_dirty),
            (Some(at), _) => self.change(at, wanted, all_dirty),
        }
    }

    fn add(&mut self, wanted: &SlotRequest, all_dirty: bool) -> Result<Change, Errno> {
        let mut slot = Slot::new(wanted)?;
        self.check_free(&slot)?;
        self.slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        if wanted.logs {
            slot.log = Some(Log::new(slot.pages(), all_dirty)?);
        }
        self.slots.push(slot);
        Ok(Change::Done)
    }

    /// A slot keeps its size and its place in the space; it may move, and have a log or not.
    fn change(
        &mut self,
        at: usize,
        wanted: &SlotRequest,
        all_dirty: bool,
    ) -> Result<Change, Errno> {
        let new = Slot::new(wanted)?;
        let old = &self.slots[at];
        let is_alike = new.user == old.user
            && new.pages() == old.pages()
            && new.is_read_only == old.is_read_only;
        if !is_alike {
            return Err(Errno::EINVAL);
        }
        if new.guest != old.guest {
            return self.relocate(at, new, wanted.logs, all_dirty);
        }
        match (wanted.logs, old.log.is_some()) {
            (true, false) => self.begin_log(at, all_dirty),
            (false, true) => {
                // Pages that are read-only for the log's sake gain a right at the next write.
                self.slots[at].log = None;
                Ok(Change::Done)
            }
            _ => Ok(Change::Done),
        }
    }

    fn relocate(
        &mut self,
        at: usize,
        mut new: Slot,
        logs: bool,
        all_dirty: bool,
    ) -> Result<Change, Errno> {
        self.check_free(&new)?;
        if logs {
            new.log = Some(Log::new(new.pages(), all_dirty)?);
        }
        let change = self.remove(at);
        self.slots.push(new);
        Ok(change)
    }

    /// From now on each page is noted at the first write to it.
    fn begin_log(&mut self, at: usize, all_dirty: bool) -> Result<Change, Errno> {
        let log = Log::new(self.slots[at].pages(), all_dirty)?;
        self.slots[at].log = Some(log);
        if all_dirty {
            return Ok(Change::Done);
        }
        self.table.protect_all(self.slots[at].guest);
        // Also where all of them were read-only already: the reader that made them so may still be waiting for the flush.
        Ok(Change::Flush(FrameChain::new()))
    }

    fn remove(&mut self, at: usize) -> Change {
        let gone = self.slots.swap_remove(at).guest;
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
