//! CPUs that leave and come back while the workers work.
//!
//! One more thread goes through all CPUs but those without a switch (CPU 0), takes each offline, lets the others work
//! without it for a moment, and brings it back. Workers that are pinned to a CPU that has left are moved by the kernel, and
//! those that want to move to it stay where they are.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::board::Board;
use crate::hotplug;

/// A CPU stays as it is for this long at most.
const PAUSE_US: std::ops::Range<u64> = 0..3_000;

/// Which CPUs can leave.
#[derive(Debug)]
pub struct Churn {
    switches: Vec<PathBuf>,
    random: fastrand::Rng,
}

impl Churn {
    /// All of `cpus` that have a switch.
    ///
    /// # Errors
    /// There is none.
    pub fn new(cpus: &[usize], seed: u64) -> io::Result<Self> {
        let leaving = hotplug::leaving(cpus)?;
        Ok(Self {
            switches: leaving.into_iter().map(hotplug::switch).collect(),
            random: fastrand::Rng::with_seed(seed),
        })
    }

    /// Takes CPUs offline and brings them back until the board says stop, and counts how often each has left. All are
    /// online afterwards.
    pub fn run(mut self, board: &Board, rounds: &AtomicU64) {
        while !board.stopped() {
            for at in 0..self.switches.len() {
                if let Err(error) = self.round(at) {
                    let path = self.switches[at].display();
                    board.fail(format!("{path}: {error}"));
                }
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn round(&mut self, at: usize) -> io::Result<()> {
        self.turn(at, "0")?;
        self.pause();
        self.turn(at, "1")?;
        self.pause();
        Ok(())
    }

    /// Writes the word, and reads it back.
    fn turn(&self, at: usize, word: &str) -> io::Result<()> {
        let path = &self.switches[at];
        std::fs::write(path, word)?;
        let now = std::fs::read_to_string(path)?;
        match now.trim() == word {
            true => Ok(()),
            false => Err(io::Error::other(format!("reads {now:?} after {word:?}"))),
        }
    }

    fn pause(&mut self) {
        thread::sleep(Duration::from_micros(self.random.u64(PAUSE_US)));
    }
}
