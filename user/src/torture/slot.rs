//! Pages that all workers share.
//!
//! All addresses are fixed, far from where either kernel puts mappings of its own choice: while a
//! slot is unmapped nothing else may appear there, or a probe would find it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::mark::{self, CONTENT_WORD, Mark, SCRIBBLE_WORD, Sort};
use super::probe::{self, Length};
use super::promise::Promise;
use super::rule::{Place, Seen};
use super::state::State;
use crate::machine;
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

    /// Its number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The address of its first page.
    pub fn base(&self) -> usize {
        self.base
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
        let steps = steps.filter(|&bits| bits != 0).map(State::from_bits);
        let mut steps: Vec<State> = steps.collect();
        steps.sort_by_key(|state| state.sequence);
        steps
    }

    /// The right to change it, if nobody has that now.
    pub fn take(&self) -> Option<SlotGuard<'_>> {
        // ORDERING: Acquire pairs with the Release of the guard's drop: the state is seen.
        let taken = self.taken.swap(true, Ordering::Acquire);
        // Lazily: a guard made and thrown away would release what somebody else holds.
        (!taken).then(|| SlotGuard { slot: self })
    }

    /// Publishes `state` and remembers it; for the holder of the right to change it.
    pub(super) fn publish(&self, state: State) {
        let step = &self.history[state.sequence as usize % HISTORY];
        step.store(state.to_bits(), Ordering::Relaxed);
        self.promise.set_state(state);
    }

    /// Loads the content and the trial word of `page`.
    pub fn load(&self, page: usize, length: Length) -> Seen {
        // SAFETY: 1. slots' addresses are set apart for probes; 2. faults are caught before the
        // first worker starts.
        unsafe { probe::load(&self.promise, self.word(page, CONTENT_WORD), length) }
    }

    /// Makes a trial write to `page`.
    pub fn scribble(&self, page: usize, length: Length) -> Seen {
        let version = self.state().sequence;
        let mark = Mark::new(Sort::Scribble, self.number, page, version);
        self.put(page, SCRIBBLE_WORD, mark.to_word(), length)
    }

    /// Writes any word of `page`; for a forked child, whose page is its own.
    pub fn store(&self, page: usize, word: usize, value: u64) -> Seen {
        self.put(page, word, value, Length::Short)
    }

    fn put(&self, page: usize, word: usize, value: u64, length: Length) -> Seen {
        let address = self.word(page, word);
        // SAFETY: as in `load`.
        unsafe { probe::store(&self.promise, address, value, length) }
    }

    /// The place of `page`, for the judge.
    pub fn place(&self, page: usize) -> Place {
        let slot = self.number;
        Place { slot, page }
    }

    /// The address of a word of `page`.
    pub(super) fn word(&self, page: usize, word: usize) -> usize {
        let (slot, pages) = (self.number, self.pages);
        assert!(page < pages, "slot {slot} has {pages} pages");
        self.base + page * PAGE_BYTES + word * size_of::<u64>()
    }
}

/// The right to change a slot, which nobody else has; it is released on drop.
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
        self.slot.number()
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        // ORDERING: publishes the state to the next holder; pairs with `take`.
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// Maps `pages` zero pages at `base`, over whatever is there; for this module's own addresses.
pub fn map_at(base: usize, pages: usize) -> io::Result<()> {
    let is_ours = base >= BASE && pages <= mark::MAX_PAGES;
    assert!(is_ours, "not a torture address: {base:#x}");
    let wanted = std::ptr::with_exposed_provenance_mut(base);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: this address range is set apart for slots and private pages (see the module), where
    // no Rust object is.
    let mapped = unsafe { libc::mmap(wanted, pages * PAGE_BYTES, protection, flags, -1, 0) };
    match mapped {
        libc::MAP_FAILED => check("mmap", -1),
        place if place == wanted => Ok(()),
        place => {
            let what = format!("mmap gave {place:?} for fixed {wanted:?}");
            Err(io::Error::other(what))
        }
    }
}

/// An error that names the failed `call`.
pub(super) fn check(call: &str, status: i32) -> io::Result<()> {
    machine::done(status).map_err(|error| io::Error::other(format!("{call} failed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap() {
        let slots = Slot::all();
        let starts = slots[1..].iter().map(|slot| slot.base);
        for (slot, next) in slots.iter().zip(starts.chain([private_base(0)])) {
            assert!(slot.base + slot.pages * PAGE_BYTES <= next);
        }
    }
}
