//! [`AddressSpace`]: a page-table root, its generation, and the CPUs that may cache it.

use core::fmt;

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, OwnWord, Padded};

/// A page-table root as the host's hardware wants it (x86: the CR3 value). Opaque to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Root(u64);

impl Root {
    /// The root with this value.
    ///
    /// # Safety
    /// 1. Any CPU of the engine may load it, at any time at which the engine is given it: it maps what the kernel needs to go on.
    /// 2. Its tables stay in place, and are tables, as long as the engine may load it or has it loaded: that of an
    ///    [`AddressSpace`] until the space has been dropped, that of a [`WindowRoot`](crate::WindowRoot)
    ///    until it has been retired, one that is given to `switch_away` or `enter_lazy` as long as there is the engine.
    /// 3. That of a [`WindowRoot`](crate::WindowRoot) is a table that nothing else writes but the host, under
    ///    [`PinnedWindows`](crate::PinnedWindows).
    pub const unsafe fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// A root that the engine was given, as a word that it keeps.
    #[inline]
    pub(crate) const fn kept(value: u64) -> Self {
        Self(value)
    }
}

/// The name of an address space. Never reused while the engine lives, so a stale one matches nothing;
/// this is why the engine compares names and never pointers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpaceId(u64);

impl SpaceId {
    /// No user space: the kernel's own mappings, or a CPU with a kernel root.
    pub(crate) const KERNEL: Self = Self(0);
    /// A name that no space has.
    pub(crate) const NOBODY: Self = Self(u64::MAX);
    /// Where the engine's number begins.
    const ENGINE_SHIFT: u32 = 48;

    /// The name of an engine's space number `sequence`.
    pub(crate) const fn of_engine(number: u64, sequence: u64) -> Self {
        Self(number << Self::ENGINE_SHIFT | sequence)
    }

    #[inline]
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) const fn raw(self) -> u64 {
        self.0
    }

    /// The number of its engine.
    #[inline]
    pub(crate) const fn engine(self) -> u64 {
        self.0 >> Self::ENGINE_SHIFT
    }

    /// Its number among the spaces of its engine, for reports.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0 & ((1 << Self::ENGINE_SHIFT) - 1)
    }
}

impl fmt::Debug for SpaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpaceId({})", self.as_u64())
    }
}

/// How many changes to its page tables an address space has seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TlbGen(u64);

impl TlbGen {
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The number, for reports.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    pub(crate) const fn follows(self, other: Self) -> bool {
        self.0 == other.0.wrapping_add(1)
    }
}

/// The engine's view of one set of page tables (Linux: the mm context).
///
/// It may move in memory and holds no pointer to the tables. The generation and the set of CPUs have
/// cache lines of their own: every flush writes the first, every switch the second.
#[derive(Debug)]
pub struct AddressSpace<const N: usize>
where
    Cpus<N>: Capacity,
{
    id: SpaceId,
    root: Root,
    /// How often top-level entries have changed; only private roots look ([`WindowRoot`](crate::WindowRoot)).
    top: AtomicU64,
    /// Whether any CPU is or was a resident. A CPU that is one knows its own store; others may learn it late, and then ask one
    /// CPU too many.
    has_residents: OwnWord,
    /// CPUs that stay in the set when they leave; see `present.rs`.
    residents: AtomicCpuMask<N>,
    generation: Padded<AtomicU64>,
    cpus: Padded<AtomicCpuMask<N>>,
}

