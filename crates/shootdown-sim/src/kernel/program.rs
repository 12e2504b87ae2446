//! What each CPU does: a list of operations drawn from a seed.

use shootdown::{Capacity, Policy};

use crate::kernel::layout::SPACES;
use crate::kernel::map::BATCH;
use crate::kernel::theme::{Draw, Operation};
use crate::kernel::{GuestShare, PAGES_PER_TABLE, World};
use crate::machine::context;

/// How much the CPUs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Draws the operations.
    pub seed: u64,
    /// Operations of each CPU.
    pub operations: u32,
    /// How much of it all is about guests.
    pub guests: GuestShare,
    /// Whether spaces may be tracked.
    pub tracks: bool,
}

/// A CPU comes online after so many idle events, at most.
const LATEST_ONLINE: u64 = 40;
/// A CPU idles for so many events, at most.
const LONGEST_IDLE: usize = 20;

impl<C: Capacity> World<C> {
    /// The program of the CPU that calls this.
    pub fn run(&self, plan: Plan) {
        let me = context().cpu();
        let mut draw = Draw::of(plan, me);
        // No thread runs on a CPU that is not online.
        context().preempt_disable();
        if me > 0 {
            self.start_processor();
            for _ in 0..draw.random.u64(..LATEST_ONLINE) {
                context().work(1);
            }
            self.act_unseen(&mut draw);
        }
        self.come_online(me);
        context().preempt_enable();
        if me == 0 {
            self.set_policy(draw.policy());
        }
        for _ in 0..plan.operations {
            let operation = draw.operation();
            self.operate(operation, &mut draw);
        }
        self.switch(None);
        // Somebody must stay for the threads.
        if draw.once_in(4) && (me > 0 || self.threads_left.get() == 0) {
            self.leave_for_good(&mut draw);
        } else {
            self.finish();
            self.run_threads_to_the_end();
        }
    }

    fn set_policy(&self, policy: Policy) {
        let policy = policy.with_global_tags_from(self.global_tags_from);
        self.engine.set_policy(policy);
    }

    /// A program is over. The last one ends all spaces.
    pub(super) fn finish(&self) {
        self.busy.set(self.busy.get() - 1);
        if self.busy.get() == 0 {
            while self.free_handed() {}
            self.flush_parked(self.kernel_lock.take(&self.engine));
            (0..SPACES).for_each(|place| self.exit(place));
            self.end_all_vms();
        }
    }

    fn operate(&self, operation: Operation, draw: &mut Draw) {
        let index = draw.below(PAGES_PER_TABLE);
        match operation {
            Operation::Touch => {
                let writes = draw.random.bool();
                self.wake();
                self.touch(draw.page(), writes);
            }
            Operation::ChangeOwn => self.change_own(draw),
            Operation::ChangeAny => self.change_any(draw),
            Operation::Switch => self.switch_somewhere(draw),
            Operation::Lazy => self.idle_lazily(draw),
            Operation::EnterKernel => {
                self.wake();
                self.enter_kernel();
                if draw.random.bool() {
                    self.rest_awhile(draw);
                    self.touch(draw.page(), false);
                }
            }
            Operation::Poll => self.poll_idly(draw.below(LONGEST_IDLE)),
            Operation::GoOffline => self.go_offline(draw),
            Operation::Exit => self.exit(draw.place()),
            Operation::MapKernel if self.kernel_addresses == 1 => self.map_kernel_late(draw),
            Operation::MapKernel => self.map_kernel(index),
            Operation::UnmapKernel => {
                let widely = draw.once_in(3);
                let off = draw.once_in(4);
                self.with_interrupts(off, || self.unmap_kernel(index, widely));
            }
            Operation::TouchKernel => self.touch_kernel(index),
            Operation::Call => {
                self.call_somebody(draw);
                self.use_second_engine(draw);
            }
            Operation::HoldRequests => self.hold_requests(draw),
            Operation::Stretch => self.keep_interrupts_off(draw.below(usize::MAX)),
            Operation::ChangePolicy => self.set_policy(draw.policy()),
            Operation::Windows => self.use_windows(draw),
            Operation::Rest => self.rest(draw),
            Operation::Guests => self.use_guests(draw),
            Operation::Firmware => self.call_firmware(draw),
            Operation::Walk => self.walk_tables(draw),
            Operation::ReplaceSideTable => self.replace_side_table(draw),
            Operation::Listen => self.change_listener(draw),
            Operation::UseShadow => self.use_shadow(draw),
            Operation::Reclaim => self.reclaim(draw),
            Operation::Control => self.control(draw),
            Operation::Quiet => self.run_quietly(draw),
            Operation::GiveUp => self.give_up_calls(draw),
            Operation::Reach => self.use_reach(draw),
        }
    }

