//! Many runs, on several threads, until one fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use crate::fuzz::{Case, Conduct, Report, run};
use crate::mm::{Scenario, Sightings};

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Campaign {
    /// How many schedules.
    pub runs: u64,
    /// The seed of the first; each further one has the next.
    pub seed: u64,
    /// Virtual CPUs of each; 2 to 6 in turn if not given.
    pub cpus: Option<usize>,
    /// What the CPUs play, if their programs are not to be drawn.
    pub scenario: Option<Scenario>,
    /// Threads of the host.
    pub threads: usize,
}

/// How far a campaign is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Runs that are over.
    pub runs: u64,
    /// Their events.
    pub events: u64,
    /// Time since the start.
    pub elapsed: Duration,
}

/// What a campaign came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CampaignReport {
    /// The end.
    pub progress: Progress,
    /// What the engine did in them, whatever the order in which they ended.
    pub conduct: Conduct,
    /// How often its runs came upon what they are to find now and then.
    pub sightings: Sightings,
    /// The failing run with the lowest seed, if any failed.
    pub failure: Option<(Case, Report)>,
}

/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

impl Campaign {
    /// The case of the run with this number.
    pub fn case(&self, number: u64) -> Case {
        let seed = self.seed.wrapping_add(number);
        match self.scenario {
            Some(scenario) => Case::of(scenario, seed),
            None => Case::new(self.cpus.unwrap_or(cpus_of(number)), seed),
        }
    }
}

/// How many CPUs the run with this number has: two to six, and more often few, because few meet more often.
fn cpus_of(number: u64) -> usize {
    const CPUS: [usize; 8] = [2, 3, 4, 3, 5, 4, 6, 4];
    CPUS[(number % CPUS.len() as u64) as usize]
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Runs a campaign. Which run fails first does not depend on the number of threads.
pub fn campaign(campaign: Campaign, mut tell: impl FnMut(Progress)) -> CampaignReport {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let events = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let sightings = Mutex::new(Sightings::default());
    let conduct = Mutex::new(Conduct::default());
    let failure: Mutex<Option<(u64, Report)>> = Mutex::new(None);
    let progress = || Progress {
        runs: done.load(Ordering::Relaxed),
        events: events.load(Ordering::Relaxed),
        elapsed: started.elapsed(),
    };
    let work = || {
        // Numbers are handed out in order, so every run before the failing one has begun and will end.
        while !failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= campaign.runs {
                break;
            }
            let report = run(&campaign.case(number));
            done.fetch_add(1, Ordering::Relaxed);
            events.fetch_add(report.events, Ordering::Relaxed);
            locked(&sightings).add(&report.sightings);
            locked(&conduct).add(&report.conduct);
            if report.failure.is_some() {
                failed.store(true, Ordering::Relaxed);
                let mut first = locked(&failure);
                if first.as_ref().is_none_or(|(earlier, _)| number < *earlier) {
                    *first = Some((number, report));
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..campaign.threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::park_timeout(TELL_EVERY.min(Duration::from_millis(20)));
            tell(progress());
        }
    });
    let failure = failure
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner());
    CampaignReport {
        progress: progress(),
        sightings: *locked(&sightings),
        conduct: locked(&conduct).clone(),
        failure: failure.map(|(number, report)| (campaign.case(number), report)),
    }
}
