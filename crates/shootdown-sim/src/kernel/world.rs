//! [`World`]: the engine, the spaces and the frames of one run.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use shootdown::sim::{AtomicU64, Ordering};
use shootdown::{Capacity, CpuId, Platform};

use crate::explore::View;
use crate::kernel::calls::Ledger;
use crate::kernel::control::Controls;
use crate::kernel::data::SharedData;
use crate::kernel::forgotten::Forgotten;
use crate::kernel::frames::Frames;
use crate::kernel::guest::Guests;
use crate::kernel::host_roots::HostRoots;
use crate::kernel::kernel_pages::ParkedPages;
use crate::kernel::layout::{KERNEL, SPACES};
use crate::kernel::quiet::Quiet;
use crate::kernel::reach::OwnRoot;
use crate::kernel::reclaim::Handed;
use crate::kernel::secondary::Secondary;
use crate::kernel::window::Windows;
use crate::kernel::{
    Adversary, Focused, KERNEL_REGION, Lock, PAGES_PER_TABLE, Pte, Scenario, Setup, SharedHardware,
    Sight, Sightings, Space,
};
use crate::machine::{Engine, PLATFORM, SecondEngine, context};
use crate::oracle::{Breach, FrameKind};

const KERNEL_ROOT: u16 = 0;
const KERNEL_TABLE: u16 = 1;
const FIRST_FREE_FRAME: u16 = 2;
/// Everything that the virtual kernel owns.
#[derive(Debug)]
pub struct World<C: Capacity> {
    /// What this is all about.
    pub engine: Engine<C>,
    /// The number of each CPU.
    pub(super) numbers: Vec<CpuId>,
    /// Whether the host loads roots itself.
    pub(super) host_loads: bool,
    /// From how many targets on spaces get global tags.
    pub(super) global_tags_from: u16,
    /// Where spaces begin to count.
    pub(super) first_generation: u64,
    pub(super) hardware: Rc<SharedHardware>,
    pub(super) frames: Frames,
    /// Protects `spaces`.
    pub(super) directory: Lock,
    pub(super) spaces: RefCell<[Option<Rc<Space<C>>>; SPACES]>,
    /// Every space there ever was: memory that held atomics must not become other atomics within a run, because
    /// the simulated memory knows locations by their addresses.
    pub(super) all_spaces: RefCell<Vec<Rc<Space<C>>>>,
    pub(super) next_space: Cell<u64>,
    /// What each CPU has loaded, as the kernel sees it; `None` also while it switches.
    pub(super) current: Vec<RefCell<Option<Rc<Space<C>>>>>,
    /// The private root that each CPU has loaded of that, if it is one.
    pub(super) windowed: Vec<RefCell<Option<Rc<Windows>>>>,
    /// The same, if it is the CPU's own of a tracked space.
    pub(super) own: Vec<RefCell<Option<Rc<OwnRoot<C>>>>>,
    /// Whether the CPU runs no user code and only keeps what it has loaded.
    pub(super) is_lazy: Vec<Cell<bool>>,
    /// Whether the CPU may have deferred flushes and not caught up.
    pub(super) defers: Vec<Cell<bool>>,
    /// Whether the CPU's `online` has returned, and its `offline` has not been called since.
    pub(super) online: Vec<Cell<bool>>,
    /// What the CPU knew before it came online the last time.
    pub(super) knew: Vec<RefCell<Rc<View>>>,
    /// The stretch without interrupts that each CPU is in; 0 for none.
    pub(super) stretches: Vec<Cell<u64>>,
    pub(super) next_stretch: Cell<u64>,
    /// The table that each CPU is reading without its lock.
    pub(super) walked: Vec<Cell<Option<u16>>>,
    /// Programs that still do something.
    pub(super) busy: Cell<usize>,
    /// Kernel threads among them.
    pub(super) threads_left: Cell<usize>,
    /// Kernel threads that have no CPU.
    pub(super) ready: RefCell<VecDeque<usize>>,
    pub(super) kernel_lock: Lock,
    pub(super) kernel_pages: RefCell<[Option<u16>; PAGES_PER_TABLE]>,
    pub(super) host_roots: HostRoots,
    pub(super) forgotten: Forgotten,
    pub(super) has_guards: bool,
    /// Another engine for the same CPUs, for calls and flushes of the kernel's pages.
    pub(super) second: Option<SecondEngine<C>>,
    pub(super) kernel_addresses: usize,
    /// Addresses of the kernel whose flush is under way: nobody gets them. As `kernel_pages`.
    pub(super) withheld: [Cell<bool>; PAGES_PER_TABLE],
    /// Pages of the kernel that wait for a flush. As `kernel_pages`.
    pub(super) parked: RefCell<ParkedPages>,
    /// Who unmapped each of the others last.
    pub(super) unmapped_by: [Cell<Option<usize>>; PAGES_PER_TABLE],
    pub(super) ledger: Ledger,
    pub(super) data: SharedData,
    pub(super) guests: Guests<C>,
    pub(super) secondary: Secondary,
    pub(super) handed: Handed<C>,
    pub(super) controls: Controls,
    pub(super) quiet: Quiet,
    /// How far a [`Scenario`] is.
    pub(super) stage: AtomicU64,
}

