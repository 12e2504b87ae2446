//! Reach: which CPUs can have translations of which part of a space (T2 for ordinary threads).
//!
//! Threads that discard memory of their own interrupt each other, because they share a space, not because they share the memory. In a *tracked* space each CPU
//! loads a root of its own, whose top-level entries are empty until this CPU *takes* them, by a fault. For each top-level entry, a *region*, the space keeps the set of
//! CPUs that have taken it, and a count of its changes. A flush within one region asks those that have the space loaded *and* have taken the region.
//!
//! Each region's count works as a space's does (I1 to I3), with the set of its takers, among the CPUs that have the space loaded, in the place of these:
//!
//! ```text
//! flush   change; count in the region; barrier; read takers, then loaded
//! take    own bit among the takers; barrier; read the region's count; copy the shared entry
//! join    own bit among the loaded; barrier; read the counts of all taken regions; renew; load
//! give up clear the own entry; drop all of the tag; own bit
//! ```
//!
//! Only a CPU changes its entries and its bits, with interrupts off (I18). A flush of several regions counts in each, and asks all that have the space loaded,
//! to drop everything. Whoever drops everything reads the counts of what it has taken before, and is up to date with all.
//!
//! A CPU that loads another root of a tracked space than one of its own, the shared one or one with windows, is in every region's set (`others`). It keeps nothing of
//! such a root, and drops all it has whenever it is asked, so it counts nothing. A CPU that has the space loaded when it becomes tracked is one of these until it switches.

use core::fmt;
use core::marker::PhantomPinned;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64 as CoreU64, AtomicUsize, Ordering as CoreOrdering};

use crate::atomic_mask::AtomicCpuMask;
use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::handle::{Reach, UserMemory};
use crate::memory::{CpuMemory, Here};
use crate::own_set::ones_from;
use crate::platform::{LocalFlush, Platform};
use crate::sync::{AtomicU64, Ordering, OwnWord, fence};
use crate::tlb::respond::Role;
use crate::tlb::{
    AddressSpace, Attention, FlushRange, FlushRanges, FlushRequest, FreedTables, PageSize, Root,
    Seen, SpaceId, SpaceRoot, TlbGen, Walk, WindowRoot,
};

/// How many regions a CPU may have taken in a space at a time.
const MOST_TAKEN: usize = if cfg!(any(loom, feature = "sim")) {
    2
} else {
    16
};

const ALL_TAKEN: u64 = (1 << MOST_TAKEN) - 1;

/// So many requests for a region that its CPU does not flush or take anew, and the CPU gives it up; twice as many each time that it was wrong.
const PATIENCE: u64 = if cfg!(any(loom, feature = "sim")) {
    2
} else {
    32
};
const MOST_PATIENCE: u64 = PATIENCE << 7;

/// The part of a tracked space that one entry of the lowest private level translates, which is the top level of x86 without LA57. The host provides
/// one for each ([`Reach::track`]).
#[derive(Debug)]
#[repr(align(64))]
pub struct Region<C: Capacity> {
    generation: AtomicU64,
    /// CPUs whose own root has, or may have, its entry.
    takers: AtomicCpuMask<C>,
}

impl<C: Capacity> Region<C> {
    /// A region that nobody has taken. Any context.
    pub fn new() -> Self {
        Self {
            generation: AtomicU64::new(1),
            takers: AtomicCpuMask::new(),
        }
    }

    fn generation(&self) -> TlbGen {
        // ORDERING: acquires the changes counted so far; pairs with `bump`.
        TlbGen::from_raw(self.generation.load(Ordering::Acquire))
    }

