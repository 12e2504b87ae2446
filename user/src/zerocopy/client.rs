//! [`Calls`]: what each client thread does, and what it expects of the server's copy.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::device::{Lending, Service};
use crate::clock::{self, narrow};
use crate::course::Sample;
use crate::course::crew::Work;
use crate::region::{PAGE_BYTES, PAGE_WORDS, Region};

/// Buffers of each thread, lent in turn: a translation that was kept leads to another one's pages, or to older words.
const BUFFERS: usize = 8;
/// In the number of an operation: all words count, not one of each page.
const WHOLE: u64 = 1 << 63;

/// Calls of a service.
#[derive(Debug)]
pub struct Calls<'a> {
    /// Whose.
    pub service: &'a Service,
    /// Pages in each call.
    pub pages: usize,
    /// Whether every word is looked at.
    pub is_check: bool,
    /// Copies that were not what the client had written.
    pub wrong: &'a AtomicU64,
}

/// What a client thread has of its own.
#[derive(Debug)]
pub struct Seat {
    buffers: Region,
    turn: u64,
    /// Different for every thread.
    salt: u64,
}

impl Work for Calls<'_> {
    type Seat = Seat;

    fn seat(&self, index: usize, _: u64) -> io::Result<Seat> {
        let buffers = Region::new(BUFFERS * self.pages)?;
        for page in 0..buffers.pages() {
            buffers.word(page, 0).store(1, Relaxed);
        }
        let salt = (index as u64 + 1) << 40;
        Ok(Seat {
            buffers,
            turn: 0,
            salt,
        })
    }

    fn operate(&self, seat: &mut Seat) -> io::Result<Sample> {
        let begun = clock::ticks();
        seat.turn += 1;
        let first = seat.turn as usize % BUFFERS * self.pages;
        let slot = seat.turn as usize % PAGE_WORDS;
        for page in 0..self.pages {
            let word = seat.salt + (seat.turn << 8) + page as u64;
            seat.buffers.word(first + page, slot).store(word, Relaxed);
        }
        let op = slot as u64 | if self.is_check { WHOLE } else { 0 };
        let expected = seat.answer(op, first..first + self.pages);
        let written = clock::ticks();
        let buffer: *mut u64 = seat.buffers.word(first, 0).as_ptr();
        // SAFETY: 1. it is only read.
        let answer = unsafe {
            self.service
                .call(buffer.cast(), self.pages * PAGE_BYTES, op, Lending::Reading)
        }?;
        let answered = clock::ticks();
        if answer != expected {
            self.wrong.fetch_add(1, Relaxed);
        }
        Ok(Sample {
            whole: narrow(answered.wrapping_sub(begun)),
            call: narrow(answered.wrapping_sub(written)),
        })
    }
}

impl Seat {
    /// What a true copy of these pages is answered with.
    fn answer(&self, op: u64, pages: std::ops::Range<usize>) -> i64 {
        let page = |page| {
            let words: [u64; PAGE_WORDS] =
                std::array::from_fn(|word| self.buffers.word(page, word).load(Relaxed));
            answer(op, &words)
        };
        let slot = op as usize % PAGE_WORDS;
        match op & WHOLE {
            0 => pages
                .map(|page| self.buffers.word(page, slot).load(Relaxed) as i64)
                .fold(0, i64::wrapping_add),
            _ => pages.map(page).fold(0, i64::wrapping_add),
        }
    }
}

/// What the server answers, from its copy: the sum of one word of each page, or of all words.
pub fn answer(op: u64, copy: &[u64]) -> i64 {
    let step = if op & WHOLE == 0 { PAGE_WORDS } else { 1 };
    let first = if op & WHOLE == 0 {
        op as usize % PAGE_WORDS
    } else {
        0
    };
    let words = copy.iter().skip(first).step_by(step);
    words.fold(0, |sum: i64, &word| sum.wrapping_add(word as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_of_one_word_a_page_or_of_all() {
        let mut copy = vec![1; 2 * PAGE_WORDS];
        (copy[5], copy[PAGE_WORDS + 5]) = (10, 20);
        assert_eq!(answer(5, &copy), 30);
        assert_eq!(answer(6, &copy), 2);
        assert_eq!(answer(5 | WHOLE, &copy), 2 * PAGE_WORDS as i64 + 28);
    }

    #[test]
    fn a_client_expects_what_a_true_copy_is_answered_with() {
        let buffers = Region::new(2).unwrap();
        for page in 0..2 {
            for word in 0..PAGE_WORDS {
                let value = (page * 1000 + word) as u64;
                buffers.word(page, word).store(value, Relaxed);
            }
        }
        let copy: Vec<u64> = (0..2 * PAGE_WORDS)
            .map(|at| buffers.word(at / PAGE_WORDS, at % PAGE_WORDS).load(Relaxed))
            .collect();
        let seat = Seat {
            buffers,
            turn: 0,
            salt: 0,
        };
        for op in [0, 7, 511, WHOLE, 9 | WHOLE] {
            assert_eq!(seat.answer(op, 0..2), answer(op, &copy), "{op:#x}");
        }
    }
}
