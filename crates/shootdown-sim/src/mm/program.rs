//! What each CPU does: a list of operations drawn from a seed.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Policy, Wait};

use crate::machine::context;
use crate::mm::calls::Call;
use crate::mm::world::SPACES;
use crate::mm::{PAGES_PER_TABLE, USER_PAGES, World};

/// How much the CPUs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Draws the operations.
    pub seed: u64,
    /// Operations of each CPU.
    pub operations: u32,
}

/// A CPU comes online after so many idle events, at most.
const LATEST_ONLINE: u64 = 40;
/// The policies that a host may choose.
const POLICIES: [Policy; 3] = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];

/// What a CPU may do, and how often where nothing is special.
const WEIGHTS: [(Operation, u32); 11] = [
    (Operation::Touch, 28),
    (Operation::ChangeOwn, 12),
    (Operation::ChangeAny, 18),
    (Operation::Switch, 10),
    (Operation::Exit, 3),
    (Operation::MapKernel, 4),
    (Operation::UnmapKernel, 4),
    (Operation::TouchKernel, 4),
    (Operation::Call, 13),
    (Operation::ChangePolicy, 2),
    (Operation::Rest, 2),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Touch,
    ChangeOwn,
    ChangeAny,
    Switch,
    Exit,
    MapKernel,
    UnmapKernel,
    TouchKernel,
    Call,
    ChangePolicy,
    Rest,
}

/// What is special about a run: some operations come more often, others never, and few pages or spaces make
/// the CPUs meet more often. Groce et al., "Swarm Testing", explain why that finds more than an even mix.
#[derive(Clone, Debug)]
struct Theme {
    weights: [u32; WEIGHTS.len()],
    spaces: usize,
    pages: usize,
}