    fn bump(&self) -> TlbGen {
        // ORDERING: Release publishes the change; as in `AddressSpace::bump`.
        TlbGen::from_raw(self.generation.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// CPUs that may have taken it, as seen now.
    pub fn takers(&self, group: usize) -> u64 {
        // ORDERING: Acquire: who has given it up has dropped what it had of it; pairs with `give_regions_up`.
        self.takers.group(group).load(Ordering::Acquire)
    }
}

impl<C: Capacity> Default for Region<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// What a space knows of its regions.
#[derive(Debug)]
pub(super) struct Tracking<C: Capacity> {
    regions: AtomicPtr<Region<C>>,
    /// Not zero: who loads a root looks.
    count: AtomicUsize,
    /// The name of the first region, whose successors are the others'. Not zero: who flushes looks.
    first: CoreU64,
    /// CPUs that have, or had when they were in the space last, another root of it loaded than one of their own.
    others: AtomicCpuMask<C>,
    /// CPUs for which there is a root of their own: a second one would know nothing of what the first has taken.
    rooted: AtomicCpuMask<C>,
}

impl<C: Capacity> Tracking<C> {
    pub(super) fn new() -> Self {
        Self {
            regions: AtomicPtr::new(core::ptr::null_mut()),
            count: AtomicUsize::new(0),
            first: CoreU64::new(0),
            others: AtomicCpuMask::new(),
            rooted: AtomicCpuMask::new(),
        }
    }

    fn regions(&self) -> &[Region<C>] {
        // ORDERING: Acquire sees the pointer; pairs with `track`.
        let count = self.count.load(CoreOrdering::Acquire);
        match NonNull::new(self.regions.load(CoreOrdering::Relaxed)).filter(|_| count != 0) {
            // SAFETY: what `track` was given, which stays until the space is dropped (its duty 1).
            Some(regions) => unsafe { core::slice::from_raw_parts(regions.as_ptr(), count) },
            None => &[],
        }
    }

    /// Whether flushes count by region.
    #[inline]
    pub(super) fn counts(&self) -> bool {
        // ORDERING: Acquire sees the regions, and the others; pairs with `track`.
        self.first.load(CoreOrdering::Acquire) != 0
    }

    fn name(&self, region: usize) -> SpaceId {
        SpaceId(self.first.load(CoreOrdering::Relaxed) + region as u64)
    }

    fn named(&self, name: SpaceId) -> Option<&Region<C>> {
        let index = name.0.checked_sub(self.name(0).0)?;
        self.regions().get(index as usize)
    }
}

impl<C: Capacity> AddressSpace<C> {
    /// Whether it is [tracked](Reach::track). After the barrier of I2 a CPU that loads a root sees it, or is seen by `track`.
    #[inline]
    pub(super) fn is_tracked(&self) -> bool {
        // ORDERING: as in `regions`.
        self.tracking().count.load(CoreOrdering::Acquire) != 0
    }
}

/// What a CPU knows of a region that it has taken, or had.
#[derive(Debug)]
struct Taken {
    /// Which region of the space.
    index: OwnWord,
    /// An address in it.
    address: OwnWord,
    seen: Seen,
    /// The region's count, read before everything is dropped.
    fresh: OwnWord,
    /// Requests since this CPU took the region or flushed in it, and how many it stands.
    asked: OwnWord,
    patience: OwnWord,
}

impl Taken {
    const fn new() -> Self {
        Self {
            index: OwnWord::new(),
            address: OwnWord::new(),
            seen: Seen::new(),
            fresh: OwnWord::new(),
            asked: OwnWord::new(),
            patience: OwnWord::new(),
        }
    }

    /// A page that the region's entry translates.
    fn page(&self) -> FlushRange {
        let page = PageSize::SIZE_4K;
        FlushRange::pages(self.address.get() as usize & !(page.bytes() - 1), 1, page)
    }
}

/// The root of one CPU in a [tracked](Reach::track) space. The table, and this, are the host's; it is pinned, because the engine looks into it as long as it is loaded.
///
/// It stays valid while its CPU runs other spaces or is offline. [`Reach::retire`] gives the table back. One that was loaded and is dropped without that panics, and
/// does not unwind, as a [`WindowRoot`].
#[must_use = "give it to `Reach::retire` before its table is freed"]
pub struct ReachRoot<C: Capacity> {
    pub(super) window: WindowRoot,
    /// The space's, which may be gone where that is neither borrowed nor loaded.
    regions: NonNull<[Region<C>]>,
    first: SpaceId,
    /// Which of `taken` are, one bit each: a switch looks at them several times.
    in_use: OwnWord,
    taken: [Taken; MOST_TAKEN],
    _pinned: PhantomPinned,
}

// SAFETY: of its regions, which are atomics, only shared references are made.
unsafe impl<C: Capacity> Send for ReachRoot<C> {}
// SAFETY: as above.
unsafe impl<C: Capacity> Sync for ReachRoot<C> {}

impl<C: Capacity> fmt::Debug for ReachRoot<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReachRoot").field(&self.window).finish()
    }
}

