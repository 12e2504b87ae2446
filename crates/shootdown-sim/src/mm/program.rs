//! What each CPU does: a list of operations drawn from a seed.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Policy, Wait};

use crate::machine::context;
use crate::mm::calls::Call;
use crate::mm::world::SPACES;
use crate::mm::{KERNEL_REGION, PAGES_PER_TABLE, USER_PAGES, World};

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

impl<const N: usize> World<N>
where
    Cpus<N>: Capacity,
{
    /// The program of the CPU that calls this.
    pub fn run(&self, plan: Plan) {
        let me = context().cpu();
        let mut random = fastrand::Rng::with_seed(plan.seed ^ (me as u64 + 1) << 48);
        if me > 0 {
            for _ in 0..random.u64(..LATEST_ONLINE) {
                context().work(1);
            }
        }
        self.come_online(me);
        if me == 0 {
            let policies = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];
            self.engine
                .set_policy(policies[random.usize(..policies.len())]);
        }
        for _ in 0..plan.operations {
            self.operation(&mut random);
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

    fn operation(&self, random: &mut fastrand::Rng) {
        match random.u32(..100) {
            0..28 => self.touch(random.usize(..USER_PAGES), random.bool()),
            28..40 => self.change_own(random),
            40..58 => self.change_any(random),
            58..68 => self.switch_somewhere(random),
            68..71 => self.exit(random.usize(..SPACES)),
            71..75 => self.map_kernel(random.usize(..PAGES_PER_TABLE)),
            75..79 => {
                let off = random.u32(..4) == 0;
                let index = random.usize(..PAGES_PER_TABLE);
                self.with_interrupts(off, || self.unmap_kernel(index));
            }
            79..83 => self.touch_kernel(random.usize(..PAGES_PER_TABLE)),
            83..96 => self.call_somebody(random),
            96..98 => self.change_policy(random),
            _ => self.rest(random),
        }
    }

    /// Changes the space that is loaded here, as user code's system calls do.
    fn change_own(&self, random: &mut fastrand::Rng) {
        let me = context().cpu();
        let Some(space) = self.current[me].borrow().clone() else {
            return self.switch_somewhere(random);
        };
        self.change(&space, random);
    }

    /// Changes any space, loaded here or not (reclaim, a debugger).
    fn change_any(&self, random: &mut fastrand::Rng) {
        if let Some(space) = self.get_space(random.usize(..SPACES)) {
            self.change(&space, random);
            self.put_space(space);
        }
    }

    fn change(&self, space: &super::Space<N>, random: &mut fastrand::Rng) {
        let page = random.usize(..USER_PAGES);
        let off = random.u32(..6) == 0;
        match random.u32(..10) {
            0..4 => self.map(space, page, random.u32(..4) > 0),
            4..8 => {
                let region = random.usize(..KERNEL_REGION);
                let pages = 1 << random.u32(..4) | 1 << random.u32(..4) | random.u8(..16);
                let prunes = random.bool();
                self.with_interrupts(off, || self.unmap(space, region, pages, prunes));
            }
            8 => self.with_interrupts(off, || self.protect(space, page)),
            _ => self.fork(space),
        }
    }

    fn switch_somewhere(&self, random: &mut fastrand::Rng) {
        if random.u32(..5) == 0 {
            return self.switch(None);
        }
        let place = random.usize(..SPACES);
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
        for _ in 0..random.u32(..3) {
            self.map(&next, random.usize(..USER_PAGES), true);
        }
    }

    fn call_somebody(&self, random: &mut fastrand::Rng) {
        let wanted: CpuMask<N> = (0..self.online.len())
            .filter(|_| random.bool())
            .map(|cpu| CpuId::new(cpu as u32))
            .collect();
        let off = random.u32(..4) == 0;
        let calls = [Call::All, Call::Many, Call::One, Call::If];
        let waits = [Wait::None, Wait::Received, Wait::Done];
        match random.u32(..8) {
            0..4 => {
                let call = calls[random.usize(..calls.len())];
                self.with_interrupts(off, || self.call(call, &wanted));
            }
            4..7 => {
                let wait = waits[random.usize(..waits.len())];
                self.with_interrupts(off, || self.post(&wanted, Some(wait)));
            }
            _ => self.post(&wanted, None),
        }
    }

    fn change_policy(&self, random: &mut fastrand::Rng) {
        let policies = [Policy::BEFORE, Policy::PUBLISHED, Policy::BEST];
        let policy = policies[random.usize(..policies.len())];
        self.engine.set_policy(policy.with_multicast(random.bool()));
    }

    /// Nothing loaded, nothing to do, for a while.
    fn rest(&self, random: &mut fastrand::Rng) {
        if random.bool() {
            self.switch(None);
        }
        for _ in 0..random.u32(..20) {
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
