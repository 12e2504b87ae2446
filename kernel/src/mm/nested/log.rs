//! The log of pages that a guest has written to.
//!
//! A page is put down as dirty when its guest gets the right to write to it. A reader that takes the page down as clean takes that right away, and returns
//! when no virtual CPU has it any more: one flush for all pages of a request. That flush is also made where no entry had the right: the reader that took
//! it away before (an `mprotect`, a fork) may still be waiting for its own.

use super::machine::GuestMemory;
use super::slot::{Slot, WORD_PAGES, no_bits};
use super::state::State;
use crate::errno::Errno;
use crate::mm::invalidate::GuestPending;
use alloc::vec::Vec;

/// Words of a log that are looked at with interrupts off.
const PIECE_WORDS: usize = 64;

/// A part of a slot's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The slot's number.
    pub slot: u32,
    /// Its first page.
    pub first: u64,
    /// How many pages.
    pub pages: u64,
}

impl GuestMemory {
    /// Gives the pages of a slot that are dirty to `take`, a bit each, whole words. When it has them they count as clean if `clears`, and on return no
    /// virtual CPU can write to them unnoticed any more. `take` may access user memory, and is called under no lock but that of requests.
    ///
    /// What is written between `take` and the flush is in a page that `take` was told of: whoever copies pages after the return has it.
    ///
    /// # Errors
    /// ENOENT without such a slot or a log of it; ENOMEM; as `take`. Nothing is cleared then.
    pub fn read_log<R>(
        &self,
        slot: u32,
        clears: bool,
        take: impl FnOnce(&[u64]) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let turn = self.nested.requests.lock();
        // Slots stay as they are as long as it is this one's turn.
        let dirty = self.dirty(slot)?;
        let taken = take(&dirty)?;
        if clears {
            self.clean(slot, 0, &dirty);
        }
        drop(turn);
        Ok(taken)
    }

    /// Those pages of `range` whose bits `fill` sets count as clean from now on. It gets all words of the range, may access user memory, and
    /// is called once, under no lock but that of requests. Returns when no virtual CPU can write to them unnoticed any more.
    ///
    /// # Errors
    /// ENOENT without such a slot or a log of it; EINVAL for a range that does not consist of whole words; ENOMEM; as `fill`. Nothing is cleared then.
    pub fn clear_log(
        &self,
        range: LogRange,
        fill: impl FnOnce(&mut [u64]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let turn = self.nested.requests.lock();
        // Slots stay as they are as long as it is this one's turn.
        let first = (self.nested.state.lock())
            .logged(range.slot)?
            .first_word(range)?;
        let mut bits = no_bits(range.pages as usize)?;
        fill(&mut bits)?;
        self.clean(range.slot, first, &bits);
        drop(turn);
        Ok(())
    }

    /// Takes pages down as clean, and the right to write to them away. Returns when no virtual CPU has it any more. It is the caller's turn.
    fn clean(&self, slot: u32, first: usize, bits: &[u64]) {
        // Before anything is taken away: who finds it gone waits as well.
        let noted = self.nested.in_flight.clone();
        let mut is_any = false;
        for (piece, bits) in bits.chunks(PIECE_WORDS).enumerate() {
            let first = first + piece * PIECE_WORDS;
            is_any |= self.nested.state.lock().clean(slot, first, bits);
        }
        if is_any {
            let pending = GuestPending::submit_cleaned(&self.nested.engine, &noted);
            pending.into_iter().for_each(GuestPending::finish);
        }
    }

    /// The pages that are dirty. It is the caller's turn.
    fn dirty(&self, id: u32) -> Result<Vec<u64>, Errno> {
        let state = &self.nested.state;
        let pages = state.lock().logged(id)?.pages();
        let mut dirty = no_bits(pages)?;
        for (piece, to) in dirty.chunks_mut(PIECE_WORDS).enumerate() {
            if let Some(log) = &state.lock().logged(id)?.log {
                to.copy_from_slice(&log.bits[piece * PIECE_WORDS..][..to.len()]);
            }
        }
        Ok(dirty)
    }
}

impl State {
    /// Takes pages down as clean, and the right to write to them away; whether any was dirty.
    fn clean(&mut self, id: u32, first: usize, bits: &[u64]) -> bool {
        let Self { slots, table } = self;
        let Some(slot) = slots.iter_mut().find(|known| known.id == id) else {
            return false;
        };
        let mut is_any = false;
        for (word, &wanted) in (first..).zip(bits) {
            let mut rest = slot.take_dirty(word, wanted);
            is_any |= rest != 0;
            while rest != 0 {
                let page = word * WORD_PAGES + rest.trailing_zeros() as usize;
                table.protect(slot.guest_of(page));
                rest &= rest - 1;
            }
        }
        is_any
    }

    fn logged(&mut self, id: u32) -> Result<&mut Slot, Errno> {
        let slot = self.slot_mut(id).filter(|slot| slot.log.is_some());
        slot.ok_or(Errno::ENOENT)
    }
}

impl Slot {
    /// The first word of the range, which consists of whole words but at the end of the slot.
    fn first_word(&self, range: LogRange) -> Result<usize, Errno> {
        let (first, pages) = (range.first as usize, range.pages as usize);
        let end = first.checked_add(pages).ok_or(Errno::EINVAL)?;
        let is_whole = first.is_multiple_of(WORD_PAGES)
            && (pages.is_multiple_of(WORD_PAGES) || end == self.pages());
        match is_whole && end <= self.pages() {
            true => Ok(first / WORD_PAGES),
            false => Err(Errno::EINVAL),
        }
    }

    /// Those of the bits `wanted` of a word that were set, which they are no more.
    fn take_dirty(&mut self, word: usize, wanted: u64) -> u64 {
        let bits = self.log.as_mut().and_then(|log| log.bits.get_mut(word));
        bits.map_or(0, |bits| {
            let taken = *bits & wanted;
            *bits &= !wanted;
            taken
        })
    }
}