impl<C: Capacity> ReachRoot<C> {
    /// The root of `cpu` in `space`: a table whose user part is empty. Any context; does not block.
    ///
    /// # Panics
    /// When the space is not tracked, or another engine's, or the CPU has a root of its own there that was not [retired](Reach::retire), loaded or not.
    pub fn new<P: Platform<Cpus = C>>(
        engine: &Shootdown<P>,
        space: &AddressSpace<C>,
        cpu: CpuId,
        root: Root,
    ) -> Self {
        let window = WindowRoot::new(engine, space, cpu, root);
        let regions = NonNull::from(space.tracking().regions());
        assert!(
            space.tracking().counts(),
            "a CPU's own root in a space that is not tracked: call Reach::track before"
        );
        let rooted = &space.tracking().rooted;
        assert!(
            rooted.insert(cpu, Ordering::Relaxed) & C::bit(cpu) == 0,
            "{cpu} has a root of its own in {:?}: retire that before it gets another",
            space.id()
        );
        Self {
            window,
            regions,
            first: space.tracking().name(0),
            in_use: OwnWord::new(),
            taken: [const { Taken::new() }; MOST_TAKEN],
            _pinned: PhantomPinned,
        }
    }

    /// The value of the root.
    pub fn root(&self) -> u64 {
        self.window.root()
    }

    /// Its CPU.
    pub fn cpu(&self) -> CpuId {
        self.window.cpu()
    }

    /// Where the space is borrowed, or has this root loaded.
    fn regions(&self) -> &[Region<C>] {
        // SAFETY: they stay until the space is dropped (duty 1 of `track`), which does not return while it is loaded.
        unsafe { self.regions.as_ref() }
    }

    fn taken(&self) -> impl Iterator<Item = (&Taken, &Region<C>)> {
        let taken = self.places(self.in_use.get());
        taken.map(|(_, taken)| (taken, self.region(taken)))
    }

    fn region(&self, taken: &Taken) -> &Region<C> {
        &self.regions()[taken.index.get() as usize]
    }

    /// Of these bits, with the bit of each.
    fn places(&self, bits: u64) -> impl Iterator<Item = (u64, &Taken)> {
        ones_from(bits, 0).map(|place| (1 << place, &self.taken[place as usize % MOST_TAKEN]))
    }

    fn find(&self, region: SpaceId) -> Option<&Taken> {
        let index = region.0.checked_sub(self.first.0)?;
        let mut taken = self.places(self.in_use.get()).map(|(_, taken)| taken);
        taken.find(|taken| taken.index.get() == index)
    }

    /// Reads the counts of what is taken; everything of the tag is dropped next, and [recorded](Self::record), or the tag is as old as they are.
    pub(super) fn read(&self) {
        for (taken, region) in self.taken() {
            taken.fresh.set(region.generation().as_u64());
        }
    }

    /// I3: the counts were read before the drop.
    pub(super) fn record(&self) {
        for (taken, _) in self.taken() {
            taken.seen.record(TlbGen::from_raw(taken.fresh.get()));
        }
    }

    /// What ages a tag of this root, besides the changes of the whole space. Each part only grows; what is given up goes on in `changes`.
    pub(super) fn age(&self) -> u64 {
        self.age_by(|taken| taken.seen.generation().as_u64())
    }

    /// As [`age`](Self::age), by the counts that were read.
    pub(super) fn fresh_age(&self) -> u64 {
        self.age_by(|taken| taken.fresh.get())
    }

    fn age_by(&self, count: impl Fn(&Taken) -> u64) -> u64 {
        let add = |sum: u64, (taken, _): (&Taken, _)| sum.wrapping_add(count(taken));
        self.taken().fold(self.window.changes.get(), add)
    }

    /// Makes the entries of what is taken equal to the shared ones; adds none of what is not.
    pub(super) fn renew<P: Platform<Cpus = C>>(&self, platform: &P, shared: u64) {
        for (taken, _) in self.taken() {
            // SAFETY: 1. on its CPU, and the tables of both are in place: the space is borrowed or loaded.
            unsafe { platform.copy_shared_top(shared, self.root(), taken.page()) };
        }
    }

    /// The same if any top-level entry has changed.
    pub(super) fn renew_changed<P: Platform<Cpus = C>>(
        &self,
        platform: &P,
        space: &AddressSpace<C>,
    ) {
        if self.window.sees_top(space) {
            self.renew(platform, space.root());
        }
    }
}

