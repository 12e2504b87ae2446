//! Copying machines while they run: rounds that read the log, clear it piece by piece, and send what it had.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::crew::Crew;
use super::vcpu::Tally;
use super::vm::{Vm, WORD_PAGES};
use crate::clock;
use crate::region::Region;

/// A machine and its copy.
#[derive(Debug)]
pub struct Copied {
    vm: Vm,
    copy: Region,
}

/// How machines are evacuated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manner {
    /// Pages whose bits are cleared by one call: whole words of the log.
    pub piece: usize,
    /// Rounds at most while machines run.
    pub most_rounds: usize,
    /// A round that finds so few pages in all machines is the last but one.
    pub enough: u64,
}

/// What an evacuation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Pages that the log had.
    pub pages: u64,
    /// Calls that cleared.
    pub clears: u64,
    /// Rounds, with the last one.
    pub rounds: u64,
    /// Until the copy was complete.
    pub ticks: u64,
    /// Of these, in calls that read or clear the log.
    pub log_ticks: u64,
    /// Of these, while virtual CPUs were stopped at the end.
    pub stop_ticks: u64,
    /// What guests did.
    pub guests: Tally,
}

impl Copied {
    /// The machine, and an empty copy.
    pub fn new(vm: Vm) -> io::Result<Self> {
        let copy = Region::new(vm.memory().pages())?;
        Ok(Self { vm, copy })
    }

    /// Sends all of it, whatever the log has.
    fn send_all(&self) {
        (0..self.copy.pages()).for_each(|page| self.send(page));
    }

    fn send(&self, page: usize) {
        let words = self.vm.memory().page(page).iter();
        for (to, from) in self.copy.page(page).iter().zip(words) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// One round; the pages it has sent.
    fn round(&self, manner: Manner, evacuation: &mut Evacuation) -> io::Result<u64> {
        let begun = clock::ticks();
        let mut log = self.vm.dirty_log()?;
        evacuation.log_ticks += clock::ticks().wrapping_sub(begun);
        let mut sent = 0;
        let piece_words = manner.piece / WORD_PAGES;
        for (index, piece) in log.chunks_mut(piece_words).enumerate() {
            let first = index * piece_words;
            if piece.iter().all(|&word| word == 0) {
                continue;
            }
            let begun = clock::ticks();
            self.vm.clear(first, piece)?;
            evacuation.log_ticks += clock::ticks().wrapping_sub(begun);
            evacuation.clears += 1;
            // Not before: what is written from now on is in the next round's log.
            for page in pages_of(first, piece) {
                self.send(page);
                sent += 1;
            }
        }
        Ok(sent)
    }

    /// Pages of which the copy is not what the memory has. No virtual CPU runs.
    fn different_pages(&self) -> u64 {
        let is_different = |page: &usize| {
            let mut words = self
                .vm
                .memory()
                .page(*page)
                .iter()
                .zip(self.copy.page(*page));
            words.any(|(one, other)| one.load(Relaxed) != other.load(Relaxed))
        };
        (0..self.copy.pages()).filter(is_different).count() as u64
    }
}

/// Evacuates all machines of the crew, which is stopped, and compares; how, and how many pages are wrong.
pub fn evacuate(machines: &[Copied], crew: &Crew, manner: Manner) -> io::Result<(Evacuation, u64)> {
    let mut evacuation = Evacuation::default();
    crew.run();
    let begun = clock::ticks();
    machines.iter().for_each(Copied::send_all);
    for round in 1..=manner.most_rounds {
        let sent = round_of_all(machines, manner, &mut evacuation)?;
        if sent <= manner.enough && round > 1 {
            break;
        }
    }
    let stopping = clock::ticks();
    evacuation.guests = crew.stop()?;
    round_of_all(machines, manner, &mut evacuation)?;
    let ended = clock::ticks();
    evacuation.ticks = ended.wrapping_sub(begun);
    evacuation.stop_ticks = ended.wrapping_sub(stopping);
    let lost: u64 = machines.iter().map(Copied::different_pages).sum();
    Ok((evacuation, lost + evacuation.guests.wrong))
}

fn round_of_all(
    machines: &[Copied],
    manner: Manner,
    evacuation: &mut Evacuation,
) -> io::Result<u64> {
    let mut sent = 0;
    for machine in machines {
        sent += machine.round(manner, evacuation)?;
    }
    evacuation.rounds += 1;
    evacuation.pages += sent;
    Ok(sent)
}

/// Pages whose bits are set in words of a log, the first of which has the number `first`.
fn pages_of(first: usize, words: &[u64]) -> impl Iterator<Item = usize> {
    let bits = |word: u64| (0..WORD_PAGES).filter(move |bit| word >> bit & 1 != 0);
    let words = words.iter().enumerate();
    words.flat_map(move |(index, &word)| {
        bits(word).map(move |bit| (first + index) * WORD_PAGES + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_the_set_bits_of_words_from_their_place_on() {
        let pages: Vec<usize> = pages_of(2, &[1 | 1 << 63, 0, 1 << 5]).collect();
        assert_eq!(pages, [128, 191, 261]);
    }
}
