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

static ENGINE: Shootdown<Cores> = Shootdown::new(Cores);
static MEMORY: [CpuMemory<Cpus<MOST_NAMES>>; MOST_NAMES] = [const { CpuMemory::new() }; MOST_NAMES];
static SPACE: OnceLock<AddressSpace<Cpus<MOST_NAMES>>> = OnceLock::new();
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
    Ours(Policy),
    Theirs(&'static dyn CrossCall<Cpus<MOST_NAMES>>),
}

/// The policies under which the engine takes part; the last one is what hosts get without a choice.
const POLICIES: [(&str, Policy); 3] = [
    ("engine before", Policy::BEFORE),
    ("engine published", Policy::PUBLISHED),
    ("best", Policy::BEST),
];

/// Makes all of them, for CPUs with names below `names`; the engine's last.
pub fn make(names: usize) -> &'static [Contender] {
    ENGINE.attach(CpuId::new(0), &MEMORY[..names]);
    let peers = Peer::ALL.iter().chain(&Peer::DESIGNS);
    let theirs = peers.filter_map(|peer| {
        let calls = Box::leak(peer.calls(Cores, names)?);
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
        calls: Whose::Ours(policy),
    });
    ALL.get_or_init(|| theirs.chain(ours).collect())
}

/// The running CPU takes part from now on; under its first name it loads the space whose pages are flushed.
pub fn begin(name: u32, loads: bool) {
    cpu::set_name(name);
    let was_on = cpu::turn_off();
    ENGINE.online();
    if loads {
        // SAFETY: 1. nothing is translated here.
        let space = SPACE.get_or_init(|| AddressSpace::new(&ENGINE, unsafe { Root::new(1 << 12) }));
        ENGINE.switch_to(None, space);
    }
    cpu::restore(was_on);
}

/// Whose interrupts come from now on. Between turns, when none is on its way.
pub fn choose(index: usize) {
    ACTIVE.0.store(index, Ordering::SeqCst);
    if let Some(Contender {
        calls: Whose::Ours(policy),
        ..
    }) = ALL.get().and_then(|all| all.get(index))
    {
        ENGINE.set_policy(*policy);
    }
}

/// The body of the interrupt.
pub fn handle() {
    let active = ALL
        .get()
        .and_then(|all| all.get(ACTIVE.0.load(Ordering::Relaxed)));
    match active.map(|contender| &contender.calls) {
        Some(Whose::Theirs(calls)) => calls.handle_ipi(),
        _ => ENGINE.handle_ipi(),
    }
}

impl Contender {
    /// Runs `function` on `targets`, which do not name the caller, and returns when all have.
    #[inline]
    pub fn call(&self, targets: &Mask, function: &(dyn Fn(CpuId) + Sync)) {
        match &self.calls {
            Whose::Ours(_) => {
                ENGINE.call_many(targets, function);
            }
            Whose::Theirs(calls) => calls.call(targets, function),
        }
    }

    /// Makes all CPUs forget so many pages of the space. A peer calls its targets and itself, and so flushes here while they do, as Linux
    /// and FreeBSD do it today.
    #[inline]
    pub fn flush(&self, everybody: &Mask, pages: usize, turn: usize) {
        match &self.calls {
            Whose::Ours(_) => {
                let space = SPACE.get().expect("it is loaded");
                let start = (1 + turn % 8) << 20;
                let range = FlushRange::pages(start, pages, PageSize::SIZE_4K);
                ENGINE.flush(space, range, FreedTables::No);
            }
            Whose::Theirs(calls) => {
                let function = Line(move |_: CpuId| turn::flush_pages(pages));
                calls.call(everybody, &function.0);
            }
        }
    }
}