impl<'a, P: Platform> UserMemory<'a, P> {
    /// Roots by which the engine knows which CPUs can have translations of which part of a space. Any context. Needs
    /// [`Config::with_reach`](crate::Config::with_reach).
    #[inline]
    pub fn reach(self) -> Reach<'a, P> {
        const { assert!(P::CONFIG.has_reach, "CONFIG lacks with_reach") };
        const {
            assert!(
                P::HAS_WINDOWS,
                "with_reach needs copy_shared_top and HAS_WINDOWS"
            )
        };
        Reach(self.0)
    }
}

impl<'a, P: Platform> Reach<'a, P> {
    /// From now on flushes of `space` that concern one region ask only the CPUs that have taken it. A CPU that has the space loaded is asked about all regions, until it
    /// [loads](Self::switch_to) a root of its own. A space stays tracked. It has one region for each entry of the lowest private level, in the order of addresses
    /// ([`Platform::region_of`]).
    ///
    /// Call it under the lock that protects the tables. Interrupts in any state; does not block.
    ///
    /// # Safety
    /// 1. `regions` stay in place until the space is dropped, for ever if it is forgotten, and are no other space's.
    ///
    /// # Panics
    /// When the space is another engine's, or tracked already, or there are no regions.
    #[track_caller]
    pub unsafe fn track(self, space: &AddressSpace<P::Cpus>, regions: &[Region<P::Cpus>]) {
        let (engine, tracking) = (self.0, space.tracking());
        engine.check_owner(space.id());
        assert!(!regions.is_empty(), "a tracked space has regions");
        let first = engine.fresh_region_names(regions.len());
        let begun = tracking.regions.compare_exchange(
            core::ptr::null_mut(),
            regions.as_ptr().cast_mut(),
            CoreOrdering::Relaxed,
            CoreOrdering::Relaxed,
        );
        assert!(begun.is_ok(), "{:?} is tracked already", space.id());
        tracking.count.store(regions.len(), CoreOrdering::Release);
        // ORDERING: store count / load CPU set, against store CPU bit / load count in `join`: either we find the CPU, or it finds the space tracked.
        fence(Ordering::SeqCst);
        for group in engine.groups() {
            let loaded = space.cpu_set().group(group).load(Ordering::Relaxed);
            tracking
                .others
                .group(group)
                .fetch_or(loaded, Ordering::Relaxed);
        }
        // ORDERING: Release publishes the others to who counts by region; pairs with `counts`.
        tracking.first.store(first.0, CoreOrdering::Release);
    }

    /// Does what [`Shootdown::switch_to`](crate::Shootdown::switch_to) does, but loads this CPU's own root of `next`. Context and duties as there; the root's table stays in
    /// place, too. From the shared root of the same space it is the way to a root of this CPU's own.
    ///
    /// # Panics
    /// As there, and when `root` is another CPU's or another space's.
    pub fn switch_to(
        self,
        previous: Option<&AddressSpace<P::Cpus>>,
        next: &AddressSpace<P::Cpus>,
        root: Pin<&ReachRoot<P::Cpus>>,
    ) {
        let engine = self.0;
        root.window.check_space(next.id(), "loaded for");
        let (_irq, here) = engine.stay();
        root.window.check_cpu(here.cpu, "loads");
        let wanted = SpaceRoot {
            space: next,
            windows: Some(&root.window),
            reach: Some(root.get_ref()),
        };
        engine.switch_windows(here, previous, wanted);
        root.window.was_loaded.set(true);
    }

    /// This CPU may translate the region of `address` from now on: its entry in the loaded root, which is `root`, becomes that of the shared one. Call it at a page fault there;
    /// again after a top-level entry was added. Whether the region was new to this CPU; false, and nothing done, where another root is loaded.
    ///
    /// Context: the caller does not leave this CPU meanwhile. Does not block. Not for NMI-like contexts.
    ///
    /// # Panics
    /// When `root` is another space's or engine's.
    #[track_caller]
    pub fn take(
        self,
        space: &AddressSpace<P::Cpus>,
        root: Pin<&ReachRoot<P::Cpus>>,
        address: usize,
    ) -> bool {
        let engine = self.0;
        engine.check_owner(root.window.space);
        root.window.check_space(space.id(), "used for");
        let (_irq, here) = engine.stay();
        let root = root.get_ref();
        if here.tlb.private_name() != root.window.name {
            return false;
        }
        let index = engine.region_of(root.regions(), address);
        let known = root.find(SpaceId(root.first.0 + index as u64));
        let taken = known.unwrap_or_else(|| engine.take_region(here, root, index, address));
        // SAFETY: 1. on its CPU, which has it loaded; the space is borrowed.
        unsafe {
            engine
                .platform
                .copy_shared_top(space.root(), root.root(), taken.page())
        };
        known.is_none()
    }