impl Theme {
    /// Of one CPU; in every other run all CPUs do the same.
    fn of(seed: u64, cpu: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(!seed);
        let spaces = random.usize(1..=SPACES);
        let pages = [1, 2, PAGES_PER_TABLE, USER_PAGES][random.usize(..4)];
        if random.bool() {
            random = fastrand::Rng::with_seed(!seed ^ (cpu as u64 + 1) << 32);
        }
        Self {
            weights: WEIGHTS.map(|(_, weight)| weight * [0, 1, 1, 4][random.usize(..4)]),
            spaces,
            pages,
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
struct Draw {
    random: fastrand::Rng,
    theme: Theme,
}

impl Draw {
    fn of(plan: Plan, cpu: usize) -> Self {
        Self {
            random: fastrand::Rng::with_seed(plan.seed ^ (cpu as u64 + 1) << 48),
            theme: Theme::of(plan.seed, cpu),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.usize(..limit)
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.below(things.len())]
    }

    fn page(&mut self) -> usize {
        self.below(self.theme.pages)
    }

    fn place(&mut self) -> usize {
        self.below(self.theme.spaces)
    }
}

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// The program of the CPU that calls this.
    pub fn run(&self, plan: Plan) {
        let me = context().cpu();
        let mut draw = Draw::of(plan, me);
        if me > 0 {
            for _ in 0..draw.random.u64(..LATEST_ONLINE) {
                context().work(1);
            }
        }
        self.come_online(me);
        if me == 0 {
            self.engine.set_policy(draw.one_of(&POLICIES));
        }
        for _ in 0..plan.operations {
            let operation = draw.theme.operation(&mut draw.random);
            self.operate(operation, &mut draw);
        }
        self.switch(None);
    }

    fn come_online(&self, me: usize) {
        self.with_interrupts(true, || {
            self.engine.online();
            self.online[me].set(true);
            self.check_fresh(me);
        });
    }

    fn operate(&self, operation: Operation, draw: &mut Draw) {
        let index = draw.below(PAGES_PER_TABLE);
        match operation {
            Operation::Touch => {
                let writes = draw.random.bool();
                self.touch(draw.page(), writes);
            }
            Operation::ChangeOwn => self.change_own(draw),
            Operation::ChangeAny => self.change_any(draw),
            Operation::Switch => self.switch_somewhere(draw),
            Operation::Exit => self.exit(draw.place()),
            Operation::MapKernel => self.map_kernel(index),
            Operation::UnmapKernel => {
                let widely = draw.once_in(3);
                let off = draw.once_in(4);
                self.with_interrupts(off, || self.unmap_kernel(index, widely));
            }
            Operation::TouchKernel => self.touch_kernel(index),
            Operation::Call => self.call_somebody(draw),
            Operation::ChangePolicy => {
                let policy = draw.one_of(&POLICIES);
                let multicast = draw.random.bool();
                self.engine.set_policy(policy.with_multicast(multicast));
            }
            Operation::Rest => self.rest(draw),
        }
    }

    /// Changes the space that is loaded here, as user code's system calls do.
    fn change_own(&self, draw: &mut Draw) {
        let me = context().cpu();
        let space = self.current[me].borrow().clone();
        match space {
            Some(space) => self.change(&space, draw),
            None => self.switch_somewhere(draw),
        }
    }

    /// Changes any space, loaded here or not (reclaim, a debugger).
    fn change_any(&self, draw: &mut Draw) {
        if let Some(space) = self.get_space(draw.place()) {
            self.change(&space, draw);
            self.put_space(space);
        }
    }

    fn change(&self, space: &super::Space<N>, draw: &mut Draw) {
        let page = draw.page();
        let off = draw.once_in(6);
        match draw.below(10) {
            0..4 => self.map(space, page, !draw.once_in(4)),
            4..8 => {
                let pages = 1 << (page % PAGES_PER_TABLE) | draw.random.u8(..16);
                let prunes = draw.random.bool();
                let region = page / PAGES_PER_TABLE;
                self.with_interrupts(off, || self.unmap(space, region, pages, prunes));
            }
            8 => {
                let drops = draw.random.bool();
                self.with_interrupts(off, || self.protect(space, page, drops));
            }
            _ => self.fork(space),
        }
    }

    fn switch_somewhere(&self, draw: &mut Draw) {
        // With few spaces, leaving is half of all switching.
        if draw.once_in(draw.theme.spaces + 1) {
            return self.switch(None);
        }
        let place = draw.place();
        let next = self.get_space(place).or_else(|| {
            let fresh = self.new_space()?;
            if let Err(fresh) = self.publish_space(fresh) {
                self.put_space(fresh);
            }
            self.get_space(place)
        });
        let Some(next) = next else {
            return;
        };
        self.switch(Some(next.clone()));
        // So that there is something to go stale.
        for _ in 0..draw.below(3) {
            self.map(&next, draw.page(), true);
        }
    }

    fn call_somebody(&self, draw: &mut Draw) {
        let wanted: CpuMask<N> = (0..self.online.len())
            .filter(|_| draw.random.bool())
            .map(|cpu| CpuId::new(cpu as u32))
            .collect();
        let off = draw.once_in(4);
        let wait = draw.one_of(&[Wait::None, Wait::Received, Wait::Done]);
        match draw.below(8) {
            0..4 => {
                let call = draw.one_of(&[Call::All, Call::Many, Call::One, Call::If]);
                self.with_interrupts(off, || self.call(call, &wanted));
            }
            4 => self.with_interrupts(off, || self.call_and_flush(&wanted)),
            5..7 => {
                let drops = draw.random.bool();
                self.with_interrupts(off, || self.submit(&wanted, wait, drops));
            }
            _ => self.try_post(&wanted),
        }
    }

    /// Nothing loaded, nothing to do, for a while.
    fn rest(&self, draw: &mut Draw) {
        if draw.random.bool() {
            self.switch(None);
        }
        for _ in 0..draw.below(20) {
            context().work(1);
        }
    }

    /// What must hold when all programs are over and no interrupt is left.
    ///
    /// # Errors
    /// What does not.
    pub fn check_end(&self) -> Result<(), String> {
        self.check_all_posted()
    }
}
