//! [`Walk`]: reading the page tables of a space without its lock.
//!
//! A walker needs the tables that it reads to stay what they are, not the pages that they map. Whoever frees or reuses a table flushes before (I4), and waits until
//! every CPU that has the space loaded has answered. So a walker keeps interrupts off, and its CPU leaves flushes with freed tables unanswered, and strict ones,
//! also where it polls or waits. The flush itself is what waits for the walker.
//!
//! *Where the space is loaded* and flushes of it come by interrupt, nobody else need know: the word that says "inside" is read by this CPU's own responder.
//!
//! *Elsewhere* an initiator would pass the CPU by: where another space is loaded, where the CPU is lazy, detached or deferring, and where a back end may
//! flush it without an interrupt. There the CPU says so in its mark, enters the space's set if it is not in it, and issues a full barrier before it reads
//! any entry. Either an initiator finds it, or it finds what the initiator has unlinked. An initiator that finds it interrupts it.

use core::marker::PhantomData;

use crate::call::{Found, Kind};
use crate::cpu::CpuId;
use crate::engine::Shootdown;
use crate::guard::{IrqGuard, no_unwind};
use crate::handle::UserMemory;
use crate::memory::Here;
use crate::platform::Platform;
use crate::sync::{Ordering, OwnWord, fence};
use crate::tlb::{AddressSpace, Attention, FlushRequest};

/// How many sections a CPU is in, and whether it has left a request unanswered since the first. Its own responder reads it, and reports do.
#[derive(Debug)]
pub(crate) struct WalkState(OwnWord);

impl WalkState {
    /// Something has been left until the outermost section ends. Sections count from the next bit on.
    const HOLDS: u64 = 1;
    const SECTION: u64 = 2;

    pub(crate) const fn new() -> Self {
        Self(OwnWord::new())
    }

    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.0.get() != 0
    }

    /// Its CPU has stopped for good.
    pub(crate) fn reset(&self) {
        self.0.set(0);
    }

    /// Inside a section: something is left until it ends.
    pub(crate) fn hold(&self) {
        self.0.set(self.0.get() | Self::HOLDS);
    }
}

/// A section in which this CPU reads the page tables of a space without its lock: [`UserMemory::walk`]. No table of the space is freed or reused before it
/// is dropped. Interrupts are off meanwhile.
#[must_use = "tables stay as long as the section lasts"]
#[derive(Debug)]
pub struct Walk<'a, P: Platform> {
    engine: &'a Shootdown<P>,
    here: Here<'a, P>,
    /// The word, but for what is left, as it was before.
    before: u64,
    /// What initiators were told, and is taken back.
    told: Option<Told<'a, P>>,
    /// Dropped last.
    _irq: IrqGuard<'a, P>,
    /// It is its CPU's. (A pointer is neither `Send` nor `Sync`.)
    _here: PhantomData<*const ()>,
}

/// What a walker has told initiators.
#[derive(Debug)]
pub(super) struct Told<'a, P: Platform> {
    mark_before: Attention,
    /// It has entered the set of this space.
    joined: Option<&'a AddressSpace<P::Cpus>>,
}