    /// As [`UserMemory::walk`], for the tables of the region of `address`, which this CPU has taken: it costs two plain stores, and flushes of other regions do not wait for
    /// it. `None` where another root is loaded, or the region was not taken, or flushes may come without an interrupt.
    ///
    /// # Panics
    /// As there, and when `root` is another space's or engine's.
    #[track_caller]
    pub fn walk(
        self,
        space: &'a AddressSpace<P::Cpus>,
        root: Pin<&ReachRoot<P::Cpus>>,
        address: usize,
    ) -> Option<Walk<'a, P>> {
        const { assert!(P::CONFIG.has_walks, "CONFIG lacks with_walks") };
        let engine = self.0;
        engine.check_owner(root.window.space);
        root.window.check_space(space.id(), "used for");
        let (irq, here) = engine.stay();
        let index = engine.region_of(root.regions(), address);
        let is_taken = here.tlb.private_name() == root.window.name
            && engine.is_told_by_interrupt(here)
            && root.find(space.tracking().name(index)).is_some();
        is_taken.then(|| Walk::begin(engine, irq, here, None))
    }

    /// Ends a CPU's own root and gives its table back: no CPU walks it any more. Any context; does not block.
    ///
    /// # Safety
    /// 1. Its CPU has it not loaded, lazily neither, and does not load it again.
    ///
    /// # Panics
    /// When `root` is another space's or another engine's, or loaded.
    #[track_caller]
    pub unsafe fn retire(
        self,
        space: &AddressSpace<P::Cpus>,
        root: Pin<&mut ReachRoot<P::Cpus>>,
    ) -> Root {
        let engine = self.0;
        engine.check_owner(root.window.space);
        root.window.check_space(space.id(), "retired from");
        let owner = root.cpu();
        assert!(
            engine.state(owner).tlb.private_name() != root.window.name,
            "{owner} has the root loaded that is retired: switch away first"
        );
        for (_, region) in root.taken() {
            // ORDERING: as in `give_regions_up`; what its tags hold is not used again.
            region.takers.remove(owner, Ordering::Release);
        }
        root.in_use.set(0);
        space.tracking().rooted.remove(owner, Ordering::Relaxed);
        // SAFETY: nothing is moved: what the engine points to, and does not any more, is not the window.
        unsafe { root.get_unchecked_mut() }.window.take_root()
    }
}

impl<P: Platform> Shootdown<P> {
    fn region_of(&self, regions: &[Region<P::Cpus>], address: usize) -> usize {
        self.platform.region_of(address).min(regions.len() - 1)
    }

    /// Counts a change of a tracked space: within a region, or in all regions that it may concern, as a change of the whole space.
    #[cold]
    pub(super) fn count_tracked(
        &self,
        space: &AddressSpace<P::Cpus>,
        ranges: FlushRanges,
        freed: FreedTables,
    ) -> FlushRequest {
        let regions = space.tracking().regions();
        let (start, last) = ranges.span();
        let (first, last) = (
            self.region_of(regions, start),
            self.region_of(regions, last),
        );
        let is_one = first == last;
        let request = match is_one {
            true => FlushRequest {
                space: space.tracking().name(first),
                generation: regions[first].bump(),
                ranges: ranges.requested(freed),
            },
            false => {
                regions[first..=last]
                    .iter()
                    .for_each(|region| _ = region.bump());
                FlushRequest {
                    space: space.id(),
                    generation: space.bump(),
                    ranges: ranges.requested_whole(freed),
                }
            }
        };
        // ORDERING: change and bumps / read takers, others and CPU set, against set taker's bit / read count in `take`, set CPU bit / read counts in `join` (I1, I2).
        fence(Ordering::SeqCst);
        if is_one && P::CONFIG.has_secondary && space.listener().listens() {
            // Whoever makes tables from these looks at this count.
            space.bump();
        }
        request
    }

