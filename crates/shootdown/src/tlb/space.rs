//! [`AddressSpace`]: a page-table root, its generation, and the CPUs that may cache it.

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::no_unwind;
use crate::mask::CpuMask;
use crate::platform::Platform;
#[cfg(all(feature = "sim", not(loom)))]
use crate::sync::line_name::{first_name, touches};
use crate::sync::{AtomicU64, Ordering, OwnFlag, Padded, SetOnce};
use crate::tlb::reach::Tracking;
use crate::tlb::{Listener, Root, SpaceId, TagRun, TagSet, TlbGen};

/// The engine's view of one set of page tables (Linux: the mm context).
///
/// It may move in memory and holds no pointer to the tables. The generation and the set of CPUs have
/// cache lines of their own: every flush writes the first, every switch the second.
#[derive(Debug)]
pub struct AddressSpace<C: Capacity> {
    id: SpaceId,
    root: Root,
    /// How often top-level entries have changed; only private roots look ([`WindowRoot`](crate::windows::WindowRoot)).
    top: AtomicU64,
    /// Whether any CPU is or was a resident. A CPU that is one knows its own store; others may learn it late, and then ask one
    /// CPU too many.
    has_residents: OwnFlag,
    /// Not zero once a CPU has walked the tables where flushes might have passed it by; see `walk.rs`.
    walked: AtomicU64,
    listener: Listener,
    tracking: Tracking<C>,
    /// CPUs that stay in the set when they leave; see `present.rs`.
    residents: AtomicCpuMask<C>,
    /// Where it has, or has asked for, a [global tag](crate::remote::GlobalTags).
    tag_set: SetOnce<TagSet>,
    generation: Padded<Changed>,
    cpus: Padded<AtomicCpuMask<C>>,
}

/// What every flush of a space writes.
#[derive(Debug)]
struct Changed {
    generation: AtomicU64,
    tag_run: TagRun,
}

impl<C: Capacity> AddressSpace<C> {
    /// A space that no CPU has loaded yet. Any context; does not block.
    pub fn new<P: Platform<Cpus = C>>(engine: &Shootdown<P>, root: Root) -> Self {
        Self {
            id: engine.fresh_space_id(),
            root,
            top: AtomicU64::new(1),
            has_residents: OwnFlag::new(),
            walked: AtomicU64::new(0),
            listener: Listener::new(),
            tracking: Tracking::new(),
            residents: AtomicCpuMask::new(),
            tag_set: SetOnce::new(),
            generation: Padded(Changed {
                generation: AtomicU64::new(1),
                tag_run: TagRun::new(),
            }),
            cpus: Padded(AtomicCpuMask::new()),
        }
    }

    /// Counts generations from this one; before the space is used.
    #[cfg(feature = "sim")]
    pub fn begin_at(&self, generation: u64) {
        (self.generation.0.generation).store(generation, Ordering::Relaxed);
    }

