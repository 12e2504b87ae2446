//! [`Zerocopy`]: one row of table T2, and [`Mapping`]: how its server's pages are mapped.

use std::cell::RefCell;

use shootdown::{Capacity, Policy};

use crate::machine::{Engine, Machine};
use crate::timed::{Costs, Timed};
use crate::workload::engine::with_size;
use crate::workload::zerocopy::Served;
use crate::workload::zerocopy::world::World;

/// So many operations a row, and of each CPU.
const OPERATIONS: usize = 4000;
const LEAST_ITERATIONS: usize = 100;

/// How the server's pages are mapped, and so who must forget them when they are taken out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mapping {
    /// Where every thread of the server could use them: all CPUs that have its space loaded forget them, under
    /// [`Policy::BEFORE`].
    Ordinary,
    /// The same, with a flag that says that only one CPU does (VM_LOCAL_CPU): that CPU forgets them. Unsound: any other may
    /// have cached the translation, and nothing here makes it forget. Not the engine's doing but this workload's.
    Flagged,
    /// In a window: reachable through one CPU's private root only, which forgets them, under [`Policy::BEST`].
    Windowed,
}

impl Mapping {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Ordinary, Self::Flagged, Self::Windowed];

    /// The mapping that a name of a policy stands for: `before`, `published` or `best`.
    pub fn named(policy: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mapping| mapping.policy_name() == policy)
    }

    /// As the tables call the system.
    pub const fn policy_name(self) -> &'static str {
        match self {
            Self::Ordinary => "before",
            Self::Flagged => "published",
            Self::Windowed => "best",
        }
    }

    /// How the engine switches and flushes.
    pub(super) const fn policy(self) -> Policy {
        match self {
            Self::Ordinary | Self::Flagged => Policy::BEFORE,
            Self::Windowed => Policy::BEST,
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Zerocopy {
    /// How pages are mapped.
    pub mapping: Mapping,
    /// Client threads, one for each CPU as long as there are CPUs. Those that share one take turns.
    pub threads: usize,
    /// CPUs of the machine, one server each.
    pub cpus: usize,
    /// Whether what the published system's operations share is charged.
    pub charges_shared: bool,
    /// Whether the clients are threads of one process. If not, each is a process of its own.
    pub clients_share_space: bool,
    /// Each server also looks into the window of the next CPU whenever it is at work, as a processor may at any time that
    /// has the page tables loaded. For tests: the table is measured without.
    pub looks_next_door: bool,
    /// The machine.
    pub costs: Costs,
    /// Decides when interrupts find CPUs.
    pub seed: u64,
    /// Operations of each CPU that are measured, on average.
    pub iterations: usize,
}

impl Zerocopy {
    /// A row of the table.
    pub fn new(mapping: Mapping, threads: usize, costs: &Costs) -> Self {
        Self {
            mapping,
            threads,
            cpus: 40,
            charges_shared: true,
            clients_share_space: true,
            looks_next_door: false,
            costs: costs.clone(),
            seed: 1,
            // Few threads have to make as many operations as many of them.
            iterations: (OPERATIONS / threads.max(1)).max(LEAST_ITERATIONS),
        }
    }

    /// The same row where nothing is shared but the server's address space: what the published system's operations share
    /// besides is not charged, and each client is a process of its own.
    #[must_use]
    pub fn alone(self) -> Self {
        Self {
            charges_shared: false,
            clients_share_space: false,
            ..self
        }
    }

    /// CPUs that have a client.
    pub fn busy_cpus(&self) -> usize {
        self.threads.min(self.cpus)
    }

    /// Runs the row.
    ///
    /// # Panics
    /// Without threads, CPUs or iterations, or when the engine fails.
    pub fn run(&self) -> Served {
        assert!(self.threads > 0 && self.cpus > 0 && self.iterations > 0);
        with_size!(self.busy_cpus(), run_sized(self))
    }
}

// Not inlined: see `madvise`.
#[inline(never)]
fn run_sized<C: Capacity>(row: &Zerocopy) -> Served {
    let engine = Engine::<C>::new(row.busy_cpus());
    engine.set_policy(row.mapping.policy());
    let world = Box::new(World::new(row, &engine));
    let model = Timed::with_seed(row.busy_cpus(), row.costs.clone(), row.seed);
    let machine = Machine::timed(model, || engine.handle_ipi());
    let calls = RefCell::new(Vec::new());
    let state = machine.run_each("the engine under zerocopy", |cpu, context| {
        let own = world.run(context, cpu);
        calls.borrow_mut().extend(own);
    });
    world.into_served(calls.into_inner(), state.events)
}
