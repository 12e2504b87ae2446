//! [`Torture`]: the shared state of a run.

use shootdown::{Capacity, CpuId, Cpus};

use crate::churn::Churn;
use crate::host::Host;
use crate::mail::Mail;
use crate::memory::{Memory, Region};
use crate::operation::{Operation, Plan};
use crate::pages::Pages;
use crate::record::{LANES, Record, WorkerId};
use crate::rng::Rng;
use crate::section::Sections;
use crate::sync::Tally;
use crate::violation::{Ledger, Promise, Violation};

/// Page tables with smaller names are looked at ([`Memory::table_of`]).
pub const TABLES: usize = 256;

/// The state of one run, shared by all workers; usually a `static`.
#[derive(Debug)]
pub struct Torture<const N: usize>
where
    Cpus<N>: Capacity,
{
    seed: Tally,
    long_ns: Tally,
    /// No more steps in interrupt context.
    pub(crate) closed: Tally,
    /// Running sums of the weights of what this host can do.
    chances: [Tally; Operation::COUNT],
    pub(crate) records: [[Record<N>; LANES]; N],
    pub(crate) mail: [Mail; N],
    pub(crate) pages: Pages<N>,
    /// How often each page table was freed.
    pub(crate) freed: [Tally; TABLES],
    pub(crate) churn: Churn,
    pub(crate) sections: Sections<N>,
    pub(crate) ledger: Ledger,
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// Nothing planned and nothing done.
    pub const fn new() -> Self {
        Self {
            seed: Tally::new(0),
            long_ns: Tally::new(0),
            closed: Tally::new(0),
            chances: [const { Tally::new(0) }; Operation::COUNT],
            records: [const { [const { Record::new() }; LANES] }; N],
            mail: [const { Mail::new() }; N],
            pages: Pages::new(),
            freed: [const { Tally::new(0) }; TABLES],
            churn: Churn::new(),
            sections: Sections::new(),
            ledger: Ledger::new(),
        }
    }

    /// Sets up a run, before the first step and once; the CPUs of `host` are online.
    ///
    /// # Panics
    /// When the host has more of anything than the torture has room for, or nothing is left of the mix.
    pub fn begin<H: Host<N>>(&self, host: &H, plan: &Plan) {
        let memory = host.memory();
        assert!(memory.spaces() <= crate::SPACES, "too many spaces");
        assert!(memory.frames() <= crate::FRAMES, "too many frames");
        self.seed.set(plan.seed);
        self.long_ns.set(plan.long_ns);
        let mut sum = 0;
        for (operation, chance) in Operation::ALL.iter().zip(&self.chances) {
            let is_possible = match operation {
                Operation::Access | Operation::Unmap => memory.frames() > 0,
                Operation::ChangeKernel => memory.pages(Region::Kernel) > 0,
                Operation::ChangeWindow => memory.has_windows(0),
                _ => memory.spaces() > 0 || !operation.needs_spaces(),
            };
            sum += u64::from(plan.mix.weight(*operation)) * u64::from(is_possible);
            chance.set(sum);
        }
        assert!(sum > 0, "the mix is empty");
        self.pages.stock(memory.frames());
        for (index, record) in self.records.as_flattened().iter().enumerate() {
            record.seed(&Rng::stream(plan.seed, index as u64));
        }
    }

    /// How many steps a worker has done: a number that does not grow for long means a hang, or nobody to do them. Any
    /// context.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn steps(&self, worker: WorkerId) -> u64 {
        self.record(worker.index()).steps.get()
    }

    /// The host itself has seen a promise broken on `cpu`, `found` being whatever explains it. Any context.
    pub fn host_found(&self, promise: Promise, cpu: CpuId, found: u64) {
        self.ledger.enter(Violation {
            promise,
            operation: None,
            cpu,
            expected: 0,
            found,
        });
    }

    /// At the beginning of each function that was called on `cpu`: whether it may run there now.
    pub(crate) fn check_section(&self, operation: Option<Operation>, cpu: CpuId) {
        let found = self.sections.of(cpu);
        if found != 0 {
            self.ledger.enter(Violation {
                promise: Promise::FlushesOnly,
                operation,
                cpu,
                expected: 0,
                found,
            });
        }
    }

    /// At the end of a run with churn, before [`finish`](Self::finish): brings back the CPU that is still out, if any. Called by one task, when all others
    /// have made their last step or wait in [`take_offline`](Host::take_offline), so that those can leave.
    pub fn bring_all_online<H: Host<N>>(&self, host: &H) {
        self.churn.bring_back(host);
    }

    /// The first broken promise. Any context.
    pub fn first_violation(&self) -> Option<Violation> {
        self.ledger.first()
    }

    pub(crate) fn record(&self, worker: usize) -> &Record<N> {
        &self.records.as_flattened()[worker]
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed.get()
    }

    pub(crate) fn long_ns(&self) -> u64 {
        self.long_ns.get()
    }

    pub(crate) fn choose(&self, rng: &mut Rng) -> Operation {
        let sum = self.chances[Operation::COUNT - 1].get();
        assert!(sum > 0, "a step before the torture was set up");
        let chance = rng.below(sum);
        let index = self.chances.iter().position(|until| chance < until.get());
        Operation::ALL[index.unwrap_or(0)]
    }
}

impl<const N: usize> Default for Torture<N>
where
    Cpus<N>: Capacity,
{
    fn default() -> Self {
        Self::new()
    }
}
