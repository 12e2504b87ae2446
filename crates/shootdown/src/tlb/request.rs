//! [`FlushRequest`]: what a flush asks of its targets.

use crate::call::Asked;
use crate::platform::Platform;
use crate::tlb::ranges::RangeWords;
use crate::tlb::{AddressSpace, FlushRange, FreedTables, SpaceId, TlbGen};

/// One flush as it travels to its targets. Forty bytes: it fits into the request's own line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushRequest {
    /// [`SpaceId::KERNEL`] for the kernel's part, which every CPU has loaded always.
    pub(super) space: SpaceId,
    /// That the change made; for the kernel's part how many flushes there have been, if they are [counted](crate::quiet), else zero.
    pub(super) generation: TlbGen,
    pub(super) ranges: RangeWords,
}

impl FlushRequest {
    /// No range of the kernel's part. All its bits are zero: it fills unused memory.
    pub(crate) const NONE: Self = Self {
        space: SpaceId::KERNEL,
        generation: TlbGen::from_raw(0),
        ranges: RangeWords::EMPTY,
    };

    /// Names what no CPU has: a target acknowledges it and does nothing else.
    pub(crate) const NOTHING: Self = Self {
        space: SpaceId::NOBODY,
        ..Self::NONE
    };

    /// The same, and waits for [walkers](crate::user_memory::Walk).
    pub(crate) const SYNC: Self = Self {
        ranges: Self::NONE.ranges.with_freed(),
        ..Self::NOTHING
    };

    /// Names a guest, which no CPU has loaded as a space: a target leaves guest mode to acknowledge it, and does nothing else. Not [`NOTHING`](Self::NOTHING), which passes
    /// [quiet](crate::control::CpuControl::enter_quiet) CPUs by.
    pub(super) fn leave(guest: SpaceId) -> Self {
        Self {
            space: guest,
            ..Self::NONE
        }
    }

    /// Each target executes a full barrier.
    pub(crate) const BARRIER: Self = Self {
        space: SpaceId::BARRIER,
        ..Self::NONE
    };

    /// Each target fetches its instructions anew.
    pub(crate) const SERIALISE: Self = Self {
        space: SpaceId::SERIALISE,
        ..Self::NONE
    };

    /// Its target runs what is lent.
    pub(crate) fn ask(lent: &Asked) -> Self {
        Self {
            space: SpaceId::ASK,
            generation: TlbGen::from_raw(core::ptr::from_ref(lent).expose_provenance() as u64),
            ..Self::NONE
        }
    }

    /// What [`ask`](Self::ask) was given; only of such a request.
    pub(super) fn lent(&self) -> *const Asked {
        core::ptr::with_exposed_provenance(self.generation.as_u64() as usize)
    }

    /// Everything, of the kernel's part and of each space.
    const ALL: Self = Self {
        ranges: RangeWords::WHOLE,
        ..Self::NONE
    };

    /// What the platform is told of a flush of `space`: it knows nothing of what each CPU has loaded, nor of regions.
    #[inline]
    pub(super) fn for_platform<P: Platform>(self, space: Option<&AddressSpace<P::Cpus>>) -> Self {
        match space {
            _ if P::CONFIG.has_reclaim && self.space == SpaceId::LOADED => Self::ALL,
            Some(space) if P::CONFIG.has_reach && self.space.is_region() => Self {
                space: space.id(),
                generation: space.generation(),
                ..self
            },
            _ => self,
        }
    }

    /// The user space, or `None` for the kernel's part of every space; with the [whole](FlushRange::WHOLE) range, for everything.
    pub fn space(&self) -> Option<SpaceId> {
        (self.space != SpaceId::KERNEL).then_some(self.space)
    }

    /// The generation that the change made; of kernel ranges it means nothing.
    pub fn generation(&self) -> TlbGen {
        self.generation
    }

    /// What to drop: one to three ranges.
    pub fn ranges(&self) -> impl Iterator<Item = FlushRange> + use<> {
        self.ranges.iter()
    }

    /// Whether page-table pages were unlinked.
    pub fn freed_tables(&self) -> FreedTables {
        self.ranges.freed_tables()
    }

    /// Whether a target may acknowledge before it has flushed (I4, I5): only user leaf entries, which nothing
    /// on the target uses before its interrupt handler returns.
    pub(crate) fn allows_early_ack(&self) -> bool {
        self.space != SpaceId::KERNEL && !self.must_reach_all()
    }

    /// Whether each CPU that has the space loaded must have flushed, also one that looks before it uses it: it may walk freed tables meanwhile,
    /// or hold what must not be held beside the new entry.
    pub(crate) fn must_reach_all(&self) -> bool {
        self.freed_tables() == FreedTables::Yes || self.ranges.is_strict()
    }
}
