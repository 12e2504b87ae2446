//! [`Case`]: all that one run depends on.

use std::fmt;

use crate::explore::{Schedule, Strategy};

/// One run. Printed, it is the options that replay it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Virtual CPUs, 1 to [`Case::MOST_CPUS`].
    pub cpus: usize,
    /// Draws the programs and, without a schedule, the strategy and its answers.
    pub seed: u64,
    /// Operations of each CPU.
    pub operations: u32,
    /// The answers, if they are not to be drawn.
    pub schedule: Option<Schedule>,
}

impl Case {
    /// More CPUs find nothing that fewer do not.
    pub const MOST_CPUS: usize = 8;
    /// Operations of each CPU where nothing else is said.
    pub const OPERATIONS: u32 = 20;

    /// The case of a seed.
    pub fn new(cpus: usize, seed: u64) -> Self {
        Self {
            cpus,
            seed,
            operations: Self::OPERATIONS,
            schedule: None,
        }
    }

    pub(super) fn strategy(&self) -> Strategy {
        match &self.schedule {
            Some(schedule) => Strategy::Replay(schedule.clone()),
            // Few changes of priority find bugs of small depth surely; pure chance finds the others.
            None if self.seed.is_multiple_of(4) => Strategy::Priorities {
                seed: self.seed,
                changes: 1 + (self.seed / 4 % 8) as u32,
            },
            None => Strategy::Random(self.seed),
        }
    }

    /// How many CPUs the engine is built for: with more than 64, inboxes have a doorbell of their own.
    pub(super) fn is_wide(&self) -> bool {
        self.seed % 5 < 2
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--cpus {} --seed {}", self.cpus, self.seed)?;
        if self.operations != Self::OPERATIONS {
            write!(f, " --operations {}", self.operations)?;
        }
        if let Some(schedule) = &self.schedule {
            write!(f, " --schedule {schedule}")?;
        }
        Ok(())
    }
}
