//! [`Contender`]: whose calls and flushes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use shootdown::{
    AddressSpace, CpuId, CpuMask, CpuMemory, Cpus, FlushRange, FreedTables, PageSize, Policy, Root,
    Shootdown,
};
use shootdown_peers::{CrossCall, Peer};

use crate::cpu::{self, Line, MOST_NAMES};
use crate::platform::Cores;
use crate::turn;

/// A set of CPUs by name.
pub type Mask = CpuMask<Cpus<MOST_NAMES>>;

/// An engine, and the space whose pages it flushes.
struct Ours<const PLAIN: bool> {
    engine: Shootdown<Cores<PLAIN>>,
    memory: [CpuMemory<Cores<PLAIN>>; MOST_NAMES],
    space: OnceLock<AddressSpace<Cpus<MOST_NAMES>>>,
}

/// With all that it can have, under any policy.
static FULL: Ours<false> = Ours::new();
/// As an ordinary kernel builds it.
static PLAIN: Ours<true> = Ours::new();
static ALL: OnceLock<Vec<Contender>> = OnceLock::new();
/// Whose turn it is: whose interrupts come.
static ACTIVE: Line<AtomicUsize> = Line(AtomicUsize::new(0));

/// One of those that take turns.
pub struct Contender {
    /// In tables.
    pub name: &'static str,
    calls: Whose,
}

enum Whose {
    Full(Policy),
    Plain,
    Theirs(&'static dyn CrossCall<Cpus<MOST_NAMES>>),
}

/// The policies under which the full engine takes part.
const POLICIES: [(&str, Policy); 3] = [
    ("engine before", Policy::BEFORE),
    ("engine published", Policy::PUBLISHED),
    ("best", Policy::BEST),
];

impl<const PLAIN: bool> Ours<PLAIN> {
    const fn new() -> Self {
        Self {
            engine: Shootdown::new(Cores),
            memory: [const { CpuMemory::new() }; MOST_NAMES],
            space: OnceLock::new(),
        }
    }

    fn begin(&self, loads: bool) {
        self.engine.online();
        if loads {
            // SAFETY: 1. nothing is translated here.
            let root = || unsafe { Root::new(1 << 12) };
            let space = || AddressSpace::new(&self.engine, root());
            self.engine.switch_to(None, self.space.get_or_init(space));
        }
    }

    #[inline]
    fn flush(&self, pages: usize, turn: usize) {
        let space = self.space.get().expect("it is loaded");
        let start = (1 + turn % 8) << 20;
        let range = FlushRange::pages(start, pages, PageSize::SIZE_4K);
        self.engine.flush(space, range, FreedTables::No);
    }
}

/// Who takes turns.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Who {
    /// Kernels' algorithms, designs, and the engines.
    All,
    /// Linux's flush as T1's series has it, and without each of its small patches.
    Series,
}

/// Makes those, for CPUs with names below `names`; the engines last.
pub fn make(names: usize, who: Who) -> &'static [Contender] {
    let first = CpuId::new(0);
    FULL.engine.attach(first, &FULL.memory[..names]);
    PLAIN.engine.attach(first, &PLAIN.memory[..names]);
    let peers = match who {
        Who::All => [&Peer::ALL[..], &Peer::DESIGNS],
        Who::Series => [&Peer::SERIES[..], &[]],
    };
    let theirs = peers.into_iter().flatten().filter_map(|peer| {
        let calls = Box::leak(peer.calls(Cores::<false>, names)?);
        let name = match peer {
            // Beside the policy of that name.
            Peer::Shootdown => return None,
            _ => peer.name(),
        };
        Some(Contender {
            name,
            calls: Whose::Theirs(calls),
        })
    });
    let ours = POLICIES.map(|(name, policy)| Contender {
        name,
        calls: Whose::Full(policy),
    });
    let plain = Contender {
        name: "plain",
        calls: Whose::Plain,
    };
    let ours = ours.into_iter().chain([plain]);
    let ours = ours.filter(|_| who == Who::All);
    ALL.get_or_init(|| theirs.chain(ours).collect())
}

/// The running CPU takes part from now on; under its first name it loads the space whose pages are flushed.
pub fn begin(name: u32, loads: bool) {
    cpu::set_name(name);
    let was_on = cpu::turn_off();
    FULL.begin(loads);
    PLAIN.begin(loads);
    cpu::restore(was_on);
}

/// Whose interrupts come from now on. Between turns, when none is on its way.
pub fn choose(index: usize) {
    ACTIVE.0.store(index, Ordering::SeqCst);
    if let Some(Contender {
        calls: Whose::Full(policy),
        ..
    }) = ALL.get().and_then(|all| all.get(index))
    {
        FULL.engine.set_policy(*policy);
    }
}

/// The body of the interrupt.
pub fn handle() {
    let active = ALL
        .get()
        .and_then(|all| all.get(ACTIVE.0.load(Ordering::Relaxed)));
    match active.map(|contender| &contender.calls) {
        Some(Whose::Theirs(calls)) => calls.handle_ipi(),
        Some(Whose::Plain) => PLAIN.engine.handle_ipi(),
        _ => FULL.engine.handle_ipi(),
    }
}

impl Contender {
    /// Runs `function` on `targets`, which do not name the caller, and returns when all have.
    #[inline]
    pub fn call(&self, targets: &Mask, function: &(dyn Fn(CpuId) + Sync)) {
        match &self.calls {
            Whose::Full(_) => {
                FULL.engine.call_many(targets, function);
            }
            Whose::Plain => {
                PLAIN.engine.call_many(targets, function);
            }
            Whose::Theirs(calls) => calls.call(targets, function),
        }
    }

    /// Makes all CPUs forget so many pages of the space. A peer calls its targets and itself, and so flushes here while they do, as Linux
    /// and FreeBSD do it today.
    #[inline]
    pub fn flush(&self, everybody: &Mask, pages: usize, turn: usize) {
        match &self.calls {
            Whose::Full(_) => FULL.flush(pages, turn),
            Whose::Plain => PLAIN.flush(pages, turn),
            Whose::Theirs(calls) => {
                let function = Line(move |_: CpuId| turn::flush_pages(pages));
                calls.call(everybody, &function.0);
            }
        }
    }
}
