//! The turns that a worker takes: change a slot, watch one, nap, move to another CPU, fork.

use std::io;
use std::time::Duration;

use super::board::Board;
use super::change::Change;
use super::evidence::Evidence;
use super::finding::Letter;
use super::heir::{self, Heir};
use super::mark;
use super::private::PrivatePages;
use super::probe::Length;
use super::rule::{self, Seen, Verdict};
use super::slot::{Slot, SlotGuard};
use super::tally::Tally;
use crate::child::{Child, End};
use crate::clock::{self, Clock};
use crate::{machine, signals};

/// Changes in one turn.
const TURN_CHANGES: u32 = 32;
/// The longest turn of watching, microseconds.
const TURN_US: u64 = 4_000;
/// How long the worker that changes waits for watchers, normally: a few long probes.
const PATIENCE_US: u64 = 400;
/// Now and then it waits long enough for a watcher that has lost its CPU.
const LONG_PATIENCE_US: u64 = 10_000;
/// How long a watcher waits for the next change after a fault.
const FAULT_PAUSE_US: u64 = 300;
/// Pages of a slot probed after each change by the worker that made it.
const VERIFIED_PAGES: usize = 8;
/// Probes between two looks at the time, the focus and the end of the run.
const PROBE_BURST: u32 = 16;
/// Private pages that a child inherits at least.
const FAMILY_PAGES: usize = 8;
/// A nap: long enough for the CPU to become idle.
const NAP: Duration = Duration::from_micros(500);

/// One thread of the torture.
#[derive(Debug)]
pub struct Worker<'a> {
    board: &'a Board,
    number: usize,
    cpus: &'a [usize],
    cpu: usize,
    clock: Clock,
    random: fastrand::Rng,
    private: PrivatePages,
    letter: Letter,
    tallies: Vec<Tally>,
    policy: usize,
}

/// What a watcher does to a page of the slot.
type Access = fn(&Slot, usize, Length) -> Seen;

impl<'a> Worker<'a> {
    /// Worker `number`; its thread must be the one that calls this.
    pub fn new(
        board: &'a Board,
        number: usize,
        cpus: &'a [usize],
        clock: Clock,
        seed: u64,
        policies: usize,
    ) -> io::Result<Self> {
        signals::use_signal_stack()?;
        let cpu = cpus[number % cpus.len()];
        pin_if_online(cpu)?;
        Ok(Self {
            board,
            number,
            cpus,
            cpu,
            clock,
            random: fastrand::Rng::with_seed(seed.wrapping_add(number as u64)),
            private: PrivatePages::new(number)?,
            letter: Letter::new()?,
            tallies: vec![Tally::default(); policies],
            policy: 0,
        })
    }

    /// Takes turns until the board says stop; returns what was done under each policy.
    pub fn run(mut self) -> Vec<Tally> {
        while !self.board.stopped() {
            self.policy = self.board.policy();
            if let Err(error) = self.turn() {
                let (number, cpu) = (self.number, self.cpu);
                self.board
                    .fail(format!("worker {number} on CPU {cpu}: {error}"));
            }
        }
        self.board.desks[self.number].look_away();
        self.tallies
    }

    fn turn(&mut self) -> io::Result<()> {
        if self.board.join_changing() {
            let result = self.change_turn();
            self.board.leave_changing();
            return result;
        }
        match self.random.u8(..) {
            0..2 => std::thread::sleep(NAP),
            2..5 => self.hop()?,
            5..45 => self.fork_turn()?,
            45..80 => self.watch_turn(Slot::load),
            80..120 => self.watch_turn(Slot::scribble),
            _ => self.ambush_turn()?,
        }
        Ok(())
    }

    /// Moves to a random CPU for a turn or more; half of the time back home.
    fn hop(&mut self) -> io::Result<()> {
        let home = self.cpus[self.number % self.cpus.len()];
        let other = self.cpus[self.random.usize(..self.cpus.len())];
        let wanted = if self.cpu == home { other } else { home };
        if pin_if_online(wanted)? {
            self.cpu = wanted;
        }
        Ok(())
    }

    /// Changes one slot a number of times, lingering after most changes until watchers have
    /// looked.
    fn change_turn(&mut self) -> io::Result<()> {
        let first = self.random.usize(..self.board.slots.len());
        let slots = self.board.slots.len();
        let free = (0..slots).map(|offset| (first + offset) % slots);
        let Some((number, mut guard)) = free
            .into_iter()
            .find_map(|slot| Some((slot, self.board.slots[slot].take()?)))
        else {
            return Ok(());
        };
        self.board.set_focus(number);
        self.linger(number);
        for _ in 0..TURN_CHANGES {
            if self.board.stopped() {
                break;
            }
            let choices = Change::choices(guard.slot().state().to);
            let change = choices[self.random.usize(..choices.len())];
            guard.change(change)?;
            self.tallies[self.policy].count(change);
            self.verify(&guard);
            self.linger(number);
        }
        Ok(())
    }

    /// What the worker that made a change sees of it: on its own CPU, so it tests local flushes.
    fn verify(&mut self, guard: &SlotGuard<'_>) {
        let slot = guard.slot();
        let first = self.random.usize(..slot.pages());
        for offset in 0..VERIFIED_PAGES.min(slot.pages()) {
            let page = (first + offset) % slot.pages();
            self.judge(guard.number(), page, slot.load(page, Length::Short));
            if let Some((zero, last, expected)) = guard.tail(page)
                && (zero, last) != (0, expected)
            {
                let (slot, seen) = (guard.number(), (zero, last));
                self.report(Evidence::Tail {
                    slot,
                    page,
                    expected,
                    seen,
                });
            }
        }
        self.judge(guard.number(), first, slot.scribble(first, Length::Short));
    }