impl<const N: usize> AddressSpace<N>
where
    Cpus<N>: Capacity,
{
    /// A space that no CPU has loaded yet. Any context; does not block.
    pub fn new<P: Platform>(engine: &Shootdown<P, N>, root: Root) -> Self {
        Self {
            id: engine.fresh_space_id(),
            root,
            top: AtomicU64::new(1),
            has_residents: OwnWord::new(),
            residents: AtomicCpuMask::new(),
            generation: Padded(AtomicU64::new(1)),
            cpus: Padded(AtomicCpuMask::new()),
        }
    }

    /// Counts generations from this one; before the space is used.
    #[cfg(feature = "sim")]
    pub fn begin_at(&self, generation: u64) {
        self.generation.0.store(generation, Ordering::Relaxed);
    }

    /// The space's name.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The root that [`switch_to`](Shootdown::switch_to) loads.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The CPUs that may cache translations of this space, as seen now.
    pub fn cpus(&self) -> CpuMask<N> {
        self.cpus.0.snapshot()
    }

    /// A top-level entry of the shared root was changed. Say so each time if any CPU has [windows](crate::WindowRoot) in this
    /// space, before the flush if the entry was removed. Any context; does not block.
    pub fn top_changed(&self) {
        // ORDERING: Release publishes the entry to who acquires this count; pairs with `top`.
        self.top.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn top(&self) -> u64 {
        // ORDERING: acquires the entries changed so far; pairs with `top_changed`.
        self.top.load(Ordering::Acquire)
    }

    /// Whether any CPU is or was one that stays in the set when it leaves. Initiators ask after the barrier of I1: a resident has
    /// said so before its barrier (I2).
    pub(crate) fn has_residents(&self) -> bool {
        self.has_residents.get() != 0
    }

    /// Whether `me`, which is the running CPU or in no use of the space, stays in the set when it leaves.
    pub(crate) fn is_resident(&self, me: CpuId) -> bool {
        self.has_residents() && self.residents.contains(me, Ordering::Relaxed)
    }

    /// From now on `me` stays in the set. It has said that it is here.
    pub(crate) fn add_resident(&self, me: CpuId) {
        self.has_residents.set(1);
        // ORDERING: Release publishes the mark of `me`; pairs with `residents`. The barrier that follows is too late: `me` may have the
        // shared root loaded, and must not be left alone in it (I4).
        self.residents.insert(me, Ordering::Release);
    }

    pub(crate) fn remove_resident(&self, cpu: CpuId) {
        // Relaxed: whoever misses it asks the mark, which is still right.
        self.residents.remove(cpu, Ordering::Relaxed);
    }

    /// The residents of a group: their [`Presence`](crate::tlb::Presence) says whether they are there. Called after the barrier
    /// that follows the page-table change.
    pub(crate) fn residents_of(&self, group: usize) -> u64 {
        // ORDERING: Acquire: a resident has said where it is; pairs with `add_resident`.
        self.residents.group(group).load(Ordering::Acquire)
    }

    /// Counts one change to the page tables and returns the new generation (the middle of I1).
    pub(crate) fn bump(&self) -> TlbGen {
        // ORDERING: Release publishes the PTE change to whoever acquires this generation
        // (`generation()` in a switch); the fence that orders it before reading `cpus` is the caller's.
        TlbGen(self.generation.0.fetch_add(1, Ordering::AcqRel) + 1)
    }

    pub(crate) fn generation(&self) -> TlbGen {
        // ORDERING: acquires the PTE changes counted so far; pairs with `bump`.
        TlbGen(self.generation.0.load(Ordering::Acquire))
    }

    pub(crate) fn cpu_set(&self) -> &AtomicCpuMask<N> {
        &self.cpus.0
    }
}

impl<const N: usize> Drop for AddressSpace<N>
where
    Cpus<N>: Capacity,
{
    /// # Panics
    /// When some CPU still has the space loaded: its tables must not be freed yet (I4). The panic does not unwind, because then its
    /// owner's other fields would be dropped, the tables among them; where panics unwind, the process is aborted.
    fn drop(&mut self) {
        /// Panicking again while unwinding aborts.
        struct NoUnwind;
        impl Drop for NoUnwind {
            fn drop(&mut self) {
                panic!("an address space that a CPU has loaded is not dropped");
            }
        }
        // ORDERING: acquires the root switch of the last CPU that left; pairs with the Release in `leave`.
        if !self.cpus.0.is_empty(Ordering::Acquire) {
            let _bomb = NoUnwind;
            panic!(
                "address space dropped while a CPU has it loaded (switch_away everywhere first) or windows in it (retire_windows)"
            );
        }
    }
}
