//! A thread that keeps interrupts off now and then, as the drivers of real machines do.
//!
//! Programs cannot do that by themselves; the reference kernel has a file for it. On kernels without that file there are no
//! keepers, and the rows say so.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;

use super::board::{Board, Tally};
use super::tail::Tail;
use crate::realtime;

/// Writing a number of nanoseconds keeps interrupts off on the writing CPU for so long.
const FILE: &str = "/proc/shootdown/irqoff";
/// Above the ordinary threads: an interrupt asks nobody. Below the thread that measures.
const PRIORITY: i32 = 20;

/// One keeper.
#[derive(Debug)]
pub struct Keeper {
    /// Which thread of the load it is.
    pub thread: usize,
    /// For how long interrupts are off.
    pub tail: Tail,
    /// For how long they are on in between, on average.
    pub gap: Duration,
    /// Seed of its choices.
    pub seed: u64,
}

/// Whether this kernel lets programs keep interrupts off.
pub fn is_possible() -> bool {
    open().is_ok()
}

fn open() -> io::Result<File> {
    OpenOptions::new().write(true).open(FILE)
}

impl Keeper {
    /// Works until the load is over.
    pub fn work(self, board: &Board) {
        if let Err(error) = self.keep(board) {
            board.fail(self.thread, &error);
        }
        // The run is void then; what is left is to obey the gate.
        while board.pass(self.thread) {
            std::thread::sleep(self.gap);
        }
    }

    fn keep(&self, board: &Board) -> io::Result<()> {
        let mut file = open()?;
        let mut random = fastrand::Rng::with_seed(self.seed);
        // A kernel without priorities lets it take its turn like all others.
        let _ignored = realtime::become_fifo(PRIORITY);
        while board.pass(self.thread) {
            realtime::sleep_for(exponential(self.gap, random.f64()))?;
            let ns = self.tail.draw(&mut random).as_nanos();
            write!(file, "{ns}")?;
            board.add(
                self.thread,
                Tally {
                    kept: 1,
                    ..Tally::default()
                },
            );
        }
        Ok(())
    }
}

/// The time to the next event of which there is one in `mean` on average.
fn exponential(mean: Duration, uniform: f64) -> Duration {
    mean.mul_f64(-(1.0 - uniform).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean() {
        let mean = Duration::from_millis(1);
        let mut random = fastrand::Rng::with_seed(1);
        let sum: Duration = (0..10_000).map(|_| exponential(mean, random.f64())).sum();
        assert!((9_500..=10_500).contains(&sum.as_millis()), "{sum:?}");
    }
}
