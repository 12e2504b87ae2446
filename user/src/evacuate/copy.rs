//! Copying machines while they run: rounds that read the log, clear it piece by piece, and send what it had.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::crew::Crew;
use super::vcpu::Tally;
use super::vm::{Vm, WORD_PAGES};
use crate::clock;
use crate::region::Region;

/// Between two looks at a log.
const PAUSE: Duration = Duration::from_micros(100);
/// A round waits no longer, so that a machine that gets no CPU delays the others only.
const PATIENCE: Duration = Duration::from_millis(20);

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
    /// Rounds while machines run.
    pub rounds: usize,
    /// Pages of a machine that a round waits for.
    pub batch: u32,
}

/// What an evacuation did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Evacuation {
    /// Pages that the log had.
    pub pages: u64,
    /// Calls that cleared.
    pub clears: u64,
    /// Until the copy was complete.
    pub ticks: u64,
    /// Of these, in calls that clear the log.
    pub clear_ticks: u64,
    /// Of these, while virtual CPUs were stopped at the end.
    pub stop_ticks: u64,
    /// What guests did.
    pub guests: Tally,
}

impl Evacuation {
    /// Adds another one.
    pub fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.clears += other.clears;
        self.ticks += other.ticks;
        self.clear_ticks += other.clear_ticks;
        self.stop_ticks += other.stop_ticks;
        self.guests.add(other.guests);
    }
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

    /// Waits until the log has enough for a round, and reads it.
    fn wait_for(&self, pages: u32) -> io::Result<Vec<u64>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let log = self.vm.dirty_log()?;
            let logged: u32 = log.iter().map(|word| word.count_ones()).sum();
            // Where a log is cleared as it is read, it must be sent whatever it has.
            if logged >= pages || !self.vm.clears_by_hand() || Instant::now() > until {
                return Ok(log);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Clears what `log` has, piece by piece, and sends each piece.
    fn send_logged(
        &self,
        log: &mut [u64],
        piece: usize,
        evacuation: &mut Evacuation,
    ) -> io::Result<()> {
        let piece_words = piece / WORD_PAGES;
        for (index, piece) in log.chunks_mut(piece_words).enumerate() {
            let first = index * piece_words;
            if piece.iter().all(|&word| word == 0) {
                continue;
            }
            let begun = clock::ticks();
            self.vm.clear(first, piece)?;
            evacuation.clear_ticks += clock::ticks().wrapping_sub(begun);
            evacuation.clears += 1;
            // Not before: what is written from now on is in the next round's log.
            for page in pages_of(first, piece) {
                self.send(page);
                evacuation.pages += 1;
            }
        }
        Ok(())
    }
}

/// Pages of which two memories differ; nobody writes to them.
fn different_pages(one: &Region, other: &Region) -> u64 {
    let is_different = |page: &usize| {
        let mut words = one.page(*page).iter().zip(other.page(*page));
        words.any(|(one, other)| one.load(Relaxed) != other.load(Relaxed))
    };
    (0..one.pages()).filter(is_different).count() as u64
}

/// Evacuates all machines of the crew, which is stopped, and compares; how, and how many pages are wrong.
pub fn evacuate(machines: &[Copied], crew: &Crew, manner: Manner) -> io::Result<(Evacuation, u64)> {
    let mut evacuation = Evacuation::default();
    crew.run();
    let begun = clock::ticks();
    machines.iter().for_each(Copied::send_all);
    for _ in 0..manner.rounds {
        round(machines, manner, manner.batch, &mut evacuation)?;
    }
    let stopping = clock::ticks();
    evacuation.guests = crew.stop()?;
    round(machines, manner, 0, &mut evacuation)?;
    let ended = clock::ticks();
    evacuation.ticks = ended.wrapping_sub(begun);
    evacuation.stop_ticks = ended.wrapping_sub(stopping);
    let lost = |machine: &Copied| different_pages(machine.vm.memory(), &machine.copy);
    let lost: u64 = machines.iter().map(lost).sum();
    Ok((evacuation, lost + evacuation.guests.wrong))
}

/// One round, each of whose machines has so many pages to send.
fn round(
    machines: &[Copied],
    manner: Manner,
    batch: u32,
    evacuation: &mut Evacuation,
) -> io::Result<()> {
    for machine in machines {
        let mut log = machine.wait_for(batch)?;
        machine.send_logged(&mut log, manner.piece, evacuation)?;
    }
    Ok(())
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

    #[test]
    fn a_byte_of_difference_makes_a_page_different() {
        let [one, other] = [0; 2].map(|_| Region::new(3).unwrap());
        assert_eq!(different_pages(&one, &other), 0);
        one.word(2, 511).store(1 << 56, Relaxed);
        one.word(0, 0).store(1, Relaxed);
        assert_eq!(different_pages(&one, &other), 2);
    }
}