impl<C: Capacity> World<C> {
    /// A world whose CPUs are not online.
    ///
    /// # Panics
    /// With a CPU whose number is not below `C::CPUS`.
    pub fn new(setup: &Setup) -> Self {
        let (cpus, threads) = (setup.numbers.len(), setup.threads);
        let engine = Engine::for_cpus(setup.numbers.iter().copied());
        engine.begin_at(&setup.start);
        engine.watch().set_stall_ns(setup.stall_ns);
        let second = (setup.has_second_engine)
            .then(|| SecondEngine::for_cpus(setup.numbers.iter().copied()))
            .inspect(|second| second.watch().set_stall_ns(setup.stall_ns));
        let hardware = SharedHardware::new(cpus, KERNEL_ROOT, setup.kernel_pages);
        hardware.set_page_flush(setup.page_flush);
        if setup.has_guests {
            hardware.add_guests(cpus);
        }
        hardware
            .book
            .borrow_mut()
            .take(KERNEL_TABLE, FrameKind::Table);
        // Before the first event: every CPU knows of it.
        hardware
            .physical
            .entry(KERNEL_ROOT, KERNEL_REGION)
            .as_core()
            .store(Pte::to(KERNEL_TABLE, true).0, Ordering::Relaxed);
        let second_root = (setup.has_second_root).then_some((FIRST_FREE_FRAME, KERNEL_TABLE));
        let host_roots = HostRoots::new(cpus, setup.has_trampoline, second_root, &hardware);
        let first_free = FIRST_FREE_FRAME + HostRoots::frames(setup.has_second_root);
        let ledger = Ledger::new(cpus, cpus + threads);
        let world = Self {
            engine,
            numbers: setup.numbers.clone(),
            first_generation: setup.first_generation,
            host_loads: setup.host_loads,
            global_tags_from: setup.global_tags_from,
            hardware,
            frames: Frames::from(first_free),
            directory: Lock::new(),
            spaces: RefCell::default(),
            all_spaces: RefCell::default(),
            next_space: Cell::new(KERNEL + 1),
            current: (0..cpus).map(|_| RefCell::default()).collect(),
            windowed: (0..cpus).map(|_| RefCell::default()).collect(),
            own: (0..cpus).map(|_| RefCell::default()).collect(),
            is_lazy: vec![Cell::new(false); cpus],
            defers: vec![Cell::new(false); cpus],
            online: vec![Cell::new(false); cpus],
            knew: (0..cpus).map(|_| RefCell::default()).collect(),
            stretches: vec![Cell::new(0); cpus],
            next_stretch: Cell::new(1),
            walked: vec![Cell::new(None); cpus],
            busy: Cell::new(cpus + threads),
            threads_left: Cell::new(threads),
            ready: RefCell::new((cpus..cpus + threads).collect()),
            kernel_lock: Lock::new(),
            kernel_pages: RefCell::default(),
            kernel_addresses: setup.kernel_addresses,
            withheld: Default::default(),
            parked: RefCell::new(ParkedPages::kernel()),
            unmapped_by: Default::default(),
            host_roots,
            forgotten: Forgotten::new(setup.forgets),
            has_guards: setup.has_guards,
            second,
            data: SharedData::new(&ledger),
            guests: Guests::default(),
            secondary: Secondary::default(),
            handed: Handed::default(),
            controls: Controls::new(cpus + threads),
            quiet: Quiet::new(cpus),
            ledger,
            stage: AtomicU64::new(0),
        };
        if setup.has_secondary {
            world.add_listeners();
        }
        world
    }

    /// The TLBs to put under a machine.
    pub fn adversary(&self) -> Box<Adversary> {
        Box::new(Adversary(self.hardware.clone()))
    }

    /// How often this run came upon what it is to find now and then.
    pub fn sightings(&self) -> Sightings {
        let stats = self.engine.watch().total_stats();
        let counted = [
            (Sight::AbsentPassedBy, stats.absent_skipped),
            (Sight::QuietPassedBy, stats.quiet_skipped),
            (Sight::Broadcast, stats.broadcasts_published),
            (Sight::RingFull, stats.broadcasts_full),
            (Sight::SlotsBusy, stats.slots_exhausted),
            (Sight::Refused, stats.ipis_refused),
            (Sight::Resent, stats.ipis_resent),
            (Sight::WalkAwaited, stats.walks_awaited),
            (Sight::Taken, stats.cpus_taken),
            (Sight::Everywhere, stats.flushes_everywhere),
            (Sight::RegionTaken, stats.regions_taken),
            (Sight::RegionGivenUp, stats.regions_given_up),
        ];
        let seen = self.hardware.sightings();
        let add = |seen: Sightings, (sight, count)| seen.with(sight, count);
        counted.into_iter().fold(seen, add)
    }

    /// The same with TLBs that cache by themselves only what a [`Scenario`] is about.
    pub fn focused_adversary(&self) -> Box<Focused> {
        Box::new(Focused::new(self.hardware.clone(), &Scenario::PAGES))
    }

    pub(super) const KERNEL_ROOT: u16 = KERNEL_ROOT;

    pub(super) const fn kernel_table() -> u16 {
        KERNEL_TABLE
    }

    /// Ends the run if a promise was broken.
    pub(super) fn insist<T>(&self, outcome: Result<T, Breach>) -> T {
        match outcome {
            Ok(value) => value,
            Err((kind, message)) => context().fail(kind, message),
        }
    }

    /// Writes a page-table entry. What was written before is seen by walks that come through it.
    pub(super) fn write_entry(&self, table: u16, index: usize, entry: Pte) {
        context().tell(|| format!("writes entry {index} of table {table}: {entry}"));
        let cell = self.hardware.physical.entry(table, index);
        // ORDERING: Release publishes the contents of what the entry leads to; pairs with the walker's dependency.
        cell.store(entry.0, Ordering::Release);
    }

    /// Runs `work` with interrupts off, or as they are.
    pub(super) fn with_interrupts<T>(&self, off: bool, work: impl FnOnce() -> T) -> T {
        if !off {
            return work();
        }
        let state = PLATFORM.irq_save();
        let result = work();
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
        result
    }
}
