//! What differs from other [courses](crate::course): a ring of processes for each shape, and chores as its check.

use std::io;
use std::time::Instant;

use serde_json::Value;

use super::chores::Chores;
use super::pages::Pages;
use super::players::{Place, Players};
use super::ring::Ring;
use super::token::{Task, Token};
use crate::args::UsageError;
use crate::clock::{self, Clock};
use crate::course::options::MAX_PAGES;
use crate::course::{
    Axis, Bench, Checked, Course, Entry, Program, Sample, Shape, Slice, Table, Turn,
};
use crate::policy;

/// Times round the ring before the first recorded one of a slice: they bring the code, the policy just selected and
/// what its tags keep back to where they are in the middle of a slice.
const SETTLING_ROUNDS: usize = 8;
/// Pages that each process has at least: the check needs some where none are touched.
const LEAST_PAGES: usize = 8;
/// Times round the ring in a check even if time is up.
const LEAST_CHECKS: u64 = 8;

/// What `--help` prints.
const HELP: &str = "\
pingpong: the time of a turn of processes that hand a token round on one CPU

usage: pingpong [OPTION]...
  --spaces LIST     processes in the ring, each an address space [2,3,6,8,12]
  --pages LIST      pages that a process reads in its turn       [0,512]
  --policies LIST   flush policies of the kernel; a kernel without a choice
                    runs its only one, `linux`                   [before,published,best]
  --slice-ms N      length of one measured slice                 [60]
  --rounds N        slices of each policy                        [7]
  --warmup-ms N     unmeasured time before the first round       [50]
  --samples N       samples kept in each row, at most 2000       [2000]
  --seed N          order of policies, choices of the self-check [1]
  --self-check      check each row for a second instead of 20 ms
  --help

exit status: 0 all well, 1 a wrong page or a failed call, 2 bad arguments
";

/// The program `pingpong`.
#[derive(Debug)]
pub struct Pingpong;

impl Program for Pingpong {
    const TABLE: &'static Table = &Table {
        program: "pingpong",
        help: HELP,
        tasks: Axis {
            option: "--spaces",
            default: &[2, 3, 6, 8, 12],
            range: 2..=64,
        },
        pages: Axis::pages(&[0, 512], 0..=MAX_PAGES),
        policies: policy::USUAL,
        is_spread: false,
        is_checked: true,
    };
    type Options = ();
    type Bench<'a> = Game;

    fn new((): (), _: &Course) -> Result<Self, UsageError> {
        Ok(Self)
    }

    fn start(&self, shape: Shape, course: &Course) -> io::Result<Game> {
        let place = Place {
            home: course.cpus[0],
            elsewhere: course.cpus.get(1).copied(),
            seed: course.effort.seed,
        };
        let ring = Ring::new(shape.tasks)?;
        let mut pages = Pages::new(shape.pages.max(LEAST_PAGES), shape.pages)?;
        Ok(Game {
            players: Players::start(&ring, &mut pages, place)?,
            chores: Chores::new(place.seed, 0, place.home, place.elsewhere),
            ring,
            pages,
        })
    }
}

/// A ring whose first seat is ours.
#[derive(Debug)]
pub struct Game {
    ring: Ring,
    pages: Pages,
    chores: Chores,
    players: Players,
}

impl Bench for Game {
    fn turn(&mut self, turn: Turn<'_>, around: &mut dyn FnMut()) -> io::Result<Slice> {
        around();
        let slice = self.play(turn.ticks, turn.samples)?;
        around();
        Ok(slice)
    }

    fn check(&mut self, turn: Turn<'_>) -> io::Result<Checked> {
        let end = Instant::now() + turn.length;
        let mut checked = Checked::default();
        while checked.rounds < LEAST_CHECKS || Instant::now() < end {
            checked.wrong += self.check_round()?;
            checked.rounds += 1;
        }
        Ok(checked)
    }

    fn finish(&mut self) -> io::Result<u64> {
        self.players.leave(&self.ring)
    }

    /// A sample is a time round the ring, printed is each turn's share of it.
    fn time(&self, ticks: u64, clock: &Clock) -> Value {
        turn_ns(clock.to_ns(ticks), self.ring.seats()).into()
    }

    fn add_fields(&mut self, entry: &Entry<'_>, row: &mut Value) {
        row["check_rounds"] = entry.row.check.rounds.into();
    }
}

impl Game {
    /// Hands the token round for `ticks` ticks or until `samples` is full; a sample is one time round, in ticks.
    fn play(&self, ticks: u64, samples: &mut [Sample]) -> io::Result<Slice> {
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
            *sample = Sample::of(now.wrapping_sub(last));
            last = now;
            taken += 1;
            if now >= end {
                break;
            }
        }
        Ok(Slice {
            samples: taken,
            operations: ((taken + SETTLING_ROUNDS) * self.ring.seats()) as u64,
            ticks: 0,
            wrong: found,
        })
    }

    /// One time round the ring, our own turn last.
    #[inline(always)]
    fn round(&self) -> io::Result<u64> {
        self.ring.pass(0, Token::new(Task::Play))?;
        let token = self.ring.wait(0)?;
        Ok(token.found + self.pages.touch())
    }

    /// One time round the ring with a chore in each turn.
    fn check_round(&mut self) -> io::Result<u64> {
        self.ring.pass(0, Token::new(Task::Check))?;
        let token = self.ring.wait(0)?;
        Ok(token.found + self.chores.turn(&mut self.pages)?)
    }
}

/// One turn's share of a time round the ring, rounded to a tenth.
fn turn_ns(round_ns: u64, spaces: usize) -> f64 {
    (round_ns as f64 * 10.0 / spaces as f64).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_its_share_of_the_round() {
        assert_eq!(turn_ns(3000, 2), 1500.0);
        assert_eq!(turn_ns(100, 12), 8.3);
    }
}
