//! Kernel threads: tasks without a space of their own, which lose their CPU wherever a kernel may take it, and go on on
//! any other. They change spaces, flush and call like the programs of the CPUs, so every wait may end elsewhere, and
//! several tasks of a CPU have requests under way.

use shootdown::{Capacity, FlushRange, FlushScope, FreedTables, PageSize, calls::Wait};

use crate::explore::Question;
use crate::kernel::layout::{address_of, kernel_page};
use crate::kernel::theme::Draw;
use crate::kernel::{PAGES_PER_TABLE, Plan, World};
use crate::machine::{Context, Host, context};

/// Events between the sending of a request and the wait for it, at most.
const LONGEST_DELAY: usize = 12;

impl<C: Capacity> World<C> {
    /// The program of a kernel thread; begins on whatever CPU it is given.
    pub fn run_thread(&self, plan: Plan) {
        let mut draw = Draw::of(plan, context().task());
        for _ in 0..plan.operations {
            if draw.has_guests() && draw.once_in(2) {
                self.use_guests(&mut draw);
                continue;
            }
            if draw.has_secondary() && draw.once_in(4) {
                self.reclaim(&mut draw);
                continue;
            }
            let index = draw.below(PAGES_PER_TABLE);
            match draw.below(18) {
                0..5 => self.change_any(&mut draw),
                5..9 => self.call_somebody(&mut draw),
                9..12 => self.keep_tickets(&mut draw),
                12 => self.map_kernel(index),
                13 => self.unmap_kernel(index, draw.once_in(3)),
                14 => self.touch_kernel(index),
                15..17 => self.meddle_with_windows(&mut draw),
                _ => context().work(1),
            }
        }
        self.finish();
        self.threads_left.set(self.threads_left.get() - 1);
    }

    /// Has several requests under way at once, and waits for them in another order, and later.
    fn keep_tickets(&self, draw: &mut Draw) {
        let wanted = self.some_cpus(draw);
        let range = FlushRange::pages(address_of(kernel_page(0)), 1, PageSize::SIZE_4K);
        let flush = draw.random.bool().then(|| {
            self.engine
                .submit_flush(FlushScope::Kernel, range, FreedTables::No)
        });
        for _ in 0..draw.below(LONGEST_DELAY) {
            context().work(1);
        }
        let wait = draw.one_of(&[Wait::Received, Wait::Done]);
        let drops = draw.random.bool();
        if draw.random.bool() {
            self.submit(&wanted, wait, drops);
            drop(flush);
        } else {
            drop(flush);
            self.submit(&wanted, wait, drops);
        }
    }

    /// The CPU's own program is over: its threads get the CPU until the last of them is done.
    pub(super) fn run_threads_to_the_end(&self) {
        while self.threads_left.get() > 0 {
            let next = self.ready.borrow_mut().pop_front();
            match next {
                Some(thread) => context().switch_task(thread),
                None => self
                    .poll_while(|| self.threads_left.get() > 0 && self.ready.borrow().is_empty()),
            }
        }
    }
}

impl<C: Capacity> Host for &World<C> {
    fn preempts(&self, context: Context<'_>) -> Option<usize> {
        let (task, own) = (context.task(), context.cpu());
        let mut ready = self.ready.borrow_mut();
        let is_thread = task != own;
        let others = ready.len() + usize::from(is_thread);
        let answer = context.with(|state| {
            let explore = state.explore();
            explore.map_or(0, |explore| {
                explore.chooser.choose(Question::Preempt, others + 1)
            })
        });
        let chosen = answer.checked_sub(1)?;
        // Behind all threads comes the CPU's own program.
        let next = ready.remove(chosen).unwrap_or(own);
        if is_thread {
            ready.push_back(task);
        }
        Some(next)
    }
}
