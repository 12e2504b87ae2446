//! [`campaign()`]: many runs, on several threads, until one fails or the caller has enough.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How far a campaign is.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Progress<T> {
    /// Runs that are over.
    pub runs: u64,
    /// What they came to, whatever the order in which they ended.
    pub totals: T,
    /// Time since the start.
    pub elapsed: Duration,
}

impl<T> Progress<T> {
    /// So many, a second of the time so far.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// What a campaign came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CampaignReport<T, C, R> {
    /// The end.
    pub progress: Progress<T>,
    /// The failing run with the lowest number, if any failed.
    pub failure: Option<(C, R)>,
}

/// How often the caller is asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Runs the case of each number, from 0, on so many threads: as long as there is a case, none has failed, and `goes_on` says so. `absorb` adds
/// a report to the totals and says whether the run failed. Which run fails first does not depend on the number of threads.
pub(crate) fn campaign<T, C, R>(
    threads: usize,
    case: impl Fn(u64) -> Option<C> + Sync,
    run: impl Fn(&C) -> R + Sync,
    absorb: impl Fn(&mut T, &R) -> bool + Sync,
    mut goes_on: impl FnMut(&Progress<T>) -> bool,
) -> CampaignReport<T, C, R>
where
    T: Clone + Default + Send,
    C: Send,
    R: Send,
{
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let ends = AtomicBool::new(false);
    let books: Mutex<Progress<T>> = Mutex::default();
    let failure: Mutex<Option<(u64, C, R)>> = Mutex::default();
    let progress = || Progress {
        elapsed: started.elapsed(),
        ..locked(&books).clone()
    };
    let work = || {
        // Numbers are handed out in order, so every run before the failing one has begun and will end.
        while !ends.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = case(number) else {
                break;
            };
            let report = run(&case);
            let mut books = locked(&books);
            books.runs += 1;
            if absorb(&mut books.totals, &report) {
                ends.store(true, Ordering::Relaxed);
                let mut first = locked(&failure);
                if first.as_ref().is_none_or(|(other, ..)| number < *other) {
                    *first = Some((number, case, report));
                }
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            thread::park_timeout(ASK_EVERY);
            if !goes_on(&progress()) {
                ends.store(true, Ordering::Relaxed);
            }
        }
    });
    let failure = locked(&failure).take();
    CampaignReport {
        progress: progress(),
        failure: failure.map(|(_, case, report)| (case, report)),
    }
}

/// A thread for each processor.
pub(crate) fn threads_of_host() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
