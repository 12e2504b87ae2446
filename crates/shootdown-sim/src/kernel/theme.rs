//! [`Draw`]: what one CPU's program is drawn from.

use shootdown::{Policy, tags::Tags};

use crate::explore::BackEnd;
use crate::kernel::layout::SPACES;
use crate::kernel::{GuestShare, KERNEL_REGION, PAGES_PER_TABLE, Plan, USER_PAGES};

const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];
/// CPUs that send in a siege, the neighbour of the one that gets most of it, and that one.
const BESIEGERS: usize = 2;
const NEIGHBOUR: usize = 2;
const FAVOURITE: usize = 3;
/// From so many targets on requests go through rings: mostly so few that machines with few CPUs use them.
const BROADCAST_FROM: [u16; 8] = [0, 1, 1, 2, 2, 2, 3, 4];

/// What a CPU may do, how often where nothing is special, how often in a storm of requests, where memory management is of no interest,
/// how often where flushes are all that is, and where guests are.
const WEIGHTS: [(Operation, u32, u32, u32, u32); 29] = [
    (Operation::Touch, 28, 2, 22, 8),
    (Operation::ChangeOwn, 12, 4, 20, 3),
    (Operation::ChangeAny, 18, 4, 20, 5),
    (Operation::Switch, 10, 4, 12, 5),
    (Operation::Lazy, 8, 0, 4, 2),
    (Operation::EnterKernel, 6, 0, 10, 1),
    (Operation::Poll, 3, 3, 1, 2),
    (Operation::GoOffline, 2, 5, 1, 4),
    (Operation::Exit, 3, 0, 12, 2),
    (Operation::MapKernel, 4, 6, 1, 1),
    (Operation::UnmapKernel, 4, 6, 1, 2),
    (Operation::TouchKernel, 4, 1, 1, 1),
    (Operation::Call, 13, 24, 1, 4),
    (Operation::HoldRequests, 3, 16, 0, 1),
    (Operation::Stretch, 2, 8, 8, 3),
    (Operation::ChangePolicy, 2, 3, 2, 4),
    (Operation::Windows, 24, 0, 0, 0),
    (Operation::Rest, 2, 1, 1, 1),
    // Last: what is drawn for the others does not depend on them.
    (Operation::Guests, 30, 10, 20, 60),
    (Operation::Firmware, 8, 2, 8, 3),
    (Operation::Walk, 30, 6, 30, 10),
    (Operation::ReplaceSideTable, 12, 2, 12, 3),
    (Operation::Listen, 24, 4, 24, 6),
    (Operation::UseShadow, 24, 4, 24, 6),
    (Operation::Reclaim, 24, 6, 24, 8),
    (Operation::Control, 60, 12, 40, 10),
    (Operation::Quiet, 60, 12, 40, 10),
    (Operation::GiveUp, 40, 30, 10, 6),
    (Operation::Reach, 80, 12, 80, 20),
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
    HoldRequests,
    Stretch,
    ChangePolicy,
    Windows,
    Rest,
    Guests,
    Firmware,
    Walk,
    ReplaceSideTable,
    Listen,
    UseShadow,
    Reclaim,
    Control,
    Quiet,
    GiveUp,
    Reach,
}

/// What a run is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Matter {
    /// Memory management.
    Memory,
    /// Flushes of few spaces, by a back end.
    Flushes,
    /// Many requests at once.
    Storm,
    /// Guests.
    Guests,
    /// Requests of two CPUs to a pair of neighbours and some others: the one gets most and answers, the other is late, and others later.
    Siege,
}

impl Matter {
    /// A siege finds little else than what it is for, and takes three times the events of another run.
    fn of(seed: u64, guests: GuestShare) -> Self {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x51e6_e000);
        match random.u8(..20) {
            _ if guests == GuestShare::Most => Self::Guests,
            _ if BackEnd::of_seed(seed) != BackEnd::None && random.u8(..4) > 0 => Self::Flushes,
            0 => Self::Siege,
            1..6 => Self::Storm,
            _ => Self::Memory,
        }
    }
}

/// What is special about a run: some operations come more often, others never, and few pages or spaces make
/// the CPUs meet more often. Groce et al., "Swarm Testing", explain why that finds more than an even mix.
#[derive(Clone, Debug)]
struct Theme {
    weights: [u32; WEIGHTS.len()],
    spaces: usize,
    pages: usize,
    has_windows: bool,
    has_secondary: bool,
    tracks: bool,
    matter: Matter,
    guests: GuestShare,
    vms: usize,
}

