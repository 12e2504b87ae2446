//! The self-check: fill, discard, and watch from every thread; see [`super::rule`] for what is
//! judged and why that judgement is sound.
//!
//! The watchers keep their translations alive by reading all pages in turn, without a system
//! call. After each step the initiator waits (for a bounded time) until every watcher has read
//! every page since the step; without that, a watcher's entry could be evicted or never made, and
//! a kernel that flushes nothing would pass.

use std::fmt;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::rule::{self, Epoch, Verdict};
use crate::course::Checked;
use crate::machine;
use crate::region::Region;

/// The longest wait for a watcher that does not get to run.
const PATIENCE: Duration = Duration::from_millis(5);
/// The longest wait for a watcher's first read.
const START_PATIENCE: Duration = Duration::from_secs(1);
/// Rounds made even if time is up: on a busy host the time may hold none.
const LEAST_ROUNDS: u64 = 8;

/// One access that must not have happened.
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    /// What it proves.
    pub verdict: Verdict,
    /// The CPU that saw it.
    pub cpu: usize,
    /// The page read.
    pub page: usize,
    /// The value read.
    pub seen: u64,
    /// The epoch before the read.
    pub first: Epoch,
    /// The epoch after the read.
    pub second: Epoch,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verdict,
            cpu,
            page,
            seen,
            first,
            second,
        } = self;
        write!(
            f,
            "{verdict:?}: CPU {cpu} read {seen:#x} from page {page} between {first} and {second}"
        )
    }
}

/// What a check found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Rounds of fill and discard, reads judged, the initiator's included, and those that saw what they must not.
    pub checked: Checked,
    /// The first of them.
    pub first: Option<Finding>,
}

/// Runs rounds of fill and `discard` for `length`, watched from `watchers`' CPUs.
///
/// `discard` is handed the region and must discard all of it before it returns; that it is a
/// parameter lets a test show that the check notices when it does not.
pub fn run(
    region: &Region,
    initiator: usize,
    watchers: &[usize],
    length: Duration,
    seed: u64,
    discard: impl Fn(&Region) -> io::Result<()>,
) -> io::Result<Outcome> {
    let board = Board::new(region, watchers.len())?;
    let rounds = thread::scope(|scope| {
        for (index, &cpu) in watchers.iter().enumerate() {
            let board = &board;
            let watch = move || {
                // A watcher that cannot be pinned still watches.
                let _ignored = machine::pin_to(cpu);
                board.watch(index, cpu);
            };
            thread::Builder::new()
                .spawn_scoped(scope, watch)
                .inspect_err(|_| board.stop())?;
        }
        board.let_watchers_read(START_PATIENCE);
        let result = board.rounds(initiator, length, seed, discard);
        board.stop();
        result
    })?;
    Ok(board.outcome(rounds))
}

/// What initiator and watchers share.
#[derive(Debug)]
struct Board<'a> {
    region: &'a Region,
    epoch: Line<AtomicU64>,
    stop: Line<AtomicBool>,
    reads: Vec<Line<AtomicU64>>,
    violations: AtomicU64,
    first: Mutex<Option<Finding>>,
}

/// A value alone on its cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line<T>(T);

impl<'a> Board<'a> {
    /// A board whose region holds no value, which is how a round ends: what was measured before
    /// left its own, and a watcher that starts before round 1 would report them.
    fn new(region: &'a Region, watchers: usize) -> io::Result<Self> {
        region.discard(region.pages())?;
        Ok(Self {
            region,
            epoch: Line(AtomicU64::new(Epoch::gone(0).to_bits())),
            stop: Line::default(),
            reads: (0..=watchers).map(|_| Line::default()).collect(),
            violations: AtomicU64::new(0),
            first: Mutex::new(None),
        })
    }

    fn rounds(
        &self,
        cpu: usize,
        length: Duration,
        seed: u64,
        discard: impl Fn(&Region) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let end = Instant::now() + length;
        let mut round = 0;
        while round < LEAST_ROUNDS || Instant::now() < end {
            round += 1;
            self.publish(Epoch::fill(round));
            for page in 0..self.region.pages() {
                // ORDERING: publishes nothing; x86 keeps it between the two epochs' stores, and
                // Release keeps the compiler from moving it before the first.
                self.region
                    .word(page, 0)
                    .store(rule::value(page, round), Ordering::Release);
            }
            self.publish(Epoch::held(round));
            self.let_watchers_read(PATIENCE);
            self.publish(Epoch::drop_begun(round));
            discard(self.region)?;
            self.publish(Epoch::gone(round));
            // Usually the watchers look first: a kernel that takes the frame just freed for the
            // initiator's next fault would hide behind it an entry that still points there.
            let order = random.u8(..8);
            if order > 1 {
                self.let_watchers_read(PATIENCE);
            }
            for page in 0..self.region.pages() {
                self.read(self.reads.len() - 1, cpu, page);
            }
            // Now and then the next round follows at once.
            if order > 0 {
                self.let_watchers_read(PATIENCE);
            }
        }
        Ok(round)
    }