    /// What the line at `address` holds; `None` if it is none of this space.
    #[cfg(all(feature = "sim", not(loom)))]
    pub fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&self.generation, address), "space: generation"),
            (touches(&self.cpus, address), "space: CPUs"),
            (touches(self, address), "space"),
        ])
    }

    /// The space's name.
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// The value of the root that [`switch_to`](Shootdown::switch_to) loads.
    pub fn root(&self) -> u64 {
        self.root.as_u64()
    }

    /// The CPUs that may cache translations of this space, as seen now.
    pub fn cpus(&self) -> CpuMask<C> {
        self.cpus.0.load(Ordering::Relaxed)
    }

    /// A top-level entry of the shared root was changed. Say so each time if any CPU has [windows](crate::windows::WindowRoot) or a [root of its
    /// own](crate::reach::ReachRoot) in this space, before the flush if the entry was removed. Any context; does not block.
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
        self.has_residents.get()
    }

    /// A CPU is about to walk the tables, and issues a full barrier before it does.
    pub(super) fn note_walk(&self) {
        // Relaxed: the barrier publishes it.
        if self.walked.load(Ordering::Relaxed) == 0 {
            self.walked.store(1, Ordering::Relaxed);
        }
    }

    /// Whether any CPU walks the tables, or has, where flushes might pass it by. After the barrier of I1.
    pub(super) fn was_walked(&self) -> bool {
        self.walked.load(Ordering::Relaxed) != 0
    }

    /// Whether `me`, which is the running CPU or in no use of the space, stays in the set when it leaves.
    pub(crate) fn is_resident(&self, me: CpuId) -> bool {
        self.has_residents() && self.residents.contains(me, Ordering::Relaxed)
    }

    /// From now on `me` stays in the set. It has said that it is here.
    pub(crate) fn add_resident(&self, me: CpuId) {
        self.has_residents.set(true);
        // ORDERING: Release publishes the mark of `me`; pairs with `residents`. The barrier that follows is too late: `me` may have the
        // shared root loaded, and must not be left alone in it (I4).
        self.residents.insert(me, Ordering::Release);
    }

    pub(crate) fn remove_resident(&self, cpu: CpuId) {
        // Relaxed: whoever misses it asks the mark, which is still right.
        self.residents.remove(cpu, Ordering::Relaxed);
    }

    /// The residents of a group: their [mark](crate::tlb::LazyMark) says whether they are there. Called after the barrier
    /// that follows the page-table change.
    pub(crate) fn residents_of(&self, group: usize) -> u64 {
        // ORDERING: Acquire: a resident has said where it is; pairs with `add_resident`.
        self.residents.group(group).load(Ordering::Acquire)
    }

    /// Counts one change to the page tables and returns the new generation (the middle of I1).
    pub(crate) fn bump(&self) -> TlbGen {
        // ORDERING: Release publishes the PTE change to whoever acquires this generation
        // (`generation()` in a switch); the fence that orders it before reading `cpus` is the caller's.
        let changed = &self.generation.0;
        TlbGen::from_raw(changed.generation.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// How often the tables have changed, of which a flush has told. Software that makes tables from them reads this, then an entry, takes its own lock, and installs what it
    /// has read only if this is still the same: [`Platform::begin_secondary`] comes after the count, and takes that lock. Any context.
    /// (In a [tracked](crate::reach::Reach::track) space only who [listens](crate::secondary::SecondaryTlbs) may rely on it. To begin to listen counts as a change, for those before were not counted:
    /// what was read before is not installed.)
    pub fn generation(&self) -> TlbGen {
        // ORDERING: acquires the PTE changes counted so far; pairs with `bump`.
        TlbGen::from_raw(self.generation.0.generation.load(Ordering::Acquire))
    }

    /// The latest changes that were dropped under its global tag.
    pub(super) fn tag_run(&self) -> &TagRun {
        &self.generation.0.tag_run
    }

    /// From now on its tag is in `set`, if it gets one; false if that was said before.
    pub(super) fn owns_tag_in(&self, set: &'static TagSet) -> bool {
        // SAFETY: 1. it is `'static`.
        unsafe { self.tag_set.set(set) }
    }

    #[inline]
    pub(super) fn listener(&self) -> &Listener {
        &self.listener
    }

    #[inline]
    pub(super) fn tracking(&self) -> &Tracking<C> {
        &self.tracking
    }

    pub(crate) fn cpu_set(&self) -> &AtomicCpuMask<C> {
        &self.cpus.0
    }
}

impl<C: Capacity> Drop for AddressSpace<C> {
    /// # Panics
    /// When some CPU still has the space loaded: its tables must not be freed yet (I4). The panic does not unwind, because then its
    /// owner's other fields would be dropped, the tables among them; where panics unwind, the process is aborted.
    fn drop(&mut self) {
        // ORDERING: acquires the root switch of the last CPU that left; pairs with the Release in `leave`.
        if !self.cpus.0.is_empty(Ordering::Acquire) {
            no_unwind(
                "an address space that a CPU has loaded is not dropped",
                || {
                    panic!(
                        "address space dropped while a CPU has it loaded (switch_away everywhere first) or windows in it (Windows::retire)"
                    )
                },
            );
        }
        self.listener.must_be_gone();
        if let Some(tags) = self.tag_set.get() {
            tags.take_back(self.id);
        }
    }
}
