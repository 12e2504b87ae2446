//! [`Step`]: one operation of a worker.

use shootdown::{Capacity, CpuId, CpuMask, Cpus, Platform};

use crate::host::Host;
use crate::operation::Operation;
use crate::rng::Rng;
use crate::torture::{Context, Torture};
use crate::violation::{Promise, Violation};

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

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Whether the operation was done.
    pub(crate) fn run(&self, rng: &mut Rng) -> bool {
        match self.operation {
            Operation::CallOne => self.call_one(rng),
            Operation::CallMany => self.call_many(rng),
            Operation::CallAll => self.call_all(),
            Operation::CallIf => self.call_if(rng),
            Operation::CallWith => self.call_with(rng),
            Operation::SubmitDone => self.submit_done(rng),
            Operation::SubmitReceived => self.submit_received(rng),
            Operation::Post => self.post(rng),
            Operation::TryPost => self.try_post(rng),
            Operation::Nested => self.nested(rng),
            Operation::LongHandler => self.long_handler(rng),
            Operation::Change | Operation::ChangeKernel => self.change(rng),
            Operation::ChangeTable => self.change_table(rng),
            Operation::ChangeWindow => self.change_window(rng),
            Operation::FlushWhole => self.flush_whole(rng),
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
            Operation::Churn => self.churn(rng),
            Operation::SetPolicy => self.set_policy(rng),
        }
    }

    /// Whether the operation may be done in this context, which is not a task's.
    pub(crate) fn is_possible(&self) -> bool {
        match self.operation {
            operation if operation.is_for_tasks() => false,
            operation if operation.waits_for_functions() => {
                self.context != Context::InterruptUnderLock
            }
            _ => true,
        }
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
    pub(crate) fn some_cpus(&self, rng: &mut Rng) -> CpuMask<N> {
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
