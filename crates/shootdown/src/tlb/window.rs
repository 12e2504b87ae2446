//! Windows: translations that only one CPU can reach, so that flushing them is local (T2).
//!
//! A flag that merely says "only this CPU uses this mapping" is not enough: any CPU that has the page tables loaded may
//! cache a translation that it never asked for. So a window hangs on a page-table root of its CPU alone. That *private
//! root* shares all top-level entries of its space but those that the host keeps for windows; these are empty in the
//! shared root and in everybody else's. Nobody but the CPU ever loads the private root, hence nobody else can translate the
//! window, however far it speculates (I13).
//!
//! What is shared is flushed as ever, whichever of the two roots the CPU has loaded. Three things are added. The CPU is a resident of the
//! space from the first load of its private root until that is retired (`present.rs`). The private root has a name of its own, by which its tag is remembered: what is cached under it is not found
//! under the shared root's tag. And it has copies of the shared top-level entries. Missing ones are found at the next load or
//! fault; but one that was removed must be gone before the table it led to is freed (I4): whoever drops everything, or has
//! been told that tables were freed, copies first.

use core::fmt;

use crate::capacity::{Capacity, Cpus};
use crate::cpu::CpuId;
use crate::engine::{CpuState, PreemptGuard, Shootdown};
use crate::platform::Platform;
use crate::sync::{Ordering, OwnWord};
use crate::tlb::{AddressSpace, FlushRange, Root, SpaceId, TlbGen};
use crate::trace::TraceEvent;

/// The private root of one CPU in one space. The table is the host's.
///
/// It stays valid while its CPU runs other spaces or is offline. Give it to
/// [`retire_windows`](Shootdown::retire_windows) before you free the table.
#[derive(Debug)]
#[must_use = "give it to `retire_windows` before its table is freed"]
pub struct WindowRoot {
    space: SpaceId,
    /// By which its tag is remembered.
    name: SpaceId,
    cpu: CpuId,
    root: Root,
    /// How often its windows have changed. Its CPU's own.
    changes: OwnWord,
    /// The shared top-level entries that it has are those of this count or newer. Its CPU's own.
    top_seen: OwnWord,
}

impl WindowRoot {
    /// The private root of `cpu` in `space`: a table whose shared top-level entries may still be empty. Any context; does
    /// not block. Nothing loads it before [`switch_to_windows`](Shootdown::switch_to_windows) does.
    ///
    /// # Panics
    /// When the platform has [no windows](Platform::HAS_WINDOWS).
    pub fn new<P: Platform, const N: usize>(
        engine: &Shootdown<P, N>,
        space: &AddressSpace<N>,
        cpu: CpuId,
        root: Root,
    ) -> Self
    where
        Cpus<N>: Capacity,
    {
        assert!(
            P::HAS_WINDOWS,
            "a window root on a platform without windows: provide copy_shared_top and set HAS_WINDOWS"
        );
        Self {
            space: space.id(),
            name: engine.fresh_space_id(),
            cpu,
            root,
            changes: OwnWord::new(),
            top_seen: OwnWord::new(),
        }
    }

    /// The only CPU that can reach its windows.
    pub fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// The private root.
    pub fn root(&self) -> Root {
        self.root
    }

    /// The space that it belongs to.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Takes over the shared top-level entries if any has changed since; tells whether it did. On its CPU, interrupts off.
    fn refresh<P: Platform, const N: usize>(&self, platform: &P, space: &AddressSpace<N>) -> bool
    where
        Cpus<N>: Capacity,
    {
        // Read before the entries: one that changes meanwhile is copied again next time.
        let top = space.top();
        let is_behind = self.top_seen.get() != top;
        if is_behind {
            platform.copy_shared_top(space.root(), self.root, FlushRange::WHOLE);
            self.top_seen.set(top);
        }
        is_behind
    }
}

