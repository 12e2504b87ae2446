//! No write to a file is lost: several threads and another process write stamps to its pages while one thread syncs them
//! in a loop.
//!
//! After each sync the stored copy must have at least every stamp that was announced before it began; when all writers
//! rest, a last sync must leave both copies equal in every byte. On kernels that show no stored copy, such as Linux, the
//! mapping and the file are compared instead.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

use shootdown_user::child::{Child, End};
use shootdown_user::policy::PolicySwitch;
use shootdown_user::region::{PAGE_BYTES, PAGE_WORDS, Region};
use shootdown_user::wanderer::Wanderer;
use shootdown_user::{checks, machine, memory_file};

/// Pages of the file.
const PAGES: usize = 24;
/// Threads that write, beside another process.
const THREADS: usize = 2;
const WRITERS: usize = THREADS + 1;
/// Who runs and rests in rounds: one more thread takes the pages out of the page table all the time, and one lets the
/// kernel write for it.
const RUNNERS: usize = WRITERS + 2;
/// The upper words of each page are written by the kernel, one after the other and each once: a system call need not
/// write a word in one step.
const KERNELS_FIRST: usize = PAGE_WORDS / 2;
const KERNELS_WORDS: usize = PAGES * (PAGE_WORDS - KERNELS_FIRST);
/// What it writes.
const KERNELS: u64 = u64::MAX;
/// Each round with the next one.
const POLICIES: [&str; 4] = ["best", "best+defer", "before", "published"];
/// Times that the writers run and rest, unless an argument says how often.
const ROUNDS: usize = 12;
/// Syncs while they run.
const SYNCS: usize = 30;
/// Where all share one CPU, each turn takes long.
const SYNCS_ON_ONE_CPU: usize = 3;

/// How long that thread leaves the others alone between two times.
const DISTURBANCE: Duration = Duration::from_micros(100);

/// Words of the page that all writers share: in which round they are, how many rest, and what each has announced.
const ROUND: usize = 0;
const RESTING: usize = 1;
const ANNOUNCED: usize = 2;
const KERNELS_ANNOUNCED: usize = ANNOUNCED + WRITERS;
/// The round in which they end.
const OVER: u64 = u64::MAX;

/// Where a writer's stamps are in each page: on a line that others use, too.
fn place_of(writer: usize) -> usize {
    writer * 3
}

/// The page and word of the kernel's write with that number.
fn kernels_place(number: usize) -> (usize, usize) {
    (number % PAGES, KERNELS_FIRST + number / PAGES)
}

/// What all have.
struct Field {
    file: File,
    pages: Region,
    control: Region,
    /// Where the kernel writes.
    wanderer: Wanderer,
}

impl Field {
    fn new() -> io::Result<Self> {
        let file = memory_file::create(c"t_dirty", (PAGES * PAGE_BYTES) as u64)?;
        Ok(Self {
            pages: Region::of_file(&file, PAGES)?,
            control: Region::shared(1)?,
            wanderer: Wanderer::of_file(&file, PAGES)?,
            file,
        })
    }

    fn control(&self, word: usize) -> &AtomicU64 {
        self.control.word(0, word)
    }

    /// Writes stamp after stamp, each to the next page, and announces it.
    fn write(&self, writer: usize) {
        let mut stamp = 0;
        self.in_rounds(|_| {
            stamp += 1;
            let page = stamp as usize % PAGES;
            let word = self.pages.word(page, place_of(writer));
            word.store(stamp, Release);
            self.control(ANNOUNCED + writer).store(stamp, Release);
        });
    }

    /// Reads from a file to the pages: it is the kernel that writes then.
    fn read(&self, source: &File, rounds: usize) {
        let mut number = 0;
        self.in_rounds(|round| {
            let is_over = number >= KERNELS_WORDS * (round + 1) / rounds;
            let (page, word) = kernels_place(number);
            if is_over || !self.wanderer.read_word(source, page, word).unwrap() {
                // Until the next round, or until it may again.
                thread::yield_now();
                return;
            }
            number += 1;
            let announced = self.control(KERNELS_ANNOUNCED);
            announced.store(number as u64, Release);
        });
    }

    /// Takes the pages out of the page table again and again: the writers may still be writing to one when its entry is gone. What
    /// the kernel writes to loses rights, and moves.
    fn disturb(&self) {
        let mut turn = 0;
        self.in_rounds(|_| {
            // The pages are a file's: nothing is lost, or the check says so.
            let discarded = self.pages.discard(PAGES);
            assert!(discarded.is_ok(), "{discarded:?}");
            self.wanderer.step(turn).unwrap();
            turn += 1;
            thread::sleep(DISTURBANCE);
        });
    }

    /// Does `work` over and over in each round, whose number it gets, until there are no more.
    fn in_rounds(&self, mut work: impl FnMut(usize)) {
        self.control(RESTING).fetch_add(1, Release);
        loop {
            let round = self.control(ROUND).load(Acquire);
            if round == OVER {
                return;
            }
            if round.is_multiple_of(2) {
                thread::yield_now();
                continue;
            }
            self.control(RESTING).fetch_sub(1, Relaxed);
            while self.control(ROUND).load(Relaxed) == round {
                work(round as usize / 2);
            }
            // ORDERING: publishes the last stamps; pairs with the load in `await_rest`.
            self.control(RESTING).fetch_add(1, Release);
        }
    }

