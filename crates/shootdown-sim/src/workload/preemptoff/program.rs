//! What the tasks do.
//!
//! Two things here belong to the published system and to no engine of ours, and are models: what `begin` does first, which is to spin
//! with preemption off until the earlier requests of the CPU are acknowledged; and flushes that are waited for under
//! the page-table lock, which our kernel releases first.

use shootdown::{
    Capacity, CpuId, CpuMask, FlushBatch, FlushRange, FreedTables, PageSize, Platform, calls::Wait,
};
use shootdown::{FlushScope, sim::Ordering};

use crate::machine::{Context, PLATFORM, context as machine_context, kernel_root_at};
use crate::workload::preemptoff::System;
use crate::workload::preemptoff::cpu::Task;
use crate::workload::preemptoff::kernel::Kernel;
use crate::workload::preemptoff::load::{pause_ps, picoseconds};
use crate::workload::preemptoff::spans::Cause;

/// An idle task looks around at least so often.
const IDLE_PS: u64 = 10_000_000_000;
/// What a FIFO thread does each time.
const FIFO_WORK_PS: u64 = 5_000_000;
/// Room in a batch.
const BATCH_PAGES: usize = 32;
const USER_ADDRESS: usize = 0x7f00_0000_0000;
const KERNEL_ADDRESS: usize = 0xffff_8000_0000_0000;

/// What a worker does, in percent: unmap, unmap in a batch, exit, free a kernel range; otherwise it calls.
const UNMAPS: u32 = 50;
const BATCHES: u32 = 10;
const EXITS: u32 = 15;
const KERNEL_RANGES: u32 = 10;