/// What a CPU remembers of the private root that it has loaded.
#[derive(Debug)]
pub(crate) struct LoadedWindows {
    /// [`SpaceId::KERNEL`] when it has loaded another root.
    name: OwnWord,
    private: OwnWord,
    shared: OwnWord,
    /// How often the windows had changed when the translations here were last known to be none but theirs.
    changes: OwnWord,
}

impl LoadedWindows {
    pub(crate) const fn new() -> Self {
        Self {
            name: OwnWord::new(),
            private: OwnWord::new(),
            shared: OwnWord::new(),
            changes: OwnWord::new(),
        }
    }

    fn name(&self) -> SpaceId {
        SpaceId::from_raw(self.name.get())
    }

    fn set(&self, windows: &WindowRoot, shared: Root) {
        self.private.set(windows.root.0);
        self.shared.set(shared.0);
        self.changes.set(windows.changes.get());
        self.name.set(windows.name.as_u64());
    }
}

/// A root of a space: the shared one, or a CPU's private one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a, const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) space: &'a AddressSpace<N>,
    windows: Option<&'a WindowRoot>,
}

impl<'a, const N: usize> Way<'a, N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn shared(space: &'a AddressSpace<N>) -> Self {
        Self {
            space,
            windows: None,
        }
    }

    /// By which a tag of this root is remembered.
    pub(crate) fn name(&self) -> SpaceId {
        self.windows.map_or(self.space.id(), |windows| windows.name)
    }

    pub(crate) fn root(&self) -> Root {
        self.windows
            .map_or(self.space.root(), |windows| windows.root)
    }

    /// How new translations of this root are that are as new as `generation` of the space.
    pub(crate) fn age(&self, generation: TlbGen) -> TlbGen {
        let changes = self.windows.map(|windows| windows.changes.get());
        aged(generation, changes.unwrap_or(0))
    }
}

