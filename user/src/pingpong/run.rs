//! The whole run: for each number of processes and pages, a ring, rounds of slices, the check, the rows.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use super::chores::Chores;
use super::options::{HELP, Options};
use super::pages::Pages;
use super::players::{Place, Players};
use super::ring::Ring;
use super::row::{Row, Shape};
use super::token::{Task, Token};
use crate::args::UsageError;
use crate::clock::{self, Clock};
use crate::counters::{self, CounterSource};
use crate::policy::{PolicySwitch, REFERENCE_POLICY};
use crate::report::Meter;
use crate::summary::Summary;
use crate::{args, machine, program, report};

const PROGRAM: &str = "pingpong";
/// Times round the ring before the first recorded one of a slice: they bring the code, the policy just selected and
/// what its tags keep back to where they are in the middle of a slice.
const SETTLING_ROUNDS: usize = 8;
/// Pages that each process has at least: the check needs some where none are touched.
const LEAST_PAGES: usize = 8;
/// Times round the ring in a check even if time is up.
const LEAST_CHECKS: u64 = 8;

/// The program `pingpong`.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let options = Options::parse(arguments);
    program::run(PROGRAM, HELP, options, Run::new, Run::conclude)
}

/// Everything set up before the first ring.
struct Run {
    options: Options,
    cpus: Vec<usize>,
    policies: Vec<String>,
    switch: PolicySwitch,
    clock: Clock,
    counters: CounterSource,
    meter: Meter,
}

/// A ring whose first seat is ours.
struct Game {
    ring: Ring,
    pages: Pages,
    chores: Chores,
    players: Players,
}

impl Run {
    fn new(options: Options) -> Result<Self, UsageError> {
        let cpus = args::cpus()?;
        let switch = PolicySwitch::of_this_kernel();
        let policies = switch.resolve(&options.effort.policies)?;
        let shapes = options.spaces.len() * options.pages.len();
        let meter = Meter::new(shapes * (options.effort.rounds + 1));
        Ok(Self {
            options,
            cpus,
            policies,
            switch,
            clock: Clock::calibrate(),
            counters: CounterSource::of_this_kernel(),
            meter,
        })
    }

    fn conclude(mut self) -> ExitCode {
        program::verdict(PROGRAM, self.all())
    }

    /// Runs every shape; returns how many reads saw what they must not.
    fn all(&mut self) -> io::Result<u64> {
        machine::pin_to(self.cpus[0])?;
        self.print_info();
        let mut stale = 0;
        for spaces in self.options.spaces.clone() {
            for pages in self.options.pages.clone() {
                stale += self.shape(Shape { spaces, pages })?;
            }
        }
        self.meter.step("done");
        Ok(stale)
    }

    fn shape(&mut self, shape: Shape) -> io::Result<u64> {
        let label = format!("{} spaces, {} pages", shape.spaces, shape.pages);
        self.meter.step(&label);
        let mut game = Game::start(shape, self.place())?;
        let mut rows: Vec<Row> = self.policies.iter().map(|name| Row::new(name)).collect();
        self.warm_up(&game, &mut rows)?;
        for round in 0..self.options.effort.rounds {
            for index in self.options.effort.order(round, rows.len()) {
                self.slice(&game, &mut rows[index])?;
            }
            self.meter.step(&label);
        }
        for row in &mut rows {
            self.check(&mut game, row)?;
        }
        rows[0].stale += game.players.leave(&game.ring)?;
        self.print_rows(shape, &mut rows);
        Ok(rows.iter().map(|row| row.stale).sum())
    }

    fn place(&self) -> Place {
        Place {
            home: self.cpus[0],
            elsewhere: self.cpus.get(1).copied(),
            seed: self.options.effort.seed,
        }
    }

    fn warm_up(&mut self, game: &Game, rows: &mut [Row]) -> io::Result<()> {
        let warmup = self.options.effort.warmup;
        if warmup.is_zero() {
            return Ok(());
        }
        let ticks = self.clock.to_ticks(warmup);
        for row in rows {
            self.select(row)?;
            row.stale += game.play(ticks, &mut row.samples)?.found;
        }
        Ok(())
    }

