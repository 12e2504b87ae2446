//! [`Campaign`]: which cases are run, one after the other.

use shootdown_torture::Operation;

use crate::campaign::{self, threads_of_host};
use crate::torture::{Case, Report, run};

/// What to run; without further words from seed 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Campaign {
    /// The seed of the first run; each further one has the next.
    pub seed: u64,
    /// Virtual CPUs of each; 2, 3 and 4 in turn if not given.
    pub cpus: Option<usize>,
    /// Threads of the host.
    pub threads: usize,
}

/// What runs came to.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Events of all.
    pub events: u64,
    /// Steps of all.
    pub steps: u64,
    /// How often each operation of [`Operation::ALL`] was done; empty before the first run has ended.
    pub done: Vec<u64>,
}

/// How far a campaign is.
pub type Progress = campaign::Progress<Totals>;
/// What a campaign came to.
pub type CampaignReport = campaign::CampaignReport<Totals, Case, Report>;

impl Default for Campaign {
    fn default() -> Self {
        Self {
            seed: 1,
            cpus: None,
            threads: threads_of_host(),
        }
    }
}

impl Campaign {
    /// The case of the run with this number.
    fn case(&self, number: u64) -> Case {
        let seed = self.seed.wrapping_add(number);
        // By the seed, so that a run is repeated by its seed alone.
        let cpus = self.cpus.unwrap_or(2 + (seed % 3) as usize);
        Case::new(cpus, seed)
    }
}

fn absorb(totals: &mut Totals, report: &Report) -> bool {
    totals.events += report.events;
    totals.steps += report.steps;
    totals.done.resize(Operation::ALL.len(), 0);
    for (sum, count) in totals.done.iter_mut().zip(&report.done) {
        *sum += count;
    }
    report.failure.is_some()
}

/// Runs one case after the other as long as `goes_on` says so, which is asked several times a second. Of several failures
/// the one with the lowest number counts.
pub fn campaign(plan: Campaign, goes_on: impl FnMut(&Progress) -> bool) -> CampaignReport {
    let case = |number| Some(plan.case(number));
    campaign::campaign(plan.threads, case, run, absorb, goes_on)
}
