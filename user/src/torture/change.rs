//! The changes made to a slot, each published before it begins and after it is done.

use std::io;

use super::mark::{CONTENT_WORD, Mark, Sort, TAIL_WORD};
use super::probe::{self, Length};
use super::rule::Effect;
use super::slot::{self, SlotGuard, check};
use super::state::Condition;
use crate::region::PAGE_BYTES;

/// One change of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Map zero pages where there are none.
    Map,
    /// Write new content.
    Fill,
    /// Take away the right to write.
    Freeze,
    /// Take away every right.
    Close,
    /// Give all rights back.
    Open,
    /// Discard the content.
    Discard,
    /// Unmap.
    Unmap,
    /// Map zero pages over what is there.
    Replace,
}

impl Change {
    /// The changes that make sense in `condition`.
    pub fn choices(condition: Condition) -> &'static [Self] {
        use Change::{Close, Discard, Fill, Freeze, Map, Open, Replace, Unmap};
        match condition {
            Condition::Absent => &[Map],
            Condition::Zero => &[Fill, Fill, Fill, Discard, Unmap],
            Condition::Live => &[Fill, Freeze, Close, Discard, Discard, Unmap, Unmap, Replace],
            Condition::ReadOnly => &[Open, Open, Close, Unmap, Replace],
            Condition::NoAccess => &[Open, Open, Freeze, Unmap, Replace],
        }
    }

    /// The condition that this change leads to.
    pub fn target(self) -> Condition {
        match self {
            Self::Map | Self::Discard | Self::Replace => Condition::Zero,
            Self::Fill | Self::Open => Condition::Live,
            Self::Freeze => Condition::ReadOnly,
            Self::Close => Condition::NoAccess,
            Self::Unmap => Condition::Absent,
        }
    }

    /// Whether what was there before must never be seen again.
    fn ends_content(self) -> bool {
        matches!(
            self,
            Self::Map | Self::Discard | Self::Unmap | Self::Replace
        )
    }
}

