//! [`WakeBudget`]: how long threads that wake up may go before those that run.
//!
//! A thread that waits for something else than the CPU is to run as soon as that is there: a copier, a shell. If it went before a
//! running thread each time, threads that sleep a moment now and then would leave nothing to one that never sleeps. So those that
//! wake up, together, go first for as long as others have run since, and one slice more; then they take turns like all others. (So do all that
//! wake up at one moment: the budget is looked at as each comes.) What they run until they have had a whole slice counts, whether they went first
//! or not: of two threads on a CPU, one of which never sleeps, the other gets half of it and no more if it sleeps within each slice, and
//! somewhat more if it takes whole ones.

use core::sync::atomic::{AtomicI64, Ordering};

use super::scheduling::SLICE_NS;

/// How a thread that takes turns comes by the one that it has, or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Turn {
    /// As all do: it is new, or its last slice came to an end.
    Regular,
    /// It woke up since, but goes first no longer, or never did.
    Woken,
    /// It woke up, and goes before those that did not.
    First,
}

impl Turn {
    /// From the word that it is kept in.
    pub const fn from_u8(word: u8) -> Self {
        match word {
            0 => Self::Regular,
            1 => Self::Woken,
            _ => Self::First,
        }
    }

    /// Of a thread that wakes up.
    pub fn of_woken(budget: &WakeBudget) -> Self {
        match budget.allows() {
            true => Self::First,
            false => Self::Woken,
        }
    }

    /// Where the running thread stands when another one may be chosen: its turn if it goes on, and whether this one is over. `yields`: it gives way
    /// by itself.
    pub fn look(self, slice_is_over: bool, yields: bool, budget: &WakeBudget) -> (Self, bool) {
        let is_overdrawn = self == Self::First && !budget.allows();
        let is_over = slice_is_over || yields || is_overdrawn;
        let turn = match self {
            _ if slice_is_over => Self::Regular,
            Self::First if is_over => Self::Woken,
            turn => turn,
        };
        (turn, is_over)
    }
}

/// The budget of one CPU, in nanoseconds; below zero it is overdrawn. Its CPU changes it, others read it as a hint.
#[derive(Debug)]
pub struct WakeBudget(AtomicI64);

impl WakeBudget {
    const LIMIT: i64 = SLICE_NS as i64;

    /// A slice.
    pub const fn full() -> Self {
        Self(AtomicI64::new(Self::LIMIT))
    }

    /// Whether a thread that wakes up goes first.
    pub fn allows(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A thread that takes turns, or the idle thread, ran so long in a turn of this kind; `is_awaited`: and others waited for it.
    pub fn account(&self, turn: Turn, is_awaited: bool, ran_ns: u64) {
        let ran = i64::try_from(ran_ns).unwrap_or(i64::MAX);
        let before = self.0.load(Ordering::Relaxed);
        let after = match turn {
            Turn::Regular => before.saturating_add(ran),
            Turn::Woken | Turn::First if is_awaited => before.saturating_sub(ran),
            Turn::Woken | Turn::First => before,
        };
        self.0
            .store(after.clamp(-Self::LIMIT, Self::LIMIT), Ordering::Relaxed);
    }
}