impl<C: Capacity> Kernel<'_, C> {
    /// The program of one task.
    pub(super) fn run(&self, context: Context<'_>, task: usize) {
        match self.kind(task) {
            Task::Idle => return self.idle(context),
            Task::Fifo => self.wake_periodically(context, task),
            Task::Worker => self.work(context, task),
        }
        self.busy.set(self.busy.get() - 1);
    }

    fn idle(&self, context: Context<'_>) {
        context.preempt_disable();
        self.engine.online();
        self.engine.switch_to(None, &self.space);
        context.preempt_enable();
        while self.busy.get() > 0 {
            context.work(IDLE_PS);
        }
        context.preempt_disable();
        self.engine.switch_away(&self.space, kernel_root_at(0));
        context.preempt_enable();
    }

    fn wake_periodically(&self, context: Context<'_>, task: usize) {
        let period_ps = picoseconds(self.row.load.fifo_period_us);
        // Not all at the same moment.
        let mut wakes_ps = period_ps * (task % self.row.cpus) as u64 / self.row.cpus as u64;
        while !self.is_over(context) {
            wakes_ps = (wakes_ps + period_ps).max(context.now_ps());
            self.sleep_until(context, wakes_ps);
            context.work(FIFO_WORK_PS);
        }
    }

    fn work(&self, context: Context<'_>, task: usize) {
        let (cpus, load) = (self.row.cpus, &self.row.load);
        let per_s = load.operations_per_s(task % cpus, cpus) / load.workers;
        let mut random = fastrand::Rng::with_seed(!self.row.seed ^ (task as u64) << 32);
        loop {
            let wakes_ps = context.now_ps() + pause_ps(per_s, &mut random);
            self.sleep_until(context, wakes_ps);
            if self.is_over(context) {
                break;
            }
            let costs = &self.row.costs;
            context.work(costs.syscall_ps / 2 + costs.madvise_ps);
            self.operate(context, &mut random);
            context.work(costs.syscall_ps - costs.syscall_ps / 2);
        }
    }

    fn operate(&self, context: Context<'_>, random: &mut fastrand::Rng) {
        let pages = 1 + random.usize(..self.row.load.most_pages as usize);
        let draw = random.u32(..100);
        let (engine, space) = (self.engine, &self.space);
        if draw < UNMAPS {
            let range = FlushRange::pages(USER_ADDRESS, pages, PageSize::SIZE_4K);
            self.flush_space(context, random, || {
                let ticket = engine.submit_flush(space, range, FreedTables::No);
                move || ticket.wait()
            });
        } else if draw < UNMAPS + BATCHES {
            self.flush_space(context, random, || {
                let mut batch = FlushBatch::<usize, BATCH_PAGES>::new(space);
                for page in 0..pages {
                    let address = USER_ADDRESS + (page << 12);
                    let added = batch.page(address, PageSize::SIZE_4K, page);
                    assert!(added.is_ok(), "a batch has room for its pages");
                }
                let ticket = engine.submit_batch(space, batch);
                move || {
                    let _ = ticket.wait();
                }
            });
        } else if draw < UNMAPS + BATCHES + EXITS {
            self.flush_space(context, random, || {
                let ticket = engine.submit_flush(space, FlushRange::WHOLE, FreedTables::Yes);
                move || ticket.wait()
            });
        } else if draw < UNMAPS + BATCHES + EXITS + KERNEL_RANGES {
            self.count(|counts| counts.kernel_flushes += 1);
            let range = FlushRange::pages(KERNEL_ADDRESS, pages, PageSize::SIZE_4K);
            let begun = self.begin(context, || {
                let ticket = engine.submit_flush(FlushScope::Kernel, range, FreedTables::No);
                move || ticket.wait()
            });
            self.wait(context, begun);
        } else {
            self.call(context, random);
        }
    }

    /// Changes page tables under their lock, flushes as `submit` says, and waits.
    fn flush_space<W: FnOnce()>(
        &self,
        context: Context<'_>,
        random: &mut fastrand::Rng,
        submit: impl FnOnce() -> W,
    ) {
        let keeps_lock = self.row.system != System::Best
            && random.f64() * 100.0 < self.row.load.under_lock_percent;
        self.count(|counts| {
            counts.flushes += 1;
            counts.flushed_under_lock += u64::from(keeps_lock);
        });
        self.take_lock(context);
        context.work(picoseconds(self.row.load.lock_hold_us));
        let begun = self.begin(context, submit);
        if keeps_lock {
            self.wait(context, begun);
            self.release_lock(context);
        } else {
            self.release_lock(context);
            self.wait(context, begun);
        }
    }

    /// Runs a function on all CPUs, or on about half of them.
    fn call(&self, context: Context<'_>, random: &mut fastrand::Rng) {
        self.count(|counts| counts.calls += 1);
        let calls_all = random.bool();
        let targets: CpuMask<C> = (0..self.row.cpus)
            .filter(|_| calls_all || random.bool())
            .map(|cpu| CpuId::new(cpu as u32))
            .collect();
        let function_ps = picoseconds(self.row.load.function_us);
        let function = move |_: CpuId| machine_context().work(function_ps);
        if self.row.system == System::Published {
            let begun = self.begin(context, || {
                let ticket = self.engine.submit(&targets, function, Wait::Done);
                move || {
                    let _ = ticket.wait();
                }
            });
            self.wait(context, begun);
        } else {
            let begun = self.begin(context, || {
                || {
                    let _ = self.engine.call_many(&targets, &function);
                }
            });
            self.wait(context, begun);
        }
    }

    /// Starts a request. Under the published system, first waits with preemption off until the earlier ones of this CPU
    /// have been acknowledged: their data are the CPU's, not the task's.
    fn begin<W: FnOnce()>(&self, context: Context<'_>, submit: impl FnOnce() -> W) -> Begun<W> {
        let has_call_data = self.row.system == System::Published;
        if has_call_data {
            context.preempt_disable();
        }
        let cpu = context.cpu();
        let is_second = self.has_outstanding(cpu);
        if is_second {
            self.count(|counts| counts.second_requests += 1);
        }
        if has_call_data && is_second {
            self.count(|counts| counts.call_data_waits += 1);
            self.during(context, Cause::CallData, || {
                while self.has_outstanding(cpu) {
                    PLATFORM.relax();
                }
            });
        }
        let wait = self.during(context, Cause::Engine, submit);
        if has_call_data {
            context.preempt_enable();
        }
        Begun {
            wait,
            second_on: is_second.then_some(cpu),
        }
    }

    /// Waits for a request.
    fn wait<W: FnOnce()>(&self, context: Context<'_>, begun: Begun<W>) {
        self.during(context, Cause::Engine, begun.wait);
        if begun.second_on.is_some_and(|cpu| self.has_outstanding(cpu)) {
            self.count(|counts| counts.second_overtook += 1);
        }
    }

    fn take_lock(&self, context: Context<'_>) {
        context.preempt_disable();
        self.during(context, Cause::Lock, || {
            // ORDERING: Acquire sees what was done under the lock before; pairs with the Release in `release_lock`.
            while self.lock.swap(1, Ordering::Acquire) != 0 {
                self.engine.poll();
                PLATFORM.relax();
            }
        });
    }

    fn release_lock(&self, context: Context<'_>) {
        // ORDERING: Release publishes what was done under the lock; pairs with the Acquire in `take_lock`.
        self.lock.store(0, Ordering::Release);
        context.preempt_enable();
    }
}

/// A request that was started.
struct Begun<W> {
    wait: W,
    /// The CPU that it was started on, if that had another one under way.
    second_on: Option<usize>,
}