    fn watch(&self, index: usize, cpu: usize) {
        while !self.stop.0.load(Ordering::Relaxed) {
            for page in 0..self.region.pages() {
                self.read(index, cpu, page);
            }
            std::hint::spin_loop();
        }
    }

    /// Reads word 0 of `page` between two looks at the epoch, and judges.
    #[inline(always)]
    fn read(&self, index: usize, cpu: usize, page: usize) {
        let first = self.epoch();
        // ORDERING: keeps the second look at the epoch after this load.
        let seen = self.region.word(page, 0).load(Ordering::Acquire);
        let second = self.epoch();
        let verdict = rule::judge(page, first, seen, second);
        if verdict != Verdict::Fine {
            self.found(Finding {
                verdict,
                cpu,
                page,
                seen,
                first,
                second,
            });
        }
        let reads = &self.reads[index].0;
        reads.store(reads.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    #[cold]
    fn found(&self, finding: Finding) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut first) = self.first.lock() {
            first.get_or_insert(finding);
        }
    }

    /// Waits until every watcher has read every page from now on, but not for ever.
    fn let_watchers_read(&self, patience: Duration) {
        let needed = self.region.pages() as u64 + 1;
        let (_initiator, watchers) = self.reads.split_last().expect("the initiator is there");
        let start = Instant::now();
        for reads in watchers {
            let goal = reads.0.load(Ordering::Relaxed) + needed;
            while reads.0.load(Ordering::Relaxed) < goal && start.elapsed() < patience {
                std::hint::spin_loop();
            }
        }
    }

    fn epoch(&self) -> Epoch {
        // ORDERING: keeps the page's load after the first look; pairs with `publish`.
        Epoch::from_bits(self.epoch.0.load(Ordering::Acquire))
    }

    fn publish(&self, epoch: Epoch) {
        // ORDERING: SeqCst, so that the step is visible before the system call or the store that
        // follows begins; pairs with `epoch`.
        self.epoch.0.store(epoch.to_bits(), Ordering::SeqCst);
    }

    fn stop(&self) {
        self.stop.0.store(true, Ordering::Relaxed);
    }

    fn outcome(self, rounds: u64) -> Outcome {
        Outcome {
            checked: Checked {
                rounds,
                reads: self
                    .reads
                    .iter()
                    .map(|reads| reads.0.load(Ordering::Relaxed))
                    .sum(),
                wrong: self.violations.into_inner(),
            },
            first: self.first.into_inner().unwrap_or(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_millis(100);

    fn check(pages: usize, discard: impl Fn(&Region) -> io::Result<()>) -> Outcome {
        let cpus = machine::allowed_cpus().unwrap();
        let region = Region::new(pages).unwrap();
        run(&region, cpus[0], &cpus[1..], LENGTH, 1, discard).unwrap()
    }

    #[test]
    fn a_true_discard_passes() {
        let outcome = check(3, |region| region.discard(3));
        let Checked {
            rounds,
            reads,
            wrong,
        } = outcome.checked;
        assert_eq!(wrong, 0, "{:?}", outcome.first);
        assert!(rounds >= LEAST_ROUNDS && reads > rounds);
    }

    #[test]
    fn values_from_before_the_check_are_no_findings() {
        let region = Region::new(1).unwrap();
        region.word(0, 0).store(1, Ordering::Relaxed);
        let board = Board::new(&region, 1).unwrap();
        board.read(0, 0, 0);
        assert_eq!(board.outcome(0).checked.wrong, 0);
    }

    #[test]
    fn a_discard_that_does_nothing_is_caught() {
        let outcome = check(3, |_| Ok(()));
        assert_eq!(outcome.first.unwrap().verdict, Verdict::Stale);
        assert!(outcome.checked.wrong >= outcome.checked.rounds * 3);
    }

    #[test]
    fn a_discard_that_forgets_the_last_page_is_caught() {
        let finding = check(3, |region| region.discard(2)).first.unwrap();
        assert_eq!((finding.verdict, finding.page), (Verdict::Stale, 2));
    }
}