    /// The CPUs of a group that may have translations that `request` names, of a region of `space`. After the barrier of I1.
    #[cold]
    pub(super) fn holders_of_region(
        &self,
        here: Here<'_, P>,
        request: &FlushRequest,
        space: &AddressSpace<P::Cpus>,
        group: usize,
    ) -> u64 {
        let tracking = space.tracking();
        // ORDERING: Acquire: who has left the shared root has dropped what it had by it; pairs with `leave_others`.
        let others = tracking.others.group(group).load(Ordering::Acquire);
        let takers = tracking
            .named(request.space)
            .map_or(0, |region| region.takers(group));
        let me = match group == P::Cpus::group(here.cpu) {
            true => P::Cpus::bit(here.cpu),
            false => 0,
        };
        let may_have = (others | takers) & !me;
        let is_walked = self.may_be_walked(request, space);
        if may_have == 0 && !is_walked {
            return 0;
        }
        // ORDERING: as in `find_targets`.
        let loaded = space.cpu_set().group(group).load(Ordering::Acquire);
        let walks = |lane: &u32| {
            let mark = &self.state(P::Cpus::cpu(group, *lane)).lazy;
            mark.get() == Attention::Walking
        };
        let walkers = ones_from(if is_walked { loaded & !may_have } else { 0 }, 0);
        (walkers.filter(walks)).fold(loaded & may_have, |all, lane| all | 1 << lane)
    }

    /// This CPU is about to load a root of a tracked space that is not its own there, after the barrier of I2: it is in the set of all regions, and keeps nothing from before.
    #[cold]
    pub(super) fn join_others(&self, here: Here<'_, P>, wanted: &SpaceRoot<'_, P::Cpus>) {
        let others = &wanted.space.tracking().others;
        others.insert(here.cpu, Ordering::Relaxed);
        // ORDERING: store bit / load tables, against change / load others in `holders_of_region` (I2).
        fence(Ordering::SeqCst);
        self.tag_slots(here.cpu).forget_name(wanted.name::<true>());
    }

    /// This CPU has its own root of `space` loaded.
    pub(super) fn leave_others(here: Here<'_, P>, space: &AddressSpace<P::Cpus>) {
        let others = &space.tracking().others;
        if others.contains(here.cpu, Ordering::Relaxed) {
            // ORDERING: Release publishes the load; pairs with `holders_of_region`.
            others.remove(here.cpu, Ordering::Release);
        }
    }

