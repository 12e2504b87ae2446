//! [`Moves`]: how often a cache line moved, why, and how long that took.

use std::ops::AddAssign;

/// Why a line moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motive {
    /// A CPU that does not have it reads it.
    Read,
    /// A CPU that does not have it writes it, or prefetches it to write it.
    Write,
    /// A CPU that has it for reading writes it.
    Upgrade,
}

/// Transfers of one motive.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moved {
    /// How many.
    pub count: u64,
    /// From request to arrival, behind those that asked before, all together.
    pub time_ps: u64,
}

/// Transfers of one line, or of several.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Moves([Moved; 3]);

impl Moves {
    /// Those of one motive.
    pub fn of(&self, motive: Motive) -> Moved {
        self.0[motive as usize]
    }

    /// All together.
    pub fn sum(&self) -> Moved {
        let mut sum = Moved::default();
        self.0.iter().for_each(|moved| sum += *moved);
        sum
    }

    pub(super) fn add(&mut self, motive: Motive, time_ps: u64) {
        self.0[motive as usize] += Moved { count: 1, time_ps };
    }
}

impl AddAssign for Moved {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.time_ps += other.time_ps;
    }
}

impl AddAssign for Moves {
    fn add_assign(&mut self, other: Self) {
        for (sum, moved) in self.0.iter_mut().zip(other.0) {
            *sum += moved;
        }
    }
}
