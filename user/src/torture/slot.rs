//! Pages that all workers share, and the changes made to them.
//!
//! All addresses are fixed, far from where either kernel puts mappings of its own choice: while a
//! slot is unmapped nothing else may appear there, or a probe would find it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::mark::{self, CONTENT_WORD, Mark, SCRIBBLE_WORD, Sort, TAIL_WORD};
use super::probe::{self, Length, Promise};
use super::rule::{Effect, Place, Window};
use super::state::{Condition, State};
use crate::region::PAGE_BYTES;

/// Where the first slot is.
const BASE: usize = 0x1000_0000_0000;
/// What one page-table page covers.
const TABLE_SPAN: usize = 2 << 20;
/// Slots side by side, in one page table: their changes split and join the same mappings.
const NEIGHBOURS: [usize; 7] = [1, 1, 2, 3, 8, 16, 40];
/// Slots with a page table each, so that unmapping one frees page tables as well.
const ISLANDS: [usize; 4] = [1, 2, 34, 64];
/// How many steps of a slot are remembered.
pub const HISTORY: usize = 8;

/// Where the private pages of worker `worker` are; a page table each.
pub fn private_base(worker: usize) -> usize {
    BASE + (1 + ISLANDS.len() + worker) * TABLE_SPAN
}

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

/// A run of pages at a fixed address.
#[derive(Debug)]
pub struct Slot {
    /// What it promises now.
    pub promise: Promise,
    /// The last steps, each at its sequence number modulo [`HISTORY`].
    history: [AtomicU64; HISTORY],
    taken: AtomicBool,
    number: usize,
    base: usize,
    pages: usize,
}

impl Slot {
    /// All slots, none of them mapped.
    pub fn all() -> Vec<Self> {
        let mut places = Vec::new();
        let mut base = BASE;
        for pages in NEIGHBOURS {
            places.push((base, pages));
            base += pages * PAGE_BYTES;
        }
        for (island, pages) in ISLANDS.into_iter().enumerate() {
            places.push((BASE + (1 + island) * TABLE_SPAN, pages));
        }
        let new = |(number, (base, pages))| Self {
            promise: Promise::new(State::ABSENT),
            history: Default::default(),
            taken: AtomicBool::new(false),
            number,
            base,
            pages,
        };
        places.into_iter().enumerate().map(new).collect()
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The state now.
    pub fn state(&self) -> State {
        self.promise.state()
    }

    /// The last steps, oldest first.
    pub fn history(&self) -> Vec<State> {
        let steps = self.history.iter().map(|word| word.load(Ordering::Relaxed));
        let mut steps: Vec<State> = steps
            .filter(|&bits| bits != 0)
            .map(State::from_bits)
            .collect();
        steps.sort_by_key(|state| state.sequence);
        steps
    }

    /// The right to change it, if nobody has that now.
    pub fn take(&self) -> Option<SlotGuard<'_>> {
        // ORDERING: Acquire pairs with the Release in `SlotGuard::drop`: the state is seen.
        let taken = self.taken.swap(true, Ordering::Acquire);
        // Lazily: a guard made and thrown away would release what somebody else holds.
        (!taken).then(|| SlotGuard { slot: self })
    }

    /// Loads the content and the trial word of `page`.
    pub fn load(&self, page: usize, length: Length) -> (Window, Effect) {
        // SAFETY: 1. slots' addresses are set apart for probes; 2. faults are caught before the
        // first worker starts.
        unsafe { probe::load(&self.promise, self.word(page, CONTENT_WORD), length) }
    }

    /// Makes a trial write to `page`.
    pub fn scribble(&self, page: usize, length: Length) -> (Window, Effect) {
        let version = self.state().sequence;
        let mark = Mark {
            sort: Sort::Scribble,
            owner: self.number,
            page,
            version,
        };
        let address = self.word(page, SCRIBBLE_WORD);
        // SAFETY: as in `load`.
        unsafe { probe::store(&self.promise, address, mark.to_word(), length) }
    }

    /// The place of `page`, for the judge.
    pub fn place(&self, page: usize) -> Place {
        Place {
            slot: self.number,
            page,
        }
    }

    fn word(&self, page: usize, word: usize) -> usize {
        assert!(
            page < self.pages,
            "slot {} has {} pages",
            self.number,
            self.pages
        );
        self.base + page * PAGE_BYTES + word * size_of::<u64>()
    }
}

/// The right to change a slot.
#[derive(Debug)]
pub struct SlotGuard<'a> {
    slot: &'a Slot,
}

