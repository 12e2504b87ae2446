//! What workers share: the slots, who watches which, and what was found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use super::evidence::{Evidence, Violation};
use super::slot::Slot;

/// The most violations kept in full; all are counted.
const KEPT_VIOLATIONS: usize = 6;
/// What a worker that watches nothing watches.
const NOTHING: usize = usize::MAX;

/// Everything shared by the workers of a run.
#[derive(Debug)]
pub struct Board {
    /// The slots.
    pub slots: Vec<Slot>,
    /// One for each worker.
    pub desks: Vec<Desk>,
    /// The number of the slot that was changed last: the one worth watching.
    focus: AtomicUsize,
    /// How many workers change slots now.
    changing: AtomicUsize,
    stop: AtomicBool,
    policy: AtomicUsize,
    violations: Vec<AtomicU64>,
    kept: Mutex<Vec<Violation>>,
    failure: Mutex<Option<String>>,
    start: Instant,
}

/// What others may know of a worker; on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Desk {
    watching: AtomicUsize,
    accesses: AtomicU64,
}

impl Board {
    /// A board for `workers` workers and `policies` policies.
    pub fn new(workers: usize, policies: usize) -> Self {
        let desk = || Desk {
            watching: AtomicUsize::new(NOTHING),
            accesses: AtomicU64::new(0),
        };
        Self {
            slots: Slot::all(),
            desks: (0..workers).map(|_| desk()).collect(),
            focus: AtomicUsize::new(0),
            changing: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            policy: AtomicUsize::new(0),
            violations: (0..policies).map(|_| AtomicU64::new(0)).collect(),
            kept: Mutex::new(Vec::with_capacity(KEPT_VIOLATIONS)),
            failure: Mutex::new(None),
            start: Instant::now(),
        }
    }

    /// Whether workers must end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Makes workers end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The policy in use.
    pub fn policy(&self) -> usize {
        self.policy.load(Ordering::Relaxed)
    }

    /// Says which policy is in use.
    pub fn set_policy(&self, policy: usize) {
        self.policy.store(policy, Ordering::Relaxed);
    }

    /// The slot worth watching.
    pub fn focus(&self) -> usize {
        self.focus.load(Ordering::Relaxed)
    }

    /// Makes slot `slot` the one worth watching.
    pub fn set_focus(&self, slot: usize) {
        self.focus.store(slot, Ordering::Relaxed);
    }

    /// Joins those that change slots, unless half of all workers do already; then leave again.
    pub fn join_changing(&self) -> bool {
        let limit = (self.desks.len() / 2).max(1);
        let joined = self.changing.fetch_add(1, Ordering::Relaxed) < limit;
        if !joined {
            self.leave_changing();
        }
        joined
    }

    /// Leaves those that change slots.
    pub fn leave_changing(&self) {
        self.changing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until every other worker that watches `slot` has accessed it twice more, but at most
    /// until `expired` says so.
    ///
    /// One access may have begun before; the second one has begun after now.
    pub fn await_watchers(&self, me: usize, slot: usize, expired: impl Fn() -> bool) {
        let desks = self.desks.iter().enumerate();
        for (_, desk) in desks.filter(|&(worker, _)| worker != me) {
            let goal = desk.accesses.load(Ordering::Relaxed) + 2;
            while desk.watching.load(Ordering::Relaxed) == slot
                && desk.accesses.load(Ordering::Relaxed) < goal
                && !expired()
            {
                std::hint::spin_loop();
            }
        }
    }

    /// Records a violation.
    #[cold]
    pub fn report(&self, worker: usize, cpu: usize, evidence: Evidence) {
        let policy = self.policy();
        self.violations[policy].fetch_add(1, Ordering::Relaxed);
        let violation = Violation {
            at: self.start.elapsed(),
            policy,
            worker,
            cpu,
            evidence,
        };
        if let Ok(mut kept) = self.kept.lock()
            && kept.len() < KEPT_VIOLATIONS
        {
            kept.push(violation);
        }
    }

    /// Records that the run cannot go on, and stops it.
    #[cold]
    pub fn fail(&self, what: String) {
        if let Ok(mut failure) = self.failure.lock() {
            failure.get_or_insert(what);
        }
        self.stop();
    }

    /// How many violations there were under `policy`.
    pub fn violations(&self, policy: usize) -> u64 {
        self.violations[policy].load(Ordering::Relaxed)
    }

    /// The first few violations.
    pub fn kept(&self) -> Vec<Violation> {
        let kept = self.kept.lock();
        kept.map(|kept| kept.clone()).unwrap_or_default()
    }

    /// Why the run could not go on.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().ok().and_then(|failure| failure.clone())
    }
}

impl Desk {
    /// Says that this worker accesses `slot` from now on.
    pub fn watch(&self, slot: usize) {
        self.watching.store(slot, Ordering::Relaxed);
    }

    /// Says that this worker accesses no slot.
    pub fn look_away(&self) {
        self.watching.store(NOTHING, Ordering::Relaxed);
    }

    /// Counts one access; by this desk's worker only.
    pub fn count(&self) {
        let accesses = self.accesses.load(Ordering::Relaxed);
        self.accesses.store(accesses + 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::private::Damage;
    use super::*;

    #[test]
    fn at_most_half_of_the_workers_change_slots() {
        let board = Board::new(5, 1);
        assert!(board.join_changing() && board.join_changing());
        assert!(!board.join_changing());
        board.leave_changing();
        assert!(board.join_changing());
        let joined = Board::new(1, 1).join_changing();
        assert!(joined, "a lone worker must change slots");
    }

    #[test]
    fn waiting_for_watchers_ends_with_patience() {
        let board = Board::new(2, 1);
        board.desks[1].watch(3);
        let looks = AtomicU64::new(0);
        board.await_watchers(0, 3, || looks.fetch_add(1, Ordering::Relaxed) == 10);
        assert_eq!(looks.load(Ordering::Relaxed), 11);
        board.await_watchers(0, 4, || panic!("nobody watches slot 4"));
        board.await_watchers(1, 3, || panic!("nobody else watches slot 3"));
    }

    #[test]
    fn violations_are_counted_for_their_policy_and_the_first_are_kept() {
        let board = Board::new(1, 2);
        board.set_policy(1);
        let damage = Damage {
            page: 2,
            word: 1,
            expected: 0,
            seen: 9,
        };
        for _ in 0..KEPT_VIOLATIONS + 3 {
            board.report(0, 0, Evidence::Private(damage));
        }
        let counts = (board.violations(0), board.violations(1));
        assert_eq!(counts, (0, KEPT_VIOLATIONS as u64 + 3));
        assert_eq!(board.kept().len(), KEPT_VIOLATIONS);
        let text = board.kept()[0].to_string();
        let is_told = text.contains("own page 2 word 1 holds [0x9]; expected [zero]");
        assert!(is_told, "{text}");
    }
}
