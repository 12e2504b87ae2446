//! The other processes of the ring: forked, told what to do by tokens, and ended.

use std::io;

use super::chores::Chores;
use super::deaths;
use super::pages::Pages;
use super::ring::Ring;
use super::token::{Task, Token};
use crate::child::{Child, End};
use crate::machine;

/// The exit status of a process that could not go on.
const FAILED: i32 = 1;

/// Where the ring lives.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The CPU that all processes share.
    pub home: usize,
    /// Another one to visit, where there is one.
    pub elsewhere: Option<usize>,
    /// Seed of every choice made.
    pub seed: u64,
}

/// The processes on all seats but the first, which belongs to the caller. They are killed when this is dropped.
#[derive(Debug)]
pub struct Players {
    children: Vec<Child>,
}

impl Players {
    /// Forks one process for each further seat. Each first checks what it inherits, then makes the pages its own.
    pub fn start(ring: &Ring, pages: &mut Pages, place: Place) -> io::Result<Self> {
        let mut players = Self {
            children: Vec::new(),
        };
        for seat in 1..ring.seats() {
            let child = Child::start(|| life(ring, pages, seat, place))?;
            players.children.push(child);
        }
        deaths::announce_on(ring.descriptor(0))?;
        Ok(players)
    }

    /// Hands round the token that ends all of them; returns how many wrong pages they had still to tell of.
    pub fn leave(&mut self, ring: &Ring) -> io::Result<u64> {
        deaths::ignore();
        ring.pass(0, Token::new(Task::Leave))?;
        let token = ring.wait(0)?;
        for child in std::mem::take(&mut self.children) {
            if child.wait()? != End::Exited(0) {
                return Err(io::Error::other("a process of the ring failed"));
            }
        }
        Ok(token.found)
    }
}

impl Drop for Players {
    fn drop(&mut self) {
        if self.children.is_empty() {
            return;
        }
        deaths::ignore();
        for child in self.children.drain(..) {
            // It ends now: how is known.
            let _ignored = child.kill();
        }
    }
}

/// All that a player does; returns its exit status.
fn life(ring: &Ring, pages: &mut Pages, seat: usize, place: Place) -> i32 {
    deaths::ignore();
    // SAFETY: asks for a signal when the parent dies; a kernel that does not know it says so, and nothing is lost.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    match play(ring, pages, seat, place) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("pingpong: process {seat}: {error}");
            deaths::confess(ring.descriptor(0));
            FAILED
        }
    }
}

fn play(ring: &Ring, pages: &mut Pages, seat: usize, place: Place) -> io::Result<()> {
    machine::pin_to(place.home)?;
    let mut chores = Chores::new(place.seed, seat, place.home, place.elsewhere);
    let mut found = chores.inherit(pages, seat)?;
    loop {
        let token = ring.wait(seat)?;
        found += match token.task {
            Task::Play => pages.touch(),
            Task::Check => chores.turn(pages)?,
            Task::Leave => 0,
        };
        ring.pass(seat, token.plus(found))?;
        if token.task == Task::Leave {
            return Ok(());
        }
        found = 0;
    }
}