impl<'a, P: Platform> UserMemory<'a, P> {
    /// From here until the section is dropped no page table of `space` is freed or reused: flushes of it with [freed tables](crate::FreedTables::Yes),
    /// [strict](crate::FlushRanges::strict) ones and [`sync_walks`](Self::sync_walks) wait. Turns interrupts off until then. Does not block. Needs
    /// [`Config::with_walks`](crate::Config::with_walks).
    ///
    /// Tables stay, pages do not: read an entry once, take a reference to the page unless it has none left, then read the entry again, and give the reference
    /// back if it has changed.
    ///
    /// Where `space` is loaded on this CPU and active, and the platform has no [back end](Platform::flushes_remotely), it costs two plain stores. Elsewhere, and
    /// where the space is [tracked](crate::reach::Reach::track), it costs a full barrier, and where the space is not loaded two writes to its set of CPUs; see also
    /// [`Reach::walk`](crate::reach::Reach::walk).
    ///
    /// Tables of [windows](crate::windows) are their CPU's own, and not meant.
    ///
    /// Inside a section this CPU answers other flushes where it [polls](Shootdown::poll), and runs no functions. It takes no lock whose holder may wait for
    /// freed tables, for a slot that such a flush keeps busy, or for this section in any other way: try, and leave the section if that fails. It loads no root, is not made lazy, runs no guest, and does not wait
    /// in the engine. Sections may lie in each other; the inner one ends first, on the same CPU, or the process is aborted. One that is forgotten does not end: whoever waits for it is
    /// [reported](crate::watch::Activity::Walk). NMI-like contexts use none.
    ///
    /// # Panics
    /// When the space is another engine's, this CPU is not online, or it is between [`begin_switch`](crate::host_roots::HostRoots::begin_switch) and
    /// [`end_switch`](crate::host_roots::HostRoots::end_switch). Inside the section: all that it forbids, where the engine sees it.
    #[track_caller]
    #[inline]
    pub fn walk(self, space: &'a AddressSpace<P::Cpus>) -> Walk<'a, P> {
        const { assert!(P::CONFIG.has_walks, "CONFIG lacks with_walks") };
        let engine = self.0;
        engine.check_owner(space.id());
        let (irq, here) = engine.stay();
        let is_told_by_interrupt = here.tlb.loaded() == space.id()
            && engine.is_told_by_interrupt(here)
            && !(P::CONFIG.has_reach && space.is_tracked());
        let told = (!is_told_by_interrupt).then(|| engine.tell_initiators(here, space));
        Walk::begin(engine, irq, here, told)
    }

    /// Waits until every CPU that was walking tables of `space` has left its section: for tables that are changed and stay in use, as in a collapse to a large
    /// page or when shared tables are given up. Unlink the table first. Where tables are freed, their flush does the same. Interrupts and preemption in any state;
    /// spins, serving this CPU's flushes. Other locks may be held if every CPU that spins for them with interrupts off [polls](Shootdown::poll).
    ///
    /// It interrupts the CPUs that have the space loaded and active; on a platform with a [back end](Platform::flushes_remotely) only those that are in a section.
    ///
    /// # Panics
    /// When the space is another engine's; inside a section.
    #[track_caller]
    pub fn sync_walks(self, space: &AddressSpace<P::Cpus>) {
        const { assert!(P::CONFIG.has_walks, "CONFIG lacks with_walks") };
        let engine = self.0;
        engine.check_owner(space.id());
        engine.forbid_wait_in_walk();
        // ORDERING: the caller's unlinking / read CPU set and marks, against store mark and CPU bit / read entries in `tell_initiators`.
        fence(Ordering::SeqCst);
        let all_say_so = engine.platform.flushes_remotely();
        let may_walk = |attention| match attention {
            Attention::Walking => true,
            Attention::Active | Attention::Joining => !all_say_so,
            Attention::Lazy | Attention::Detached | Attention::Deferring => false,
        };
        let walkers = engine.holders_that(space, may_walk);
        engine.send_kick(&walkers, FlushRequest::SYNC).wait();
    }
}

impl<'a, P: Platform> Walk<'a, P> {
    #[inline]
    pub(super) fn begin(
        engine: &'a Shootdown<P>,
        irq: IrqGuard<'a, P>,
        here: Here<'a, P>,
        told: Option<Told<'a, P>>,
    ) -> Self {
        let before = here.walks.0.get();
        here.walks.0.set(before + WalkState::SECTION);
        Self {
            engine,
            here,
            before: before & !WalkState::HOLDS,
            told,
            _irq: irq,
            _here: PhantomData,
        }
    }
}

impl<P: Platform> Shootdown<P> {
    /// Whether flushes of what is loaded here come by interrupt.
    #[inline]
    pub(super) fn is_told_by_interrupt(&self, here: Here<'_, P>) -> bool {
        here.lazy.get() == Attention::Active && !self.platform.flushes_remotely()
    }

