//! [`Activity`]: what a CPU did with interrupts, and for how long it only waited.

use std::ops::{Add, Sub};

/// Sums since the machine was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Activity {
    /// Writes of the interrupt command register: one a cluster.
    pub register_writes: u64,
    /// Interrupts sent: one a target.
    pub ipis_sent: u64,
    /// Interrupts taken. Those that come before the target has taken an earlier one are part of it.
    pub ipis_taken: u64,
    /// Time in the interrupt, with entry and exit.
    pub handler_ps: u64,
    /// Time in turns of spin loops, outside the interrupt.
    pub relaxed_ps: u64,
    /// Accesses to memory outside of loops that wait.
    pub accesses: u64,
}

impl Activity {
    /// Each sum of the one with that of the other.
    fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            register_writes: combine(self.register_writes, other.register_writes),
            ipis_sent: combine(self.ipis_sent, other.ipis_sent),
            ipis_taken: combine(self.ipis_taken, other.ipis_taken),
            handler_ps: combine(self.handler_ps, other.handler_ps),
            relaxed_ps: combine(self.relaxed_ps, other.relaxed_ps),
            accesses: combine(self.accesses, other.accesses),
        }
    }
}

impl Add for Activity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, u64::add)
    }
}

impl Sub for Activity {
    type Output = Self;

    /// What was done since an earlier reading.
    fn sub(self, earlier: Self) -> Self {
        self.with(earlier, u64::sub)
    }
}

/// What the model keeps of each CPU.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Diary {
    pub(crate) sums: Activity,
    /// When its last register write was done.
    pub(crate) sent_ps: Option<u64>,
    /// When the interrupt that it is in began.
    entered_ps: u64,
}

impl Diary {
    pub(crate) fn enters(&mut self, now_ps: u64) {
        self.entered_ps = now_ps;
        self.sums.ipis_taken += 1;
    }

    pub(crate) fn leaves(&mut self, now_ps: u64) {
        self.sums.handler_ps += now_ps - self.entered_ps;
    }
}
