//! [`Step`]: one operation of a worker.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::churn::Steady;
use crate::host::Host;
use crate::operation::Operation;
use crate::record::WorkerId;
use crate::rng::Rng;
use crate::sync::fence_between;
use crate::torture::Torture;
use crate::violation::{Promise, Violation};

/// One in so many of a task's steps is done with interrupts off.
const IRQS_OFF_ONE_IN: u64 = 4;
/// Turns of a wait that polls, at most.
const MOST_TURNS: u64 = 100;

/// Where a step is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// A task, with interrupts on: it may be interrupted and preempted anywhere.
    Task,
    /// An interrupt handler other than the engine's; interrupts are off. Also where all locks are taken with interrupts off: then none of its holders
    /// is interrupted. A timer that drives steps is set again behind the step, which may take longer than its period.
    Interrupt,
    /// The same where the handler has interrupted the holder of a lock: others may spin for it with interrupts off and run no
    /// functions, so the step waits for none. A host that cannot know passes this one.
    InterruptUnderLock,
    /// A task with interrupts off.
    InterruptsOff,
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Which operation.
    pub operation: Operation,
    /// Where: a task's step may have been done with interrupts off.
    pub context: Context,
    /// Whether it was done; what it needs may have been taken.
    pub done: bool,
}

/// One step on its way: everything an operation needs.
#[derive(Debug)]
pub(crate) struct Step<'a, H, const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) torture: &'static Torture<N>,
    pub(crate) host: &'a H,
    pub(crate) worker: usize,
    pub(crate) operation: Operation,
    pub(crate) context: Context,
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// Does one operation of the mix for `worker`, and checks it. Each worker does one step at a time, in a context of
    /// its own: `context` says which. Not from inside a called function.
    ///
    /// # Panics
    /// When the worker is in another step, or does not exist.
    pub fn step<H: Host<N>>(
        &'static self,
        host: &H,
        worker: WorkerId,
        context: Context,
    ) -> Outcome {
        let record = self.record(worker.index());
        let mut rng = record.begin();
        let operation = self.choose(&mut rng);
        // Busy / closed?, against closed / busy? in `finish`.
        fence_between();
        let is_interrupt = matches!(context, Context::Interrupt | Context::InterruptUnderLock);
        if is_interrupt && self.closed.get() != 0 {
            record.abandon();
            return Outcome {
                operation,
                context,
                done: false,
            };
        }
        let mut step = Step {
            torture: self,
            host,
            worker: worker.index(),
            operation,
            context,
        };
        let done = if context != Context::Task {
            step.is_possible() && step.run_inside(&mut rng)
        } else if !operation.is_for_tasks() && rng.once_in(IRQS_OFF_ONE_IN) {
            step.context = Context::InterruptsOff;
            let irq = host.engine().platform().irq_save();
            let done = step.run_inside(&mut rng);
            // SAFETY: 1. saved above.
            unsafe { host.engine().platform().irq_restore(irq) };
            done
        } else {
            step.run(&mut rng)
        };
        if done {
            record.done[operation as usize].add(1);
        }
        record.end(&rng);
        Outcome {
            operation,
            context: step.context,
            done,
        }
    }
}

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Does the operation, with interrupts off; in a section if it is one that only flushes. Whether it was done.
    fn run_inside(&self, rng: &mut Rng) -> bool {
        match self.operation.is_flushes_only() {
            true => self.section(|| self.run(rng)),
            false => self.run(rng),
        }
    }

    /// Whether the operation was done.
    fn run(&self, rng: &mut Rng) -> bool {
        match self.operation {
            Operation::CallOne => self.call_one(rng),
            Operation::CallMany => self.call_many(rng),
            Operation::CallAll => self.call_all(),
            Operation::CallAny => self.call_any(rng),
            Operation::CallWith => self.call_with(rng),
            Operation::SubmitDone => self.submit_done(rng),
            Operation::SubmitReceived => self.submit_received(rng),
            Operation::Post => self.post(rng),
            Operation::TryPost => self.try_post(rng),
            Operation::Nested => self.nested(rng),
            Operation::LongHandler => self.long_handler(rng),
            Operation::Change | Operation::ChangeKernel | Operation::Unmap => self.change(rng),
            Operation::ChangeTable => self.change_table(rng),
            Operation::ChangeWindow => self.change_window(rng),
            Operation::FlushWhole => self.flush_whole(rng),
            Operation::Walk => self.walk(rng),
            Operation::Kick => self.kick(rng),
            Operation::Ask => self.ask(rng),
            Operation::Rendezvous => self.meet_others(rng),
            Operation::Access => self.access(rng),
            Operation::Enter => self.enter(rng),
            Operation::IrqsOff => self.irqs_off(rng),
            Operation::Poll => self.poll(rng),
            Operation::Preempt => {
                self.host.preempt();
                true
            }
            Operation::Rest => {
                self.host.rest(self.some_long_ns(rng));
                true
            }
            Operation::Churn => self.torture.churn.turn(self.host, || self.some_cpu(rng)),
            Operation::SetPolicy => self.set_policy(rng),
        }
    }

    /// Whether the operation may be done in this context, which is not a task's.
    fn is_possible(&self) -> bool {
        match self.operation {
            operation if operation.is_for_tasks() => false,
            operation if operation.waits_for_functions() => {
                self.context != Context::InterruptUnderLock
            }
            _ => true,
        }
    }

    /// Interrupts off for long; nothing is served.
    fn irqs_off(&self, rng: &mut Rng) -> bool {
        let ns = self.some_long_ns(rng);
        self.section(|| {
            let sections = &self.torture.sections;
            sections.silently(self.here(), || self.host.busy(ns));
        });
        true
    }

    /// Whoever is in a stretch in which it serves nothing has left it when a kick is over.
    fn kick(&self, rng: &mut Rng) -> bool {
        let sections = &self.torture.sections;
        let targets = self.some_cpus(rng);
        let silent = sections.silent(&targets);
        let ticket = self.host.engine().control().kick(&targets);
        self.maybe_move(rng);
        ticket.wait();
        if let Some(it) = silent.filter(|it| sections.is_still(*it)) {
            self.report(Promise::KickAnswered, it.0, it.1 + 1, it.1);
        }
        true
    }

    /// What a CPU does that waits with interrupts off for a lock.
    fn poll(&self, rng: &mut Rng) -> bool {
        let engine = self.host.engine();
        self.section(|| {
            for _ in 0..=rng.below(MOST_TURNS) {
                engine.poll();
                engine.platform().relax();
            }
        });
        true
    }

    /// The mark is the operation's number plus one, for reports.
    fn section<R>(&self, work: impl FnOnce() -> R) -> R {
        let platform = self.host.engine().platform();
        let mark = self.operation as u64 + 1;
        self.torture.sections.within(platform, mark, work)
    }

    /// The CPUs of `named` that are online, before a call that names them.
    pub(crate) fn steady(&self, named: &CpuMask<Cpus<N>>) -> Steady<N> {
        self.torture.churn.steady(self.host, named)
    }

    pub(crate) fn report(&self, promise: Promise, cpu: CpuId, expected: u64, found: u64) {
        self.torture.ledger.enter(Violation {
            promise,
            operation: Some(self.operation),
            cpu,
            expected,
            found,
        });
    }

    /// For reports; stale at once in a task.
    pub(crate) fn here(&self) -> CpuId {
        self.host.engine().platform().current_cpu()
    }

    /// Random CPUs of this machine, whether online or not.
    pub(crate) fn some_cpus(&self, rng: &mut Rng) -> CpuMask<Cpus<N>> {
        let mut bits = rng.next_u64();
        let mut mask = CpuMask::EMPTY;
        for cpu in self.host.possible_cpus().iter() {
            if bits & 1 == 1 {
                mask.insert(cpu);
            }
            // Masks of more than 64 CPUs repeat themselves.
            bits = bits.rotate_right(1);
        }
        mask
    }

    /// One CPU of this machine.
    pub(crate) fn some_cpu(&self, rng: &mut Rng) -> CpuId {
        let possible = self.host.possible_cpus();
        let nth = rng.below(possible.len() as u64) as usize;
        possible.iter().nth(nth).unwrap_or(CpuId::new(0))
    }

    /// A time that counts as long.
    pub(crate) fn some_long_ns(&self, rng: &mut Rng) -> u64 {
        let most = self.torture.long_ns().max(10);
        most / 10 + rng.below(most)
    }
}