impl Theme {
    /// Of one CPU; in every other run all CPUs do the same.
    fn of(plan: Plan, cpu: usize) -> Self {
        let Plan {
            seed,
            guests,
            tracks,
            ..
        } = plan;
        let matter = Matter::of(seed, guests);
        let mut random = fastrand::Rng::with_seed(!seed);
        let spaces = match random.usize(1..=SPACES) {
            spaces if matter == Matter::Flushes || tracks => spaces.min(2),
            spaces => spaces,
        };
        let pages = [1, 2, PAGES_PER_TABLE, USER_PAGES][random.usize(..4)];
        let has_windows = random.bool() && !matches!(matter, Matter::Flushes | Matter::Guests);
        if random.bool() {
            random = fastrand::Rng::with_seed(!seed ^ (cpu as u64 + 1) << 32);
        }
        let churns = Plan::churns(seed);
        let has_walks = fastrand::Rng::with_seed(seed ^ 0x3a1c).u8(..4) == 0;
        let has_secondary = Plan::has_secondary(seed);
        let has_controls = fastrand::Rng::with_seed(seed ^ 0xa5c).u8(..4) == 0;
        let has_quiet = Plan::has_quiet(seed);
        let gives_up = fastrand::Rng::with_seed(seed ^ 0x91fe).u8(..4) == 0;
        let has_firmware = fastrand::Rng::with_seed(seed ^ 0xf1f0).u8(..4) == 0;
        let weights = WEIGHTS.map(|(operation, usual, in_storm, flushing, with_guests)| {
            let often = [0, 1, 1, 4][random.usize(..4)];
            match matter {
                _ if operation == Operation::Guests && guests == GuestShare::None => 0,
                _ if operation == Operation::Firmware && !has_firmware => 0,
                _ if operation == Operation::Control && !has_controls => 0,
                _ if operation == Operation::Quiet && !has_quiet => 0,
                _ if operation == Operation::GiveUp && !gives_up => 0,
                _ if operation == Operation::Reach && !tracks => 0,
                _ if is_of_walks(operation) && !has_walks => 0,
                _ if is_of_secondary(operation) && !has_secondary => 0,
                Matter::Memory if operation == Operation::Windows && !has_windows => 0,
                Matter::Memory if churns && is_of_kernel(operation) => CHURNING * often.max(1),
                Matter::Memory => usual * often,
                Matter::Storm => in_storm * often,
                Matter::Flushes => flushing * often,
                Matter::Guests if operation == Operation::Guests => with_guests,
                Matter::Guests => with_guests * often,
                Matter::Siege => weight_in_siege(operation, cpu),
            }
        });
        Self {
            weights,
            spaces,
            pages,
            has_windows,
            has_secondary,
            tracks,
            matter,
            guests,
            vms: guests.most_vms(seed),
        }
    }

    fn operation(&self, random: &mut fastrand::Rng) -> Operation {
        let total: u32 = self.weights.iter().sum();
        let mut left = random.u32(..total.max(1));
        for (weight, (operation, ..)) in self.weights.iter().zip(WEIGHTS) {
            match left.checked_sub(*weight) {
                Some(less) => left = less,
                None => return operation,
            }
        }
        Operation::Rest
    }
}

/// How often a CPU does something with the kernel's pages where these churn.
const CHURNING: u32 = 24;

fn is_of_walks(operation: Operation) -> bool {
    matches!(operation, Operation::Walk | Operation::ReplaceSideTable)
}

fn is_of_secondary(operation: Operation) -> bool {
    use Operation::{Listen, Reclaim, UseShadow};
    matches!(operation, Listen | Reclaim | UseShadow)
}

fn is_of_kernel(operation: Operation) -> bool {
    use Operation::{MapKernel, TouchKernel, UnmapKernel};
    matches!(operation, MapKernel | TouchKernel | UnmapKernel)
}

/// How often a CPU does something in a siege.
fn weight_in_siege(operation: Operation, cpu: usize) -> u32 {
    match (operation, cpu < BESIEGERS) {
        (Operation::HoldRequests, true) => 12,
        (Operation::MapKernel | Operation::UnmapKernel, _) => 1,
        // The favourite looks soon, its neighbour not always.
        (Operation::Stretch, false) => 4 * u32::from(cpu != FAVOURITE),
        (Operation::Rest, false) => 6,
        (Operation::Call, false) => 1,
        _ => 0,
    }
}

/// One CPU's source of chance.
#[derive(Debug)]
pub(super) struct Draw {
    pub(super) random: fastrand::Rng,
    theme: Theme,
}

