//! Many runs, on several threads, until one fails or the caller has enough.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shootdown_torture::Operation;

use crate::torture::{Case, Report, run};

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Campaign {
    /// The seed of the first run; each further one has the next.
    pub seed: u64,
    /// Virtual CPUs of each; 2, 3 and 4 in turn if not given.
    pub cpus: Option<usize>,
    /// Threads of the host.
    pub threads: usize,
}

/// How far a campaign is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Runs that are over.
    pub runs: u64,
    /// Their events.
    pub events: u64,
    /// Their steps.
    pub steps: u64,
    /// How often each operation of [`Operation::ALL`] was done.
    pub done: Vec<u64>,
    /// Time since the start.
    pub elapsed: Duration,
}

/// What a campaign came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CampaignReport {
    /// The end.
    pub progress: Progress,
    /// The failing run with the lowest seed, if any failed.
    pub failure: Option<(Case, Report)>,
}

/// How often the caller is asked.
const ASK_EVERY: Duration = Duration::from_millis(50);

impl Campaign {
    /// The case of the run with this number.
    pub fn case(&self, number: u64) -> Case {
        let seed = self.seed.wrapping_add(number);
        // By the seed, so that a run is repeated by its seed alone.
        let cpus = self.cpus.unwrap_or(2 + (seed % 3) as usize);
        Case::new(cpus, seed)
    }
}

#[derive(Debug, Default)]
struct Books {
    runs: u64,
    events: u64,
    steps: u64,
    done: Vec<u64>,
    failure: Option<(u64, Report)>,
}

/// Runs one case after the other as long as `goes_on` says so, which is asked several times a second. Of several failures
/// the one with the lowest number counts.
pub fn campaign(campaign: Campaign, mut goes_on: impl FnMut(&Progress) -> bool) -> CampaignReport {
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let ends = AtomicBool::new(false);
    let books = Mutex::new(Books {
        done: vec![0; Operation::ALL.len()],
        ..Books::default()
    });
    let lock = || books.lock().unwrap_or_else(|poison| poison.into_inner());
    let progress = || {
        let books = lock();
        Progress {
            runs: books.runs,
            events: books.events,
            steps: books.steps,
            done: books.done.clone(),
            elapsed: started.elapsed(),
        }
    };
    let work = || {
        // Numbers are handed out in order, so every run before the failing one has begun and will end.
        while !ends.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let report = run(&campaign.case(number));
            let mut books = lock();
            books.runs += 1;
            books.events += report.events;
            books.steps += report.steps;
            for (sum, count) in books.done.iter_mut().zip(&report.done) {
                *sum += count;
            }
            if report.failure.is_some() {
                ends.store(true, Ordering::Relaxed);
                if books
                    .failure
                    .as_ref()
                    .is_none_or(|(earlier, _)| number < *earlier)
                {
                    books.failure = Some((number, report));
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..campaign.threads.max(1))
            .map(|_| scope.spawn(work))
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::park_timeout(ASK_EVERY);
            if !goes_on(&progress()) {
                ends.store(true, Ordering::Relaxed);
            }
        }
    });
    let progress = progress();
    let failure = lock().failure.take();
    CampaignReport {
        progress,
        failure: failure.map(|(number, report)| (campaign.case(number), report)),
    }
}