/// The age of what is cached under a private root: both counts only grow, so their sum is the same only if both are.
fn aged(generation: TlbGen, changes: u64) -> TlbGen {
    TlbGen::from_raw(generation.as_u64().wrapping_add(changes))
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// Does what [`switch_to`](Self::switch_to) does, but loads the private root `windows` of this CPU: its windows can be
    /// used from now on, and everything else of `next`. The same space may be loaded by either root, in turns.
    ///
    /// Context and duties as there; `windows` too must stay alive and its table in place.
    ///
    /// # Panics
    /// As there, and when `windows` is another CPU's or another space's.
    pub fn switch_to_windows(
        &self,
        previous: Option<&AddressSpace<N>>,
        next: &AddressSpace<N>,
        windows: &WindowRoot,
    ) {
        assert!(
            windows.space == next.id(),
            "the window root of {:?} is loaded for {:?}",
            windows.space,
            next.id()
        );
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(
            windows.cpu == me,
            "{me} loads the window root of {}",
            windows.cpu
        );
        let way = Way {
            space: next,
            windows: Some(windows),
        };
        self.switch(previous, way);
        drop(irq);
    }

    /// Stays on this CPU, which is that of `windows`, until the guard is dropped: preemption is disabled meanwhile.
    ///
    /// Whoever changes a window does so under the guard, and flushes by it. Any context with preemption or interrupts on or off;
    /// does not block.
    ///
    /// # Errors
    /// [`WrongCpu`] on another CPU.
    pub fn pin_windows<'a>(
        &'a self,
        windows: &'a WindowRoot,
    ) -> Result<PinnedWindows<'a, P, N>, WrongCpu> {
        let preempt = self.preempt_guard();
        let here = self.platform.current_cpu();
        if here != windows.cpu {
            return Err(WrongCpu {
                here,
                needed: windows.cpu,
            });
        }
        Ok(PinnedWindows {
            engine: self,
            windows,
            _preempt: preempt,
            _stays: NotSend(core::ptr::null()),
        })
    }

    /// Takes over top-level entries of the shared root that the private one does not have yet. Call it at a page fault
    /// for an address that the shared tables translate; true means that the access may succeed now.
    ///
    /// Context: this CPU has `windows` loaded and the caller does not leave it meanwhile. Does not block.
    ///
    /// # Panics
    /// When `windows` is another CPU's or another space's.
    pub fn refresh_windows(&self, space: &AddressSpace<N>, windows: &WindowRoot) -> bool {
        let irq = self.irq_guard();
        let me = self.platform.current_cpu();
        assert!(
            windows.cpu == me && windows.space == space.id(),
            "{me} refreshes the window root of {} in {:?} for {:?}",
            windows.cpu,
            windows.space,
            space.id()
        );
        let is_new = windows.refresh(&self.platform, space);
        drop(irq);
        is_new
    }

    /// Ends a private root and gives its table back: no CPU walks it any more. Frames of its windows are free as well. Does not
    /// block.
    ///
    /// Context: on its CPU, which may have the shared root of `space` loaded; or anywhere when no CPU runs `space` any more, as before
    /// it is dropped.
    ///
    /// # Panics
    /// When its CPU has it loaded, lazily too ([`switch_to`](Self::switch_to) or [`switch_away`](Self::switch_away) there
    /// first); when another CPU retires it while its own is in `space`; when it is another space's.
    pub fn retire_windows(&self, space: &AddressSpace<N>, windows: WindowRoot) -> Root {
        let irq = self.irq_guard();
        let owner = windows.cpu;
        let state = self.state(owner);
        assert!(
            windows.space == space.id(),
            "the window root of {:?} is retired from {:?}",
            windows.space,
            space.id()
        );
        assert!(
            state.tlb.windows.name() != windows.name,
            "{owner} has the window root loaded that is retired: switch away first"
        );
        let is_here = state.lazy.presence.is_in(space.id());
        assert!(
            !is_here || owner == self.platform.current_cpu(),
            "{owner} is in the space whose window root is retired elsewhere: do that there"
        );
        space.remove_resident(owner);
        if !is_here {
            // ORDERING: as in `leave`.
            space.cpu_set().remove(owner, Ordering::Release);
        }
        drop(irq);
        windows.root
    }

    /// This CPU is about to load a root of `way`: says so if it is, or with this root becomes, a resident. Interrupts are off.
    pub(crate) fn arrive(&self, me: CpuId, way: &Way<'_, N>) -> Option<SpaceId> {
        let (space, id) = (way.space, way.space.id());
        let is_resident = P::HAS_WINDOWS && space.is_resident(me);
        let becomes = P::HAS_WINDOWS && way.windows.is_some() && !is_resident;
        if !is_resident && !becomes {
            return None;
        }
        self.state(me).lazy.presence.arrive(id);
        if becomes {
            space.add_resident(me);
        }
        Some(id)
    }

    /// This CPU has loaded a root, of a space where it is a resident or not. Interrupts are off.
    pub(crate) fn settle(&self, state: &CpuState<N>, resident: Option<SpaceId>) {
        if P::HAS_WINDOWS {
            state.lazy.presence.settle(resident);
        }
    }

    /// By which the loaded tag is remembered.
    pub(crate) fn loaded_name(&self, state: &CpuState<N>) -> SpaceId {
        match self.has_windows_loaded(state) {
            true => state.tlb.windows.name(),
            false => state.tlb.loaded(),
        }
    }

    /// How old what the loaded tag holds may be.
    pub(crate) fn loaded_age(&self, state: &CpuState<N>) -> TlbGen {
        let tlb = &state.tlb;
        match self.has_windows_loaded(state) {
            true => aged(tlb.generation(), tlb.windows.changes.get()),
            false => tlb.generation(),
        }
    }

    /// What the loaded root is, for those that flush it. Interrupts are off.
    pub(crate) fn note_way(&self, state: &CpuState<N>, way: Option<&Way<'_, N>>) {
        if !P::HAS_WINDOWS {
            return;
        }
        let loaded = &state.tlb.windows;
        match way.and_then(|way| way.windows.map(|windows| (windows, way.space.root()))) {
            Some((windows, shared)) => loaded.set(windows, shared),
            None => loaded.name.set(SpaceId::KERNEL.as_u64()),
        }
    }

    /// The private root of `way`, if it is one, has all that was in the shared one before the caller read the generation.
    pub(crate) fn refresh_way(&self, way: &Way<'_, N>) {
        if let Some(windows) = way.windows.filter(|_| P::HAS_WINDOWS) {
            windows.refresh(&self.platform, way.space);
        }
    }

    /// Copies the shared top-level entries for `range` into the private root, if one is loaded: tables may have been unlinked. Before
    /// the flush, and after the flush was asked for or the generation read.
    pub(crate) fn copy_top(&self, state: &CpuState<N>, range: FlushRange) {
        if self.has_windows_loaded(state) {
            let loaded = &state.tlb.windows;
            let (shared, private) = (Root(loaded.shared.get()), Root(loaded.private.get()));
            self.platform.copy_shared_top(shared, private, range);
            state.counters.tops_copied.add(1);
        }
    }

    fn has_windows_loaded(&self, state: &CpuState<N>) -> bool {
        P::HAS_WINDOWS && state.tlb.windows.name() != SpaceId::KERNEL
    }
}