impl SlotGuard<'_> {
    /// The slot.
    pub fn slot(&self) -> &Slot {
        self.slot
    }

    /// The slot's number.
    pub fn number(&self) -> usize {
        self.slot.number
    }

    /// Makes `change`, publishing its begin and its end.
    ///
    /// An error is a system call that failed although it must not; the slot is of no use then.
    pub fn change(&mut self, change: Change) -> io::Result<()> {
        let slot = self.slot;
        let changing = slot.state().begin(change.target());
        self.publish(changing);
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
        self.publish(changing.finish());
        Ok(())
    }

    /// What is in the last two words of `page`, of which only the very last is ever written.
    ///
    /// Returns the words found and the last one expected; nobody but the holder of the slot
    /// writes there, so they must be exact. `None` where a load faults now.
    pub fn tail(&self, page: usize) -> Option<(u64, u64, u64)> {
        let slot = self.slot;
        // SAFETY: as in `Slot::load`; the two words are in one page.
        let (window, effect) =
            unsafe { probe::load(&slot.promise, slot.word(page, TAIL_WORD - 1), Length::Short) };
        let Effect::Loaded { content, scribble } = effect else {
            return None;
        };
        let expected = if window.after.to.shows_content() {
            self.content(page, window.floor)
        } else {
            0
        };
        Some((content, scribble, expected))
    }

    fn content(&self, page: usize, version: u32) -> u64 {
        Mark {
            sort: Sort::Content,
            owner: self.slot.number,
            page,
            version,
        }
        .to_word()
    }

    fn fill(&self, version: u32) -> io::Result<()> {
        for page in 0..self.slot.pages {
            for word in [CONTENT_WORD, TAIL_WORD] {
                let address = self.slot.word(page, word);
                let value = self.content(page, version);
                // SAFETY: as in `Slot::load`.
                let (_, effect) =
                    unsafe { probe::store(&self.slot.promise, address, value, Length::Short) };
                if effect != Effect::Stored {
                    return Err(io::Error::other(format!(
                        "write to mapped {address:#x} faulted"
                    )));
                }
            }
        }
        Ok(())
    }

    fn map(&self) -> io::Result<()> {
        map_at(self.slot.base, self.slot.pages)
    }

    fn protect(&self, protection: i32) -> io::Result<()> {
        // SAFETY: the range is this slot's, where no Rust object is.
        let status = unsafe { libc::mprotect(self.start(), self.bytes(), protection) };
        check("mprotect", status)
    }

    fn publish(&self, state: State) {
        let slot = self.slot;
        let step = &slot.history[state.sequence as usize % HISTORY];
        step.store(state.to_bits(), Ordering::Relaxed);
        slot.promise.set_state(state);
    }

    fn start(&self) -> *mut libc::c_void {
        std::ptr::with_exposed_provenance_mut(self.slot.base)
    }

    fn bytes(&self) -> usize {
        self.slot.pages * PAGE_BYTES
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: publishes the slot's state to the next holder; pairs with `Slot::take`.
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// Maps `pages` zero pages at `base`, over whatever is there; for this module's own addresses.
pub fn map_at(base: usize, pages: usize) -> io::Result<()> {
    assert!(
        base >= BASE && pages <= mark::MAX_PAGES,
        "not a torture address: {base:#x}"
    );
    let wanted = std::ptr::with_exposed_provenance_mut(base);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: this address range is set apart for slots and private pages (see the module), where
    // no Rust object is.
    let mapped = unsafe { libc::mmap(wanted, pages * PAGE_BYTES, protection, flags, -1, 0) };
    match mapped {
        libc::MAP_FAILED => check("mmap", -1),
        place if place == wanted => Ok(()),
        place => Err(io::Error::other(format!(
            "mmap gave {place:?} for fixed {wanted:?}"
        ))),
    }
}

fn check(call: &str, status: i32) -> io::Result<()> {
    if status == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "{call} failed: {}",
        io::Error::last_os_error()
    )))
}

#[cfg(test)]
mod tests {
    use super::super::rule::{self, Verdict};
    use super::*;

    #[test]
    fn every_change_leads_somewhere_from_every_condition() {
        for condition in Condition::ALL {
            assert!(!Change::choices(condition).is_empty());
        }
        assert_eq!(Change::Map.target(), Condition::Zero);
    }

    #[test]
    fn places_do_not_overlap() {
        let slots = Slot::all();
        let ends: Vec<usize> = slots
            .iter()
            .map(|slot| slot.base + slot.pages * PAGE_BYTES)
            .collect();
        for (slot, end) in slots[1..].iter().zip(&ends) {
            assert!(slot.base >= *end);
        }
        assert!(private_base(0) >= *ends.last().unwrap());
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
                let (window, effect) = slot.load(page, Length::Short);
                let verdict = rule::judge(slot.place(page), window, effect);
                assert_eq!(verdict, Verdict::Exact, "load after {change:?}: {effect:?}");
                let (window, effect) = slot.scribble(page, Length::Short);
                let verdict = rule::judge(slot.place(page), window, effect);
                assert_eq!(
                    verdict,
                    Verdict::Exact,
                    "store after {change:?}: {effect:?}"
                );
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
            guard.publish(changing);
            if claimed.ends_content() {
                slot.promise.raise_floor(changing.sequence);
            }
            guard.publish(changing.finish());
            let (window, effect) = slot.load(7, Length::Short);
            assert_eq!(
                rule::judge(slot.place(7), window, effect),
                by_load,
                "{claimed:?}"
            );
            let (window, effect) = slot.scribble(7, Length::Short);
            assert_eq!(
                rule::judge(slot.place(7), window, effect),
                by_store,
                "{claimed:?}"
            );
            // Back to a state where mapping is a legal change.
            guard.publish(slot.state().begin(Condition::Absent));
            guard.publish(slot.state().finish());
        }
    }
}