    fn slice(&mut self, game: &Game, row: &mut Row) -> io::Result<()> {
        let ticks = self.clock.to_ticks(self.options.effort.slice);
        self.select(row)?;
        // Each slice has its share, so that a fast row is not made of its first rounds only.
        let share = row.samples.len() / self.options.effort.rounds;
        let samples = &mut row.samples[row.taken..row.taken + share];
        let before = self.counters.read();
        let slice = game.play(ticks, samples)?;
        let after = self.counters.read();
        counters::accumulate(&mut row.counters, &before, &after);
        row.taken += slice.taken;
        row.turns += slice.turns;
        row.stale += slice.found;
        Ok(())
    }

    fn check(&mut self, game: &mut Game, row: &mut Row) -> io::Result<()> {
        self.select(row)?;
        let end = Instant::now() + self.options.effort.check;
        while row.check_rounds < LEAST_CHECKS || Instant::now() < end {
            row.stale += game.check()?;
            row.check_rounds += 1;
        }
        Ok(())
    }

    fn select(&self, row: &Row) -> io::Result<()> {
        self.switch.select(&row.policy).map_err(io::Error::other)
    }

    fn print_rows(&self, shape: Shape, rows: &mut [Row]) {
        let summaries: Vec<Option<Summary>> = rows.iter_mut().map(Row::summarise).collect();
        let reference = rows.iter().position(|row| row.policy == REFERENCE_POLICY);
        let reference = reference.and_then(|index| summaries[index].as_ref());
        for (row, summary) in rows.iter().zip(&summaries) {
            if let Some(summary) = summary {
                let limit = self.options.effort.row_samples;
                report::row(&row.to_json(shape, summary, reference, &self.clock, limit));
            }
        }
    }

    fn print_info(&self) {
        let options = &self.options;
        let expected = options.duration(self.policies.len());
        let own = [
            ("spaces", json!(options.spaces)),
            ("pages", json!(options.pages)),
            ("policies", json!(self.policies)),
            ("check_ms", json!(options.effort.check_ms())),
            ("ticks_per_second", json!(self.clock.frequency())),
        ];
        report::info(&options.effort.info(PROGRAM, self.cpus.len(), expected, own));
    }
}

/// What one slice found.
struct Slice {
    taken: usize,
    turns: u64,
    found: u64,
}

impl Game {
    fn start(shape: Shape, place: Place) -> io::Result<Self> {
        let ring = Ring::new(shape.spaces)?;
        let mut pages = Pages::new(shape.pages.max(LEAST_PAGES), shape.pages)?;
        let players = Players::start(&ring, &mut pages, place)?;
        let chores = Chores::new(place.seed, 0, place.home, place.elsewhere);
        Ok(Self {
            ring,
            pages,
            chores,
            players,
        })
    }

    /// Hands the token round for `ticks` ticks or until `samples` is full; a sample is one time round, in ticks.
    fn play(&self, ticks: u64, samples: &mut [u32]) -> io::Result<Slice> {
        let mut found = 0;
        for _ in 0..SETTLING_ROUNDS {
            found += self.round()?;
        }
        let mut taken = 0;
        let mut last = clock::ticks();
        let end = last.wrapping_add(ticks);
        for sample in samples.iter_mut() {
            found += self.round()?;
            let now = clock::ticks();
            *sample = u32::try_from(now.wrapping_sub(last)).unwrap_or(u32::MAX);
            last = now;
            taken += 1;
            if now >= end {
                break;
            }
        }
        Ok(Slice {
            taken,
            turns: ((taken + SETTLING_ROUNDS) * self.ring.seats()) as u64,
            found,
        })
    }

    /// One time round the ring, our own turn last.
    #[inline(always)]
    fn round(&self) -> io::Result<u64> {
        self.ring.pass(0, Token::new(Task::Play))?;
        let token = self.ring.wait(0)?;
        Ok(token.found + self.pages.touch())
    }

    fn check(&mut self) -> io::Result<u64> {
        self.ring.pass(0, Token::new(Task::Check))?;
        let token = self.ring.wait(0)?;
        Ok(token.found + self.chores.turn(&mut self.pages)?)
    }
}
