//! [`Reclaim`]: one flush for pages of many spaces.
//!
//! Reclaim takes a page out of every space that maps it, and page after page. A flush each would be a request and an interrupt each. Instead it counts each change in its
//! space, gathers the CPUs that may hold any of it, and asks each of these once, to drop what it has of the space that it runs (Linux:
//! `arch_tlbbatch_flush`). What a CPU keeps under other tags, or of a space that it is lazy in, it compares by generation before it uses it, as after any flush.
//!
//! Linux drops each page's frame at once and keeps a list of CPUs; this gives frames back only from the wait (I5).

use core::fmt;
use core::mem::ManuallyDrop;

use crate::engine::Shootdown;
use crate::mask::CpuMask;
use crate::platform::Platform;
use crate::tlb::secondary::Notice;
use crate::tlb::{
    AddressSpace, FlushRanges, FlushRequest, FlushTicket, FreedTables, SpaceId, TlbGen,
};

/// Pages that were unmapped from one space or many and not yet flushed, and what they mapped, gathered in the host's collection `H`: a list of frames, say.
///
/// For leaf entries of spaces only, whose flush may come late: the page must be clean, or its contents not be stored before the wait is over, because until then
/// CPUs may still write to it. Who unmaps for a process that must not find its pages again, takes rights away, or copies on a write, waits for a [flush](Shootdown::flush).
///
/// Dropping one that was not submitted leaks what it holds. However much it gathers, it is one request: bound what it holds by what the allocator can spare.
#[must_use = "the changes are not flushed until it is submitted"]
pub struct Reclaim<'a, P: Platform, H> {
    engine: &'a Shootdown<P>,
    /// That may hold what was unmapped.
    holders: CpuMask<P::Cpus>,
    spaces: Spaces,
    notice: Notice,
    held: ManuallyDrop<H>,
}

/// What has been added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spaces {
    None,
    /// One space only, whose last change this is.
    One(SpaceId, TlbGen),
    Many,
}

impl<'a, P: Platform, H> Reclaim<'a, P, H> {
    /// Nothing yet; what is unmapped is to be gathered in `collection`. Any context. Needs [`Config::with_reclaim`](crate::Config::with_reclaim).
    pub fn new(engine: &'a Shootdown<P>, collection: H) -> Self {
        const { assert!(P::CONFIG.has_reclaim, "CONFIG lacks with_reclaim") };
        Self {
            engine,
            holders: CpuMask::EMPTY,
            spaces: Spaces::None,
            notice: Notice::nothing::<P>(),
            held: ManuallyDrop::new(collection),
        }
    }

    /// Leaf entries of `space` were cleared. After the change, and before the lock that protects the tables is released. Interrupts and preemption in any
    /// state; does not wait for other CPUs.
    ///
    /// # Panics
    /// When the space is another engine's, or this CPU has no [memory](Shootdown::attach).
    #[track_caller]
    pub fn add(&mut self, space: &AddressSpace<P::Cpus>) {
        let engine = self.engine;
        engine.check_owner(space.id());
        let ranges = FlushRanges::WHOLE.requested(FreedTables::No);
        let request = engine.count_change(space.into(), ranges);
        self.notice = engine.begin_notice(space.into(), &request, self.notice);
        let (_irq, here) = engine.stay();
        if engine.platform.flushes_remotely() && engine.flush_everywhere(here, &request, space) {
            return;
        }
        self.spaces = match self.spaces {
            Spaces::None => Spaces::One(space.id(), request.generation()),
            Spaces::One(known, _) if known == space.id() => {
                Spaces::One(known, request.generation())
            }
            _ => Spaces::Many,
        };
        engine.add_holders(here, space, &mut self.holders);
    }

    /// What was unmapped, with the reason why it is not free yet. Any context.
    pub fn keep<T>(&mut self, unmapped: T)
    where
        H: Extend<ManuallyDrop<T>>,
    {
        self.held.extend([ManuallyDrop::new(unmapped)]);
    }

    /// One flush for all that was added. Context as of [`Shootdown::submit_flush`]; the locks of the spaces need not be held.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn submit(self) -> FlushTicket<'a, P, H> {
        let (engine, mut all) = (self.engine, ManuallyDrop::new(self));
        let losses = engine.losses(|cpu| all.holders.contains(cpu));
        let ticket = match all.spaces {
            Spaces::None => FlushTicket::done(engine),
            spaces => engine.begin_flush(spaces.request(), None, Some(&all.holders)),
        };
        // SAFETY: `self` is not dropped, and this is taken once.
        let held = unsafe { ManuallyDrop::take(&mut all.held) };
        ticket.with_notice(all.notice, losses).hold(held)
    }
}

impl Spaces {
    fn request(self) -> FlushRequest {
        let (space, generation) = match self {
            Self::One(space, generation) => (space, generation),
            _ => (SpaceId::LOADED, FlushRequest::NONE.generation),
        };
        FlushRequest {
            space,
            generation,
            ranges: FlushRanges::WHOLE.requested(FreedTables::No),
        }
    }
}

impl<P: Platform, H> fmt::Debug for Reclaim<'_, P, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            spaces, holders, ..
        } = self;
        write!(f, "Reclaim({spaces:?}, {holders:?})")
    }
}