    /// Has initiators find this CPU where they would pass it by.
    #[cold]
    fn tell_initiators<'a>(
        &self,
        here: Here<'_, P>,
        space: &'a AddressSpace<P::Cpus>,
    ) -> Told<'a, P> {
        let me = here.cpu;
        assert!(
            !here.tlb.host().is_being_left() && self.is_ready(me),
            "{me} walks page tables, and is not online, or between begin_switch and end_switch"
        );
        let mark_before = here.lazy.get();
        here.lazy.begin_walk();
        space.note_walk();
        let is_in_set = space.cpu_set().contains(me, Ordering::Relaxed);
        if !is_in_set {
            space.cpu_set().insert(me, Ordering::Relaxed);
        }
        // ORDERING: store mark and CPU bit / read entries, against unlink a table / read CPU set and marks in `submit_space_flush` and `sync_walks`: either the
        // initiator finds us, or we find the table unlinked.
        fence(Ordering::SeqCst);
        Told {
            mark_before,
            joined: (!is_in_set).then_some(space),
        }
    }

    /// Whether a CPU may be walking what `request` takes from `space`, and a flush may have passed it by. After the barrier of I1.
    #[inline]
    pub(super) fn may_be_walked(
        &self,
        request: &FlushRequest,
        space: &AddressSpace<P::Cpus>,
    ) -> bool {
        P::CONFIG.has_walks && request.must_reach_all() && space.was_walked()
    }

    /// Takes all out of this CPU's set `targets` that do not say that they walk: they have been flushed.
    #[cold]
    pub(super) fn keep_walkers(&self, here: Here<'_, P>) {
        for cpu in here.targets.iter() {
            if self.state(cpu).lazy.get() != Attention::Walking {
                here.targets.remove(cpu);
            }
        }
    }

    /// Whether this CPU walks tables and must leave `found` unanswered until it has done.
    ///
    /// # Safety
    /// 1. As [`serve_flush`](Self::serve_flush).
    #[inline(always)]
    pub(crate) unsafe fn must_hold(&self, me: Here<'_, P>, found: Found) -> bool {
        // SAFETY: duty 1.
        P::CONFIG.has_walks && me.walks.is_inside() && unsafe { self.hold(me, found) }
    }

    /// # Safety
    /// 1. As [`serve_flush`](Self::serve_flush).
    #[cold]
    unsafe fn hold(&self, me: Here<'_, P>, found: Found) -> bool {
        // SAFETY: duty 1, and it is a flush.
        let reaches_all = || unsafe { self.read_flush(found) }.must_reach_all();
        let must_hold = found.kind.has(Kind::FLUSH) && reaches_all();
        if must_hold {
            me.walks.hold();
        }
        must_hold
    }

    /// The section has ended: answers what came meanwhile. It may lie in inbox or ring without a hint, or among those that were taken.
    #[cold]
    fn answer_held(&self, me: Here<'_, P>) {
        me.counters.walks_awaited.add(1);
        me.is_unsearched.set(true);
        self.serve_flushes(me);
        if !me.in_function.get() {
            self.come_again(me);
        }
    }

    /// Panics where this CPU walks tables: what it would wait for may wait for it.
    #[inline]
    #[track_caller]
    pub(crate) fn forbid_in_walk(&self, here: Here<'_, P>) {
        if P::CONFIG.has_walks && here.walks.is_inside() {
            in_walk(here.cpu);
        }
    }

    /// The same on whatever CPU this is.
    #[inline]
    #[track_caller]
    pub(crate) fn forbid_wait_in_walk(&self) {
        if P::CONFIG.has_walks {
            let irq = self.irq_guard();
            // One without memory walks nothing.
            let here = self.here_if_attached(&irq);
            here.into_iter().for_each(|here| self.forbid_in_walk(here));
        }
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn in_walk(me: CpuId) -> ! {
    panic!(
        "{me} walks page tables: inside the section it may not wait for others, free tables, or change what it has loaded"
    );
}

impl<P: Platform> Drop for Walk<'_, P> {
    #[inline]
    fn drop(&mut self) {
        let here = self.here;
        let state = here.walks.0.get();
        let is_innermost = state & !WalkState::HOLDS == self.before + WalkState::SECTION;
        if !is_innermost || self.engine.platform.current_cpu() != here.cpu {
            not_innermost(here.cpu);
        }
        if let Some(told) = &self.told {
            if let Some(space) = told.joined {
                // ORDERING: Release publishes that we have read the last entry; pairs with `find_targets` and `sync_walks`.
                space.cpu_set().remove(here.cpu, Ordering::Release);
            }
            here.lazy.end_walk(told.mark_before);
        }
        if self.before != 0 {
            here.walks.0.set(state - WalkState::SECTION);
            return;
        }
        here.walks.0.set(0);
        if state & WalkState::HOLDS != 0 {
            self.engine.answer_held(here);
        }
    }
}

/// Does not unwind: whoever goes on relies on a section that may be over.
#[cold]
#[inline(never)]
fn not_innermost(me: CpuId) -> ! {
    no_unwind("a section of a walk does not end by itself", || {
        panic!(
            "a section in which {me} walks page tables ends on another CPU, or before one that it has begun inside"
        )
    })
}