    /// Comes to map something with interrupts off, so that a flush of what was there waits for this CPU meanwhile.
    fn map_kernel_late(&self, draw: &mut Draw) {
        self.with_interrupts(true, || {
            self.rest_awhile(draw);
            self.map_kernel(0);
        });
    }

    /// Changes the space that is loaded here, as user code's system calls do.
    fn change_own(&self, draw: &mut Draw) {
        let me = context().cpu();
        let space = self.current[me].borrow().clone();
        match space {
            // A kernel thread, which may work on the space that it borrows.
            Some(space) if self.is_lazy[me].get() => {
                if self.revive(&space) {
                    self.change(&space, draw);
                    self.put_space(space);
                }
            }
            Some(space) => self.change(&space, draw),
            None => self.switch_somewhere(draw),
        }
    }

    /// Changes any space, loaded here or not (reclaim, a debugger).
    pub(super) fn change_any(&self, draw: &mut Draw) {
        if draw.has_guests() && draw.once_in(2) {
            return self.change_some_vm(draw);
        }
        if let Some(space) = self.get_space(draw.place()) {
            self.change(&space, draw);
            self.put_space(space);
        }
    }

    fn change(&self, space: &super::Space<C>, draw: &mut Draw) {
        let page = draw.page();
        let off = draw.once_in(6);
        match draw.below(10) {
            0..4 => self.map(space, page, !draw.once_in(4)),
            4..8 => {
                let pages = 1 << (page % PAGES_PER_TABLE) | draw.random.u8(..16);
                let prunes = draw.random.bool();
                let region = page / PAGES_PER_TABLE;
                let room = match self.has_guards {
                    true => draw.below(2 * BATCH),
                    false => 0,
                };
                self.with_interrupts(off, || match self.has_guards {
                    true => self.unmap_guarded(space, region, pages, (prunes, room)),
                    false => self.unmap(space, region, pages, prunes),
                });
            }
            8 => {
                let drops = draw.random.bool();
                self.with_interrupts(off, || self.protect(space, page, drops));
            }
            _ => self.fork(space),
        }
    }

    pub(super) fn switch_somewhere(&self, draw: &mut Draw) {
        // With few spaces, leaving is half of all switching.
        if draw.once_in(draw.spaces() + 1) {
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
        if draw.tracks() && draw.random.bool() {
            self.switch_to_own(next.clone(), draw);
        } else if draw.has_windows() && draw.random.bool() {
            self.switch_to_windows(next.clone());
        } else {
            self.switch(Some(next.clone()));
        }
        if draw.once_in(3) {
            // As every kernel does, whatever is loaded.
            self.touch_kernel(draw.below(PAGES_PER_TABLE));
        }
        // So that there is something to go stale.
        for _ in 0..draw.below(3) {
            self.map(&next, draw.page(), true);
        }
    }

    /// No user code for a while; then, as likely as not, what was there before.
    fn idle_lazily(&self, draw: &mut Draw) {
        self.enter_lazy();
        self.rest_awhile(draw);
        for _ in 0..draw.below(3) {
            self.wake();
            self.touch(draw.page(), false);
            // And soon idle again, as tasks are that wait for each other.
            self.enter_lazy();
        }
    }

    pub(super) fn rest_awhile(&self, draw: &mut Draw) {
        for _ in 0..draw.below(LONGEST_IDLE) {
            context().work(1);
            self.check_under_host_root();
        }
    }

    /// Others go on, for not so long.
    pub(super) fn rest_awhile_at_most(&self, draw: &mut Draw, events: usize) {
        (0..draw.below(events)).for_each(|_| context().work(1));
    }

    /// Nothing loaded, nothing to do, for a while.
    fn rest(&self, draw: &mut Draw) {
        if draw.random.bool() {
            self.switch(None);
        }
        self.rest_awhile(draw);
    }

    /// What must hold when all programs are over and no interrupt is left.
    ///
    /// # Errors
    /// What does not.
    pub fn check_end(&self) -> Result<(), String> {
        self.check_all_posted()?;
        self.data.check()?;
        self.check_all_freed()
    }
}