    /// Returns when all writers run.
    fn run(&self, round: usize) {
        self.control(ROUND).store(2 * round as u64 + 1, Release);
        while self.control(RESTING).load(Relaxed) > 0 {
            thread::yield_now();
        }
    }

    /// Returns when all writers rest.
    fn rest(&self, round: usize) {
        self.control(ROUND).store(2 * round as u64 + 2, Release);
        self.await_rest();
    }

    fn await_rest(&self) {
        while self.control(RESTING).load(Acquire) < RUNNERS as u64 {
            thread::yield_now();
        }
    }

    /// Syncs in one of the ways there are.
    fn sync(&self, turn: usize) -> io::Result<()> {
        match turn % 2 {
            0 => self.file.sync_data(),
            _ => self.pages.sync(PAGES),
        }
    }

    /// Syncs, and looks whether `copy` has what was announced before.
    fn sync_and_check(&self, copy: &File, turn: usize, bytes: &mut [u8]) -> io::Result<()> {
        let announced: [u64; WRITERS] =
            std::array::from_fn(|writer| self.control(ANNOUNCED + writer).load(Acquire));
        let by_kernel = self.control(KERNELS_ANNOUNCED).load(Acquire) as usize;
        self.sync(turn)?;
        copy.read_exact_at(bytes, 0)?;
        let lacking = (0..by_kernel).find(|&number| {
            let (page, place) = kernels_place(number);
            word(bytes, page, place) != KERNELS
        });
        if let Some(number) = lacking {
            let what = format!("the kernel's write {number} of {by_kernel} is not stored");
            return Err(io::Error::other(format!("sync {turn}: {what}")));
        }
        for (writer, announced) in announced.into_iter().enumerate() {
            for page in 0..PAGES {
                let found = word(bytes, page, place_of(writer));
                let least = last_stamp(page, announced);
                if found < least {
                    return Err(io::Error::other(format!(
                        "sync {turn}: page {page} has stamp {found} of writer {writer}, who had announced {least}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Looks whether `copy` has what the mapping has, while nobody writes.
    fn compare(&self, copy: &File, round: usize, bytes: &mut [u8]) -> io::Result<()> {
        copy.read_exact_at(bytes, 0)?;
        for page in 0..PAGES {
            for place in 0..PAGE_WORDS {
                let stored = word(bytes, page, place);
                let written = self.pages.word(page, place).load(Relaxed);
                if stored != written {
                    return Err(io::Error::other(format!(
                        "round {round}: word {place} of page {page} is {written}, but {stored} is stored"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The last stamp up to `announced` that belongs to `page`; 0 for none.
fn last_stamp(page: usize, announced: u64) -> u64 {
    let back = (announced as usize + PAGES - page) % PAGES;
    announced.saturating_sub(back as u64)
}

fn word(bytes: &[u8], page: usize, place: usize) -> u64 {
    let at = (page * PAGE_WORDS + place) * 8;
    bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes)
}

/// All rounds, of so many syncs each; how many syncs there were.
fn rounds(field: &Field, rounds: usize, syncs: usize) -> io::Result<usize> {
    let stored = memory_file::stored(&field.file)?;
    let copy = stored.as_ref().unwrap_or(&field.file);
    let mut bytes = vec![0; PAGES * PAGE_BYTES];
    let switch = PolicySwitch::of_this_kernel();
    // A thread that starts maps memory of its own, which must not come to lie where the wanderer has just been.
    field.await_rest();
    for round in 0..rounds {
        let policy = POLICIES[round % POLICIES.len()];
        switch.select(policy).map_err(io::Error::other)?;
        field.run(round);
        let checked = (0..syncs).try_for_each(|turn| field.sync_and_check(copy, turn, &mut bytes));
        field.rest(round);
        checked?;
        field.file.sync_data()?;
        field.compare(copy, round, &mut bytes)?;
    }
    Ok(rounds * (syncs + 1))
}

fn all(rounds: usize) -> io::Result<usize> {
    let cpus = machine::allowed_cpus()?.len();
    let syncs = if cpus == 1 { SYNCS_ON_ONE_CPU } else { SYNCS };
    let field = Field::new()?;
    let source = memory_file::create(c"source", 8)?;
    source.write_all_at(&KERNELS.to_ne_bytes(), 0)?;
    let child = Child::start(|| {
        field.write(THREADS);
        0
    })?;
    let done = thread::scope(|scope| {
        for writer in 0..THREADS {
            let field = &field;
            scope.spawn(move || field.write(writer));
        }
        scope.spawn(|| field.disturb());
        scope.spawn(|| field.read(&source, rounds));
        let done = self::rounds(&field, rounds, syncs);
        field.control(ROUND).store(OVER, Release);
        done
    });
    match child.wait()? {
        End::Exited(0) => done,
        end => Err(io::Error::other(format!("the other process: {end:?}"))),
    }
}

fn main() -> ExitCode {
    checks::fail_on_panic("t_dirty");
    machine::prepare();
    let rounds = std::env::args().nth(1).map(|rounds| rounds.parse());
    let Ok(rounds) = rounds.unwrap_or(Ok(ROUNDS)) else {
        println!("t_dirty: the argument is a number of rounds");
        return ExitCode::from(2);
    };
    match all(rounds) {
        Ok(syncs) => {
            println!("t_dirty: {syncs} syncs: OK");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("t_dirty: FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
