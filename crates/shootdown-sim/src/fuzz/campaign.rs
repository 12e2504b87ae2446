//! [`Campaign`]: which cases are run, one after the other.

use crate::campaign::{self, threads_of_host};
use crate::fuzz::{Case, Conduct, Report, run};
use crate::kernel::{Scenario, Sightings};

/// What to run; without further words a thousand schedules from seed 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Campaign {
    /// How many schedules.
    pub runs: u64,
    /// The seed of the first; each further one has the next.
    pub seed: u64,
    /// Virtual CPUs of each; 2 to 6 in turn if not given.
    pub cpus: Option<usize>,
    /// Whether machines have guests, if that is not to be drawn.
    pub guests: Option<bool>,
    /// Whether spaces may be tracked, if that is not to be drawn.
    pub tracked: Option<bool>,
    /// What the CPUs play, if their programs are not to be drawn.
    pub scenario: Option<Scenario>,
    /// Threads of the host.
    pub threads: usize,
}

/// What runs came to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Events of all.
    pub events: u64,
    /// What the engine did in them.
    pub conduct: Conduct,
    /// How often they came upon what they are to find now and then.
    pub sightings: Sightings,
}

/// How far a campaign is.
pub type Progress = campaign::Progress<Totals>;
/// What a campaign came to.
pub type CampaignReport = campaign::CampaignReport<Totals, Case, Report>;

impl Default for Campaign {
    fn default() -> Self {
        Self {
            runs: 1000,
            seed: 1,
            cpus: None,
            guests: None,
            tracked: None,
            scenario: None,
            threads: threads_of_host(),
        }
    }
}

impl Campaign {
    /// The case of the run with this number.
    fn case(&self, number: u64) -> Option<Case> {
        let seed = self.seed.wrapping_add(number);
        let case = match self.scenario {
            Some(scenario) => Case::of(scenario, seed),
            None => {
                let cpus = self.cpus.unwrap_or(cpus_of(number));
                Case {
                    tracked: self.tracked,
                    ..Case::with_guests(cpus, seed, self.guests)
                }
            }
        };
        (number < self.runs).then_some(case)
    }
}

/// How many CPUs the run with this number has: two to six, and more often few, because few meet more often.
fn cpus_of(number: u64) -> usize {
    const CPUS: [usize; 8] = [2, 3, 4, 3, 5, 4, 6, 4];
    CPUS[(number % CPUS.len() as u64) as usize]
}

fn absorb(totals: &mut Totals, report: &Report) -> bool {
    totals.events += report.events;
    totals.conduct.add(&report.conduct);
    totals.sightings.add(&report.sightings);
    report.failure.is_some()
}

/// Runs a campaign. Which run fails first does not depend on the number of threads.
pub fn campaign(plan: Campaign, mut tell: impl FnMut(&Progress)) -> CampaignReport {
    let case = |number| plan.case(number);
    campaign::campaign(plan.threads, case, run, absorb, |progress| {
        tell(progress);
        true
    })
}