/// The windows of a CPU, in the hands of code that cannot leave it.
pub struct PinnedWindows<'a, P: Platform, const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: &'a Shootdown<P, N>,
    windows: &'a WindowRoot,
    _preempt: PreemptGuard<'a, P>,
    _stays: NotSend,
}

/// What holds it stays on its CPU. (A pointer is neither `Send` nor `Sync`.)
#[derive(Debug)]
struct NotSend(#[expect(dead_code, reason = "only its type matters")] *const ());

impl<P: Platform, const N: usize> PinnedWindows<'_, P, N>
where
    Cpus<N>: Capacity,
{
    /// Makes this CPU forget `range` of its windows, whose entries were changed under this guard. Whatever was unlinked, pages
    /// and tables, may be reused when it returns: no other CPU is concerned, and none is asked.
    ///
    /// Mapping what was empty needs no flush. With another root loaded nothing is dropped now; the tag of the private one is, when
    /// it is loaded next. Interrupts in any state; does not block.
    pub fn flush(&self, range: FlushRange) {
        if range.is_empty() {
            return;
        }
        let engine = self.engine;
        let irq = engine.irq_guard();
        let me = engine.platform.current_cpu();
        let state = engine.state(me);
        let (tlb, counters) = (&state.tlb, &state.counters);
        // Also when this is dropped here at once: the same name may be remembered for another tag, from under another policy.
        let changes = self.windows.changes.get().wrapping_add(1);
        self.windows.changes.set(changes);
        if tlb.windows.name() == self.windows.name {
            engine.platform.on_trace(TraceEvent::FlushStarted {
                cpu: me,
                space: self.windows.space,
            });
            if range.exceeds_ceiling() {
                engine.drop_loaded(state, None);
                counters.full_flushes.add(1);
            } else {
                engine.drop_loaded(state, Some(range));
                counters.pages_flushed.add(range.page_count() as u64);
            }
            tlb.windows.changes.set(changes);
            counters.window_flushes.add(1);
            engine.platform.on_trace(TraceEvent::FlushFinished {
                cpu: me,
                space: self.windows.space,
            });
        } else {
            counters.window_flushes_deferred.add(1);
        }
        drop(irq);
    }

    /// Whether this CPU has the private root loaded.
    pub fn is_loaded(&self) -> bool {
        self.engine.state(self.windows.cpu).tlb.windows.name() == self.windows.name
    }
}

impl<P: Platform, const N: usize> fmt::Debug for PinnedWindows<'_, P, N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedWindows").field(self.windows).finish()
    }
}

/// Windows can be touched on their own CPU only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongCpu {
    /// Where the caller runs.
    pub here: CpuId,
    /// Where it must run.
    pub needed: CpuId,
}

impl fmt::Display for WrongCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the windows of {} are touched on {}: pin the task to their CPU",
            self.needed, self.here
        )
    }
}

impl core::error::Error for WrongCpu {}
