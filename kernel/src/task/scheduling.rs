//! By what rule a thread gets a CPU, and how urgent it is.
//!
//! As on Linux: `SCHED_FIFO` and `SCHED_RR` threads have priorities 1 to 99 and come before all others, whatever
//! that does to the others; of equal ones the first runs until it sleeps or yields (`SCHED_FIFO`), or has had its slice
//! (`SCHED_RR`). `SCHED_OTHER` threads take turns below them.

/// How long a thread runs before others on its CPU get their turn.
pub const SLICE_NS: u64 = 10_000_000;

/// How urgent a thread is: more is more. Twice the number that Linux gives it, and one more for a thread that has just woken up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Priority(u8);

impl Priority {
    /// Threads that take turns.
    pub const NORMAL: Self = Self(0);
    /// One of them that has just woken up, see [`WakeBudget`](super::wake_budget::WakeBudget).
    pub const AWAKE: Self = Self(1);
    /// The least and the most that real-time threads may have.
    pub const REAL_TIME: core::ops::RangeInclusive<u32> = 1..=99;

    /// The number that Linux gives it.
    pub const fn as_u32(self) -> u32 {
        (self.0 / 2) as u32
    }

    /// Comes before all threads that take turns.
    pub const fn is_real_time(self) -> bool {
        self.0 > Self::AWAKE.0
    }
}

/// Among threads of one priority, who is next?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// `SCHED_OTHER`: all take turns; no priorities.
    Normal,
    /// `SCHED_FIFO`: whoever came first, until it sleeps or yields.
    Fifo,
    /// `SCHED_RR`: they take turns.
    RoundRobin,
}

/// What a thread is scheduled by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheduling {
    rule: Rule,
    priority: Priority,
    /// Its children start as normal threads (`SCHED_RESET_ON_FORK`).
    resets_on_fork: bool,
}

impl Scheduling {
    /// How the first thread starts.
    pub const NORMAL: Self = Self {
        rule: Rule::Normal,
        priority: Priority::NORMAL,
        resets_on_fork: false,
    };

    /// `None` when the rule does not go with the priority: normal threads have 0.
    pub fn new(rule: Rule, priority: u32, resets_on_fork: bool) -> Option<Self> {
        let fits = match rule {
            Rule::Normal => priority == 0,
            Rule::Fifo | Rule::RoundRobin => Priority::REAL_TIME.contains(&priority),
        };
        fits.then(|| Self {
            rule,
            priority: Priority(2 * priority as u8),
            resets_on_fork,
        })
    }

    /// The rule.
    pub const fn rule(self) -> Rule {
        self.rule
    }

    /// How urgent.
    pub const fn priority(self) -> Priority {
        self.priority
    }

    /// Whether children start as normal threads.
    pub const fn resets_on_fork(self) -> bool {
        self.resets_on_fork
    }

    /// Whether the thread's turn ends when its slice is over.
    pub const fn has_slices(self) -> bool {
        !matches!(self.rule, Rule::Fifo)
    }

    /// What a new thread or process starts with.
    #[must_use]
    pub const fn of_child(self) -> Self {
        if self.resets_on_fork {
            Self::NORMAL
        } else {
            self
        }
    }

    /// As one word, to be kept in an atomic.
    pub const fn to_bits(self) -> u32 {
        self.priority.0 as u32 | (self.rule as u32) << 8 | (self.resets_on_fork as u32) << 16
    }

    /// From [`to_bits`](Self::to_bits).
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            rule: match bits >> 8 & 0xff {
                0 => Rule::Normal,
                1 => Rule::Fifo,
                _ => Rule::RoundRobin,
            },
            priority: Priority(bits as u8),
            resets_on_fork: bits >> 16 != 0,
        }
    }
}

/// The priority of somebody who may not be there, kept where others read it without a lock.
#[derive(Debug)]
pub struct PriorityHint(core::sync::atomic::AtomicU8);

impl PriorityHint {
    /// Nobody is there.
    pub const fn nobody() -> Self {
        Self(core::sync::atomic::AtomicU8::new(0))
    }

    /// Whoever is there, at some recent moment. Nobody is less than anybody.
    pub fn get(&self) -> Option<Priority> {
        let hint = self.0.load(core::sync::atomic::Ordering::Relaxed);
        hint.checked_sub(1).map(Priority)
    }

    /// Changes it.
    pub fn set(&self, priority: Option<Priority>) {
        let hint = priority.map_or(0, |priority| priority.0 + 1);
        self.0.store(hint, core::sync::atomic::Ordering::Relaxed);
    }
}
