//! [`Case`]: all that one run depends on.

use std::fmt;

use crate::explore::{Schedule, Strategy};
use crate::kernel::KernelPages;

/// One run. Printed, it is the options that repeat it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Case {
    /// Virtual CPUs, 1 to [`Case::MOST_CPUS`].
    pub cpus: usize,
    /// Draws the steps, the strategy and its answers.
    pub seed: u64,
    /// The answers, if they are not to be drawn.
    pub schedule: Option<Schedule>,
}

impl Case {
    /// More CPUs find nothing that fewer do not.
    pub const MOST_CPUS: usize = 8;
    /// Steps of each task.
    pub const STEPS: u32 = 12;

    /// The case of a seed.
    pub fn new(cpus: usize, seed: u64) -> Self {
        Self {
            cpus,
            seed,
            schedule: None,
        }
    }

    pub(super) fn strategy(&self) -> Strategy {
        Strategy::new(self.schedule.as_ref(), self.seed)
    }

    /// One or two a CPU, so that some wait for one.
    pub(super) fn tasks(&self) -> usize {
        self.cpus * (1 + (self.seed / 3 % 2) as usize)
    }

    /// Hardware tags of each CPU.
    pub(super) fn asid_slots(&self) -> usize {
        [0, 1, 6, 16][(self.seed / 6 % 4) as usize]
    }

    pub(super) fn kernel_pages(&self) -> KernelPages {
        KernelPages::of_seed(self.seed)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--cpus {} --seed {}", self.cpus, self.seed)
    }
}
