//! [`Case`]: all that one run depends on.

use std::fmt;
use std::str::FromStr;

use crate::explore::{Schedule, Strategy};
use crate::kernel::{GuestShare, KernelPages, Plan, Scenario};

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
    /// Whether the machine has guests, if that is not to be drawn.
    pub guests: Option<bool>,
    /// Whether spaces may be tracked, if that is not to be drawn.
    pub tracked: Option<bool>,
    /// The story, if the programs are not to be drawn.
    pub scenario: Option<Scenario>,
}

impl Case {
    /// As many as the smallest of the engines that are drawn has room for.
    pub const MOST_CPUS: usize = 64;
    /// Operations of each CPU of a small machine where nothing else is said.
    const OPERATIONS: u32 = 20;
    /// On a machine with more CPUs they do less each: what an operation takes grows with their number.
    const FEW_CPUS: usize = 4;

    /// Operations of each CPU where nothing else is said.
    fn usual_operations(&self) -> u32 {
        let usual = match self.cpus <= Self::FEW_CPUS {
            true => Self::OPERATIONS,
            false => (Self::OPERATIONS * Self::FEW_CPUS as u32).div_ceil(self.cpus as u32),
        };
        Plan::operations_of(self.seed, self.guest_share(), usual)
    }

    /// The case of a seed.
    pub fn new(cpus: usize, seed: u64) -> Self {
        Self::with_guests(cpus, seed, None)
    }

    /// The same on a machine with guests or without, if that is not to be drawn.
    pub fn with_guests(cpus: usize, seed: u64, guests: Option<bool>) -> Self {
        let case = Self {
            cpus,
            seed,
            operations: 0,
            schedule: None,
            guests,
            tracked: None,
            scenario: None,
        };
        Self {
            operations: case.usual_operations(),
            ..case
        }
    }

    /// How much of the run is about guests.
    pub(super) fn guest_share(&self) -> GuestShare {
        match self.guests {
            _ if self.scenario.is_some() => GuestShare::None,
            None => GuestShare::of_seed(self.seed),
            Some(true) => GuestShare::if_any(self.seed),
            Some(false) => GuestShare::None,
        }
    }

    /// Whether spaces may be tracked.
    pub(super) fn tracks(&self) -> bool {
        let drawn = || Plan::tracks(self.seed);
        self.scenario.is_none() && self.tracked.unwrap_or_else(drawn)
    }

    /// The case of a seed in which the CPUs play a scenario.
    pub fn of(scenario: Scenario, seed: u64) -> Self {
        let case = Self {
            scenario: Some(scenario),
            ..Self::new(Scenario::CPUS, seed)
        };
        Self {
            operations: case.usual_operations(),
            ..case
        }
    }

    /// Whether the case makes sense.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), String> {
        match self.scenario {
            Some(scenario) if self.cpus != Scenario::CPUS => Err(format!(
                "the scenario {scenario} has {} CPUs: say --cpus {}",
                Scenario::CPUS,
                Scenario::CPUS
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn strategy(&self) -> Strategy {
        Strategy::new(self.schedule.as_ref(), self.seed)
    }

    /// How many hardware tags a CPU has: none, too few, as many as are used by [`Tags::Six`](shootdown::tags::Tags::Six),
    /// more.
    pub(super) fn asid_slots(&self) -> usize {
        const SLOTS: [usize; 7] = [0, 1, 2, 4, 6, 7, 16];
        SLOTS[(self.seed / 3 % SLOTS.len() as u64) as usize]
    }

    pub(super) fn kernel_pages(&self) -> KernelPages {
        KernelPages::of_seed(self.seed)
    }

    /// How many kernel threads there are besides the program of each CPU: none, or up to twice as many.
    pub(super) fn threads(&self) -> usize {
        match self.seed / 7 % 8 {
            _ if self.scenario.is_some() => 0,
            // Hosts that lose their CPU between two entries.
            0 | 2 if self.guest_share() == GuestShare::Most => 2,
            0..5 => 0,
            5 | 6 => 1,
            _ => 2 * self.cpus.min(Self::FEW_CPUS),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--cpus {} --seed {}", self.cpus, self.seed)?;
        if let Some(guests) = self.guests {
            write!(f, " --guests {guests}")?;
        }
        if let Some(tracked) = self.tracked {
            write!(f, " --tracked {tracked}")?;
        }
        if self.operations != self.usual_operations() {
            write!(f, " --operations {}", self.operations)?;
        }
        if let Some(scenario) = self.scenario {
            write!(f, " --scenario {scenario}")?;
        }
        if let Some(schedule) = &self.schedule {
            write!(f, " --schedule {schedule}")?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    /// Reads what `Display` writes; `--operations` and `--schedule` may be missing.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (mut cpus, mut seed, mut operations) = (None, None, None);
        let mut case = Self::new(1, 0);
        while let Some(name) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{name} wants a value"))?;
            match name {
                "--cpus" => cpus = Some(number(name, value)?),
                "--seed" => seed = Some(number(name, value)?),
                "--operations" => operations = Some(number(name, value)?),
                "--guests" => case.guests = Some(number(name, value)?),
                "--tracked" => case.tracked = Some(number(name, value)?),
                "--scenario" => case.scenario = Some(value.parse()?),
                "--schedule" => case.schedule = Some(value.parse()?),
                _ => return Err(format!("`{name}` is not an option of a case")),
            }
        }
        case.cpus = cpus.ok_or("--cpus is missing")?;
        case.seed = seed.ok_or("--seed is missing")?;
        if !(1..=Self::MOST_CPUS).contains(&case.cpus) {
            return Err(format!("--cpus goes from 1 to {}", Self::MOST_CPUS));
        }
        case.operations = operations.unwrap_or(case.usual_operations());
        case.check()?;
        Ok(case)
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} wants a number, not `{value}`"))
}

#[cfg(test)]
mod tests {
    use super::Case;

    #[test]
    fn what_is_printed_parses() {
        for text in [
            "--cpus 3 --seed 451",
            "--cpus 3 --seed 451 --operations 7 --schedule 17:2,40:1",
            "--cpus 2 --seed 451 --scenario published-flag --schedule 17:2",
            "--cpus 2 --seed 451 --guests true --tracked false",
        ] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn cases_that_make_no_sense_are_refused() {
        for text in [
            "",
            "--cpus 3",
            "--seed 3",
            "--cpus 0 --seed 1",
            "--cpus 65 --seed 1",
            "--cpus x --seed 1",
            "--cpus 2 --seed",
            "--cpus 2 --seed 1 --speed 9",
            "--cpus 2 --seed 1 --guests many",
            "--cpus 2 --seed 1 --scenario romance",
            "--cpus 3 --seed 1 --scenario published-flag",
            "--cpus 2 --seed 1 --schedule 2:1,1:1",
        ] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }
}
