//! Random programs, whose every outcome is to be the same on the reference kernel as on Linux.
//!
//! A program maps, changes, resizes and moves memory of every kind around borders between page tables, accesses it with and without the
//! right to, lets the kernel access it, forks and starts programs. What it sees of each step goes to its record: what a
//! call returned, which signal came and where, and what all its memory holds. No model says what is right: Linux does.

mod arena;
mod descriptors;
mod fresh;
mod steps;

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use fastrand::Rng;

use crate::child::Child;
use crate::fault;
use crate::region::Region;
use crate::report;
use arena::Digest;
use descriptors::Descriptors;

pub use fresh::{FRESH, show as show_fresh};

/// Steps of a program until it forks, ends, or starts another.
const STEPS: usize = 24;
/// Children of children there are, no more.
const GENERATIONS: usize = 2;

/// Words of the page that all processes of a program share.
const RECORD: usize = 0;
const TURN: usize = 1;

/// What a program has seen.
#[derive(Debug)]
struct Record {
    shared: Region,
    shows_steps: bool,
}

impl Record {
    fn add(&self, text: &str) {
        let word = self.shared.word(0, RECORD);
        let mut digest = Digest(word.load(Relaxed));
        digest.bytes(text.as_bytes());
        word.store(digest.0, Relaxed);
        if self.shows_steps {
            report::say(text);
        }
    }
}

/// A process of a program.
struct Process<'a> {
    random: Rng,
    descriptors: &'a Descriptors,
    record: &'a Record,
    generation: usize,
}

/// Runs the program of a seed in a process of its own; the digest of its record.
///
/// # Errors
/// A call that no program may fail at: the record says no more than so far.
pub fn run(seed: u64, shows_steps: bool) -> io::Result<u64> {
    let record = Record {
        shared: Region::shared(1)?,
        shows_steps,
    };
    let word = record.shared.word(0, RECORD);
    word.store(Digest::default().0, Relaxed);
    let child = Child::start(|| {
        let done = Descriptors::new(seed % 2 == 1).and_then(|descriptors| {
            fault::handle()?;
            let mut process = Process {
                random: Rng::with_seed(seed),
                descriptors: &descriptors,
                record: &record,
                generation: 0,
            };
            record.add(&steps::begin(&mut process.random, &descriptors));
            process.live()
        });
        ended(done)
    })?;
    let end = child.wait()?;
    record.add(&format!("{end:?}"));
    Ok(word.load(Relaxed))
}

fn ended(done: io::Result<()>) -> i32 {
    match done {
        Ok(()) => 0,
        Err(error) => {
            report::say(&format!("differential: {error}"));
            1
        }
    }
}

impl Process<'_> {
    fn live(&mut self) -> io::Result<()> {
        for _ in 0..3 {
            self.steps()?;
            match self.random.u8(..3) {
                0 | 1 if self.generation < GENERATIONS => self.fork()?,
                2 => {
                    let text = fresh::start(&mut self.random)?;
                    self.record.add(&text);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn steps(&mut self) -> io::Result<()> {
        for step in 0..STEPS {
            let text = steps::make(&mut self.random, self.descriptors)?;
            let seen = arena::contents(self.descriptors)?;
            let generation = self.generation;
            self.record
                .add(&format!("{generation}.{step} {text} [{seen}]"));
        }
        Ok(())
    }

    /// A child lives before the parent goes on, or only after it has made steps: each must keep what it had.
    fn fork(&mut self) -> io::Result<()> {
        let seed = self.random.u64(..);
        let is_parent_first = self.random.bool();
        let turn = self.record.shared.word(0, TURN);
        let mine = turn.load(Relaxed);
        let mut child = Process {
            random: Rng::with_seed(seed),
            generation: self.generation + 1,
            ..*self
        };
        let forked = Child::start(|| {
            while is_parent_first && turn.load(Relaxed) == mine {
                thread::yield_now();
            }
            ended(child.live())
        })?;
        if is_parent_first {
            let done = self.steps();
            turn.store(mine + 1, Relaxed);
            done?;
        }
        let end = forked.wait()?;
        self.record.add(&format!("forked: {end:?}"));
        self.steps()
    }
}
