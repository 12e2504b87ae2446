//! [`Draw`]: what one CPU's program is drawn from.

use shootdown::{Policy, Tags};

use crate::mm::world::SPACES;
use crate::mm::{PAGES_PER_TABLE, Plan, USER_PAGES};

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];

/// What a CPU may do, and how often where nothing is special.
const WEIGHTS: [(Operation, u32); 16] = [
    (Operation::Touch, 28),
    (Operation::ChangeOwn, 12),
    (Operation::ChangeAny, 18),
    (Operation::Switch, 10),
    (Operation::Lazy, 8),
    (Operation::EnterKernel, 6),
    (Operation::Poll, 3),
    (Operation::GoOffline, 2),
    (Operation::Exit, 3),
    (Operation::MapKernel, 4),
    (Operation::UnmapKernel, 4),
    (Operation::TouchKernel, 4),
    (Operation::Call, 13),
    (Operation::ChangePolicy, 2),
    (Operation::Windows, 24),
    (Operation::Rest, 2),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Touch,
    ChangeOwn,
    ChangeAny,
    Switch,
    Lazy,
    EnterKernel,
    Poll,
    GoOffline,
    Exit,
    MapKernel,
    UnmapKernel,
    TouchKernel,
    Call,
    ChangePolicy,
    Windows,
    Rest,
}

/// What is special about a run: some operations come more often, others never, and few pages or spaces make
/// the CPUs meet more often. Groce et al., "Swarm Testing", explain why that finds more than an even mix.
#[derive(Clone, Debug)]
struct Theme {
    weights: [u32; WEIGHTS.len()],
    spaces: usize,
    pages: usize,
    has_windows: bool,
}

impl Theme {
    /// Of one CPU; in every other run all CPUs do the same.
    fn of(seed: u64, cpu: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(!seed);
        let spaces = random.usize(1..=SPACES);
        let pages = [1, 2, PAGES_PER_TABLE, USER_PAGES][random.usize(..4)];
        let has_windows = random.bool();
        if random.bool() {
            random = fastrand::Rng::with_seed(!seed ^ (cpu as u64 + 1) << 32);
        }
        let weights = WEIGHTS.map(|(operation, weight)| {
            let often = [0, 1, 1, 4][random.usize(..4)];
            let never = operation == Operation::Windows && !has_windows;
            if never { 0 } else { weight * often }
        });
        Self {
            weights,
            spaces,
            pages,
            has_windows,
        }
    }

    fn operation(&self, random: &mut fastrand::Rng) -> Operation {
        let total: u32 = self.weights.iter().sum();
        let mut left = random.u32(..total.max(1));
        for (weight, (operation, _)) in self.weights.iter().zip(WEIGHTS) {
            match left.checked_sub(*weight) {
                Some(less) => left = less,
                None => return operation,
            }
        }
        Operation::Rest
    }
}

/// One CPU's source of chance.
#[derive(Debug)]
pub(super) struct Draw {
    pub(super) random: fastrand::Rng,
    theme: Theme,
}

impl Draw {
    pub(super) fn of(plan: Plan, cpu: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(plan.seed ^ (cpu as u64 + 1) << 48),
            theme: Theme::of(plan.seed, cpu),
        }
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.random.usize(..limit)
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    pub(super) fn page(&mut self) -> usize {
        self.below(self.theme.pages)
    }

    pub(super) fn place(&mut self) -> usize {
        self.below(self.theme.spaces)
    }
    pub(super) fn operation(&mut self) -> Operation {
        self.theme.operation(&mut self.random)
    }

    /// Whether the run is about windows too.
    pub(super) fn has_windows(&self) -> bool {
        self.theme.has_windows
    }

    /// How many spaces the run has at once.
    pub(super) fn spaces(&self) -> usize {
        self.theme.spaces
    }

    /// One that a host may choose: a named one, or any mixture of tags, laziness, broadcasts, deferral, merging and looks at what targets have left.
    pub(super) fn policy(&mut self) -> Policy {
        let policy = self.one_of(&POLICIES);
        if self.random.bool() {
            return policy;
        }
        let tags = self.one_of(&[Tags::None, Tags::Six, Tags::All]);
        let broadcast_from = self.below(4) as u16;
        policy
            .with_tags(tags)
            .with_lazy(self.random.bool())
            .with_broadcast_from(broadcast_from)
            .with_covered_check(self.random.bool())
            .with_deferral(self.random.bool())
            .with_merging(self.random.bool())
    }
}