impl SlotGuard<'_> {
    /// Makes `change`, publishing its begin and its end.
    ///
    /// An error is a system call that failed although it must not; the slot is of no use then.
    pub fn change(&mut self, change: Change) -> io::Result<()> {
        let slot = self.slot();
        let changing = slot.state().begin(change.target());
        slot.publish(changing);
        match change {
            Change::Fill => self.fill(changing.sequence)?,
            Change::Map | Change::Replace => self.map()?,
            Change::Freeze => self.protect(libc::PROT_READ)?,
            Change::Close => self.protect(libc::PROT_NONE)?,
            Change::Open => self.protect(libc::PROT_READ | libc::PROT_WRITE)?,
            Change::Discard => {
                // SAFETY: the range is this slot's, where no Rust object is.
                let status =
                    unsafe { libc::madvise(self.start(), self.bytes(), libc::MADV_DONTNEED) };
                check("madvise", status)?;
            }
            Change::Unmap => {
                // SAFETY: as above.
                let status = unsafe { libc::munmap(self.start(), self.bytes()) };
                check("munmap", status)?;
            }
        }
        if change == Change::Fill || change.ends_content() {
            slot.promise.raise_floor(changing.sequence);
        }
        slot.publish(changing.finish());
        Ok(())
    }

    /// What is in the last two words of `page`, of which only the very last is ever written.
    ///
    /// Returns the words found and the last one expected; nobody but the holder of the slot
    /// writes there, so they must be exact. `None` where a load faults now.
    pub fn tail(&self, page: usize) -> Option<(u64, u64, u64)> {
        let slot = self.slot();
        // SAFETY: as in `Slot::load`; the two words are in one page.
        let (window, effect) =
            unsafe { probe::load(&slot.promise, slot.word(page, TAIL_WORD - 1), Length::Short) };
        let Effect::Loaded { content, scribble } = effect else {
            return None;
        };
        let expected = match window.after.to.shows_content() {
            true => self.content(page, window.floor),
            false => 0,
        };
        Some((content, scribble, expected))
    }

    fn content(&self, page: usize, version: u32) -> u64 {
        Mark::new(Sort::Content, self.number(), page, version).to_word()
    }

    fn fill(&self, version: u32) -> io::Result<()> {
        for page in 0..self.slot().pages() {
            for word in [CONTENT_WORD, TAIL_WORD] {
                let address = self.slot().word(page, word);
                let value = self.content(page, version);
                // SAFETY: as in `Slot::load`.
                let (_, effect) =
                    unsafe { probe::store(&self.slot().promise, address, value, Length::Short) };
                if effect != Effect::Stored {
                    let what = format!("write to mapped {address:#x} faulted");
                    return Err(io::Error::other(what));
                }
            }
        }
        Ok(())
    }

    fn map(&self) -> io::Result<()> {
        slot::map_at(self.slot().base(), self.slot().pages())
    }

    fn protect(&self, protection: i32) -> io::Result<()> {
        // SAFETY: the range is this slot's, where no Rust object is.
        let status = unsafe { libc::mprotect(self.start(), self.bytes(), protection) };
        check("mprotect", status)
    }

    fn start(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.slot().base())
    }

    fn bytes(&self) -> usize {
        self.slot().pages() * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{self, Verdict};
    use super::super::slot::{HISTORY, Slot};
    use super::*;

    #[test]
    fn every_change_leads_somewhere_from_every_condition() {
        for condition in Condition::ALL {
            assert!(!Change::choices(condition).is_empty());
        }
        assert_eq!(Change::Map.target(), Condition::Zero);
    }

    #[test]
    fn a_life_of_a_slot_is_judged_exact() {
        probe::catch_faults().unwrap();
        let slots = Slot::all();
        let slot = &slots[2];
        let mut guard = slot.take().unwrap();
        assert!(slot.take().is_none());
        assert!(slot.take().is_none(), "a refused attempt released the slot");
        use Change::*;
        for change in [
            Map, Fill, Freeze, Open, Close, Freeze, Open, Discard, Fill, Replace, Unmap,
        ] {
            guard.change(change).unwrap();
            for page in 0..slot.pages() {
                let accesses = [Slot::load, Slot::scribble];
                for seen in accesses.map(|access| access(slot, page, Length::Short)) {
                    let verdict = rule::judge(slot.place(page), seen);
                    assert_eq!(verdict, Verdict::Exact, "after {change:?}: {seen:?}");
                }
                if let Some((zero, last, expected)) = guard.tail(page) {
                    assert_eq!((zero, last), (0, expected));
                }
            }
        }
        assert_eq!(slot.history().len(), HISTORY);
    }

    #[test]
    fn a_change_that_is_only_claimed_is_a_violation() {
        probe::catch_faults().unwrap();
        let slots = Slot::all();
        let slot = &slots[4];
        let mut guard = slot.take().unwrap();
        use Change::{Close, Discard, Fill, Freeze, Map, Replace, Unmap};
        for (claimed, by_load, by_store) in [
            (Unmap, Verdict::StaleLoad, Verdict::StaleStore),
            (Close, Verdict::StaleLoad, Verdict::StaleStore),
            (Freeze, Verdict::Exact, Verdict::StaleStore),
            (Discard, Verdict::StaleLoad, Verdict::Exact),
            (Replace, Verdict::StaleLoad, Verdict::Exact),
        ] {
            for change in [Map, Fill] {
                guard.change(change).unwrap();
            }
            let changing = slot.state().begin(claimed.target());
            slot.publish(changing);
            if claimed.ends_content() {
                slot.promise.raise_floor(changing.sequence);
            }
            slot.publish(changing.finish());
            let verdict = rule::judge(slot.place(7), slot.load(7, Length::Short));
            assert_eq!(verdict, by_load, "{claimed:?}");
            let verdict = rule::judge(slot.place(7), slot.scribble(7, Length::Short));
            assert_eq!(verdict, by_store, "{claimed:?}");
            // Back to a state where mapping is a legal change.
            slot.publish(slot.state().begin(Condition::Absent));
            slot.publish(slot.state().finish());
        }
    }
}