impl Plan {
    /// Whether the kernel maps and unmaps at one address in the run of a seed, again and again, as it does with stacks.
    pub fn churns(seed: u64) -> bool {
        fastrand::Rng::with_seed(seed ^ 0xc4a2).u8(..6) == 0
    }

    /// Whether the run of a seed is about what keeps translations besides CPUs, and about the reclaim of memory, too.
    pub fn has_secondary(seed: u64) -> bool {
        fastrand::Rng::with_seed(seed ^ 0x5ec0).u8(..4) == 0
    }

    /// Whether spaces may be tracked in the run of a seed.
    pub fn tracks(seed: u64) -> bool {
        fastrand::Rng::with_seed(seed ^ 0x4eac).u8(..4) == 0
    }

    /// Whether CPUs may be quiet in the run of a seed.
    pub fn has_quiet(seed: u64) -> bool {
        fastrand::Rng::with_seed(seed ^ 0x91e7).u8(..4) == 0
    }

    /// Whether the run of a seed is a siege, which wants a machine whose CPUs are neighbours.
    pub fn is_siege(seed: u64, guests: GuestShare) -> bool {
        Matter::of(seed, guests) == Matter::Siege
    }

    /// Whether CPUs may have windows in the run of a seed.
    pub fn has_windows(seed: u64, guests: GuestShare) -> bool {
        let plan = Self {
            seed,
            operations: 0,
            guests,
            tracks: false,
        };
        Theme::of(plan, 0).has_windows
    }

    /// How many of `usual` operations the run of a seed has.
    pub fn operations_of(seed: u64, guests: GuestShare, usual: u32) -> u32 {
        match Matter::of(seed, guests) {
            Matter::Memory | Matter::Guests => usual,
            Matter::Flushes => usual * 3 / 2,
            // Each takes more events.
            Matter::Storm | Matter::Siege => usual.div_ceil(2),
        }
    }
}

impl Draw {
    pub(super) fn of(plan: Plan, cpu: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(plan.seed ^ (cpu as u64 + 1) << 48),
            theme: Theme::of(plan, cpu),
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
        let page = self.below(self.theme.pages);
        match self.tracks() {
            // In all regions alike.
            true => page % PAGES_PER_TABLE + self.below(KERNEL_REGION) * PAGES_PER_TABLE,
            false => page,
        }
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

    /// See [`Plan::has_secondary`].
    pub(super) fn has_secondary(&self) -> bool {
        self.theme.has_secondary
    }

    /// Whether spaces may be tracked.
    pub(super) fn tracks(&self) -> bool {
        self.theme.tracks
    }

    /// Whether the run is about guests too.
    pub(super) fn has_guests(&self) -> bool {
        self.theme.guests != GuestShare::None
    }

    /// The place of a virtual machine.
    pub(super) fn vm_place(&mut self) -> usize {
        self.below(self.theme.vms)
    }

    /// Whether the run is about requests, many at once to many CPUs.
    pub(super) fn is_storm(&self) -> bool {
        matches!(self.theme.matter, Matter::Storm | Matter::Siege)
    }

    fn is_siege(&self) -> bool {
        self.theme.matter == Matter::Siege
    }

    /// The CPU that gets most requests of a task that sends many.
    pub(super) fn favourite(&mut self, cpus: usize) -> usize {
        match self.is_siege() {
            true => FAVOURITE.min(cpus - 1),
            false => self.below(cpus),
        }
    }

    /// Whether a request names this CPU.
    pub(super) fn names(&mut self, cpu: usize) -> bool {
        match self.is_siege() {
            true => matches!(cpu, NEIGHBOUR | FAVOURITE) || self.once_in(3),
            false => self.random.bool(),
        }
    }

    /// How many spaces the run has at once.
    pub(super) fn spaces(&self) -> usize {
        self.theme.spaces
    }

    /// One that a host may choose: a named one, or any mixture of tags, laziness, broadcasts, deferral, preemptible waits
    /// and flushes out of order.
    pub(super) fn policy(&mut self) -> Policy {
        let policy = self.one_of(&POLICIES);
        if self.once_in(4) && !self.is_siege() {
            return policy;
        }
        let tags = self.one_of(&[Tags::None, Tags::Six, Tags::All]);
        let broadcast_from = match self.is_siege() {
            true => self.one_of(&[1, 1, 2]),
            false => self.one_of(&BROADCAST_FROM),
        };
        policy
            .with_tags(tags)
            .with_lazy(self.random.bool())
            .with_broadcast_from(broadcast_from)
            .with_deferral(self.random.bool())
            .with_preemptible_waits(self.random.bool())
            .with_out_of_order(self.random.bool())
    }
}