    fn linger(&mut self, slot: usize) {
        let patience_us = match self.random.u8(..16) {
            0..4 => return,
            4 => LONG_PATIENCE_US,
            _ => PATIENCE_US,
        };
        let end = self.deadline(patience_us);
        self.board
            .await_watchers(self.number, slot, || clock::ticks() > end);
    }

    /// Loads or stores in a tight loop, so that the translation stays in the TLB.
    fn watch_turn(&mut self, access: Access) {
        let (number, page) = self.pick_target();
        let board = self.board;
        let (slot, desk) = (&board.slots[number], &board.desks[self.number]);
        let long = self.random.bool();
        let end = self.deadline(TURN_US);
        desk.watch(number);
        while self.worth_going_on(number, end) {
            for probe in 0..PROBE_BURST {
                // Short probes in between bring the translation back into the TLB.
                let length = match long && probe % 4 == 3 {
                    true => Length::Long,
                    false => Length::Short,
                };
                let seen = access(slot, page, length);
                self.judge(number, page, seen);
                desk.count();
                self.await_change(number, seen);
            }
            std::hint::spin_loop();
        }
        desk.look_away();
    }

    /// Between accesses to the slot, takes frames into use that may just have been freed.
    fn ambush_turn(&mut self) -> io::Result<()> {
        let (number, page) = self.pick_target();
        let board = self.board;
        let (slot, desk) = (&board.slots[number], &board.desks[self.number]);
        let access = match self.random.u8(..4) {
            0 => Slot::scribble,
            _ => Slot::load,
        };
        let end = self.deadline(TURN_US);
        desk.watch(number);
        while self.worth_going_on(number, end) {
            self.judge(number, page, slot.load(page, Length::Short));
            let Some(own) = self.private.touch() else {
                self.recycle()?;
                continue;
            };
            self.tallies[self.policy].touches += 1;
            let seen = access(slot, page, Length::Short);
            self.judge(number, page, seen);
            desk.count();
            if let Err(damage) = self.private.inspect(own) {
                self.report(Evidence::Private(damage));
            }
            self.await_change(number, seen);
        }
        desk.look_away();
        self.recycle()
    }

    /// Forks a child that checks its copy of everything, and changes own pages meanwhile.
    fn fork_turn(&mut self) -> io::Result<()> {
        for _ in 0..FAMILY_PAGES {
            self.private.touch();
        }
        let elsewhere = self.cpus[self.random.usize(..self.cpus.len())];
        self.letter.clear();
        let heir = Heir {
            board: self.board,
            private: &self.private,
            worker: self.number,
            cpu: self.random.bool().then_some(elsewhere),
            choice: self.random.usize(..mark::MAX_PAGES),
            letter: &self.letter,
        };
        let child = Child::start(|| heir.live())?;
        if self.random.bool() {
            self.recycle()?;
            self.private.touch();
        }
        let evidence = match child.wait()? {
            End::Exited(heir::CONTENT) => {
                self.tallies[self.policy].forks += 1;
                return self.recycle();
            }
            end => match self.letter.read() {
                Some(finding) => Evidence::Child(finding),
                None => Evidence::ChildEnd(end),
            },
        };
        self.report(evidence);
        self.recycle()
    }

    fn recycle(&mut self) -> io::Result<()> {
        let by_mapping = self.random.u8(..4) == 0;
        if let Err(damage) = self.private.recycle(by_mapping)? {
            self.report(Evidence::Private(damage));
        }
        self.tallies[self.policy].discards += 1;
        Ok(())
    }

    /// A slot and a page in it; mostly the slot that is being changed.
    fn pick_target(&mut self) -> (usize, usize) {
        let slots = self.board.slots.len();
        let number = match self.random.u8(..8) {
            0 => self.random.usize(..slots),
            _ => self.board.focus(),
        };
        let page = self.random.usize(..self.board.slots[number].pages());
        (number, page)
    }

    fn worth_going_on(&self, slot: usize, end: u64) -> bool {
        !self.board.stopped() && self.board.focus() == slot && clock::ticks() < end
    }

    /// After a fault there is nothing in the TLB; waits for the slot's next change, if it comes.
    fn await_change(&self, slot: usize, (window, effect): Seen) {
        if !effect.is_fault() {
            return;
        }
        let end = self.deadline(FAULT_PAUSE_US);
        while self.board.slots[slot].state() == window.after && clock::ticks() < end {
            std::hint::spin_loop();
        }
    }

    fn judge(&mut self, slot: usize, page: usize, seen: Seen) {
        let place = self.board.slots[slot].place(page);
        let verdict = rule::judge(place, seen);
        let tally = &mut self.tallies[self.policy];
        tally.accesses += 1;
        tally.exact += u64::from(verdict == Verdict::Exact);
        tally.faults += u64::from(seen.1.is_fault());
        if verdict.is_violation() {
            let history = self.board.slots[slot].history();
            let evidence = Evidence::Access {
                slot,
                page,
                verdict,
                seen,
                history,
            };
            self.report(evidence);
        }
    }

    fn report(&self, evidence: Evidence) {
        self.board.report(self.number, self.cpu, evidence);
    }

    fn deadline(&self, microseconds: u64) -> u64 {
        clock::ticks().wrapping_add(self.clock.to_ticks(Duration::from_micros(microseconds)))
    }
}

/// Pins this thread to a CPU, if that is online: when CPUs churn, some are not.
pub(super) fn pin_if_online(cpu: usize) -> io::Result<bool> {
    match machine::pin_to(cpu) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}