    /// The loaded root, if it is the CPU's own of a tracked space.
    #[inline]
    pub(super) fn own_root<'s>(&self, state: &'s CpuMemory<P>) -> Option<&'s ReachRoot<P::Cpus>> {
        if !P::CONFIG.has_reach || !self.has_private_loaded(state) {
            return None;
        }
        let root = core::ptr::with_exposed_provenance(state.tlb.own_root.get() as usize);
        // SAFETY: null, or the loaded one, which is pinned: it is not gone before its drop, which does not return while it may be loaded.
        unsafe { <*const ReachRoot<P::Cpus>>::as_ref(root) }
    }

    /// Whether this CPU, which has not left `space`, is behind any count of it.
    #[cold]
    pub(super) fn has_missed(&self, state: &CpuMemory<P>, space: &AddressSpace<P::Cpus>) -> bool {
        let is_behind =
            |(taken, region): (&Taken, &Region<_>)| taken.seen.generation() != region.generation();
        match self.own_root(state) {
            Some(root) => {
                state.tlb.generation() != space.generation() || root.taken().any(is_behind)
            }
            None => true,
        }
    }

    /// Takes a region that this CPU has not. Interrupts are off.
    fn take_region<'r>(
        &self,
        here: Here<'_, P>,
        root: &'r ReachRoot<P::Cpus>,
        index: usize,
        address: usize,
    ) -> &'r Taken {
        if root.in_use.get() == ALL_TAKEN {
            self.forbid_in_walk(here);
            self.give_regions_up(here, root, |_| true);
        }
        let free = || root.places(ALL_TAKEN & !root.in_use.get());
        let known = free().find(|(_, taken)| taken.index.get() == index as u64);
        let found = known.or_else(|| free().next());
        let (bit, taken) = found.expect("one is free now");
        let patience = match known {
            Some((_, known)) => (known.patience.get() * 2).min(MOST_PATIENCE),
            None => PATIENCE,
        };
        taken.patience.set(patience.max(PATIENCE));
        taken.asked.set(0);
        taken.index.set(index as u64);
        taken.address.set(address as u64);
        let region = &root.regions()[index];
        region.takers.insert(here.cpu, Ordering::Relaxed);
        // ORDERING: store bit / load count and entry, against change / load takers in `holders_of_region` (I2).
        fence(Ordering::SeqCst);
        // Nothing of it is cached: its entry is empty, and whoever cleared that has dropped all.
        taken.seen.record(region.generation());
        root.in_use.set(root.in_use.get() | bit);
        here.counters.regions_taken.add(1);
        taken
    }

    /// Gives up what is `chosen` of the loaded root. Interrupts are off.
    #[cold]
    fn give_regions_up(
        &self,
        here: Here<'_, P>,
        root: &ReachRoot<P::Cpus>,
        chosen: impl Fn(&Taken) -> bool,
    ) {
        let tlb = &here.tlb;
        // NMI-like contexts use nothing of the region from before its entry goes until its bit has gone.
        let owed = tlb.owes_flush.get();
        tlb.owes_flush.set(true);
        let taken = || root.places(root.in_use.get());
        let given = || taken().filter(|(_, taken)| chosen(taken));
        for (_, taken) in given() {
            // SAFETY: 1. on its CPU, which has it loaded.
            unsafe { self.platform.clear_top(root.root(), taken.page()) };
        }
        // A leaf that is cached serves without a walk: all goes, with what leads to tables.
        self.drop_local(LocalFlush::Space);
        self.note_user_side(here.state, None);
        for (bit, taken) in given() {
            // Other tags of this root may hold it, too.
            let changes = root.window.changes.get() + taken.seen.generation().as_u64() + 1;
            root.window.changes.set(changes);
            // Before the bit: a CPU that died in between would be believed when it comes back.
            root.in_use.set(root.in_use.get() & !bit);
            // ORDERING: Release publishes that nothing of it is cached; pairs with `takers`.
            root.region(taken)
                .takers
                .remove(here.cpu, Ordering::Release);
            here.counters.regions_given_up.add(1);
        }
        tlb.owes_flush.set(owed);
    }

    /// Whether `request`, which is about a region, is about the space that is loaded here, and this CPU has not flushed since.
    #[cold]
    pub(super) fn is_region_due(&self, me: Here<'_, P>, request: &FlushRequest) -> bool {
        let is_due = match self.own_root(me.state) {
            Some(root) => {
                let taken = root.find(request.space);
                taken.map(|taken| request.generation > taken.seen.generation())
            }
            // It may be another space's: no more is known here.
            None => me.tlb.loaded().is_space().then_some(true),
        };
        match is_due {
            Some(false) => me.counters.flushes_covered.add(1),
            None => self.serve_stray(me, request),
            _ => {}
        }
        is_due == Some(true)
    }

    /// Drops what `request`, which is due, names in a tracked space; false if it is about a space that is not.
    #[cold]
    pub(super) fn flush_tracked(
        &self,
        me: Here<'_, P>,
        request: &FlushRequest,
        role: Role,
    ) -> bool {
        if request.space.is_region() {
            self.flush_region(me, request, role);
        } else if self.own_root(me.state).is_some() {
            // Nobody says which regions it is about: all that counts by region is made up for.
            self.flush_all(me, request, Some(&me.tlb.seen), role);
        } else {
            return false;
        }
        true
    }

    /// Drops what `request` names in a region; it [is due](Self::is_region_due).
    fn flush_region(&self, me: Here<'_, P>, request: &FlushRequest, role: Role) {
        let loaded = FlushRequest {
            space: me.tlb.loaded(),
            ..*request
        };
        let Some(root) = self.own_root(me.state) else {
            return self.flush_all(me, &loaded, None, role);
        };
        let Some(taken) = root.find(request.space) else {
            return;
        };
        self.flush_counted(me, &loaded, &taken.seen, role);
        match role {
            Role::Initiator => taken.asked.set(0),
            Role::Responder => taken.asked.set(taken.asked.get() + 1),
        }
        // A section relies on what is taken.
        let may_leave = me.tlb.private_name() == root.window.name
            && !(P::CONFIG.has_walks && me.walks.is_inside());
        if may_leave && taken.asked.get() >= taken.patience.get() {
            self.give_regions_up(me, root, |other| core::ptr::eq(other, taken));
        }
    }
}
