//! What the engine knows page tables by: their [`Root`], the [`SpaceId`] of their space, the [`TlbGen`] of their state.

use core::fmt;
use core::sync::atomic::AtomicU64 as CoreU64;

use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::sync::Ordering;

/// The root of one space's page tables, as the host's hardware wants it (x86: the CR3 value). Opaque to the engine.
///
/// It is the right to have these tables loaded, so it can be neither copied nor cloned: one space, one
/// [`WindowRoot`](crate::windows::WindowRoot) or one [`GuestSpace`](crate::guest::GuestSpace) takes it.
#[derive(PartialEq, Eq, Debug)]
pub struct Root(u64);

impl Root {
    /// In the place of one that was taken out.
    pub(super) const NONE: Self = Self(0);

    /// The root with this value.
    ///
    /// # Safety
    /// 1. The tables map what the kernel, and the engine, need to go on ([`Platform`]'s contract 11). (A guest's tables map its memory.)
    /// 2. They stay in place, and are tables, until what takes the root is gone: an [`AddressSpace`](crate::AddressSpace) or a
    ///    [`GuestSpace`](crate::guest::GuestSpace) has been dropped, a [`WindowRoot`](crate::windows::WindowRoot) retired. For ever, if it is forgotten.
    /// 3. Until then there is no other `Root` or [`KernelRoot`] of these tables, for this engine or another, and only the engine loads them. (So this is not
    ///    `const`: each use of a constant would be another one.)
    /// 4. A table whose root a [`WindowRoot`](crate::windows::WindowRoot) takes is written by nobody but the host, under
    ///    [`PinnedWindows`](crate::windows::PinnedWindows).
    pub unsafe fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value.
    #[inline]
    pub const fn as_u64(&self) -> u64 {
        self.0
    }
}

/// The root of page tables without a user part, which a CPU loads that runs in no space. Most kernels have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KernelRoot(pub(super) u64);

impl KernelRoot {
    /// The root with this value, which is not `u64::MAX`.
    ///
    /// # Safety
    /// 1. As duty 1 of [`Root::new`].
    /// 2. The tables stay in place, and are tables, for ever, and no [`Root`] leads to them.
    /// 3. They map no user memory and no [window](crate::windows::WindowRoot).
    pub const unsafe fn new(value: u64) -> Self {
        Self(value)
    }

    /// The value.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// The name of an address space. Never reused while the engine lives, so a stale one matches nothing;
/// this is why the engine compares names and never pointers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpaceId(pub(super) u64);

impl SpaceId {
    /// No user space: the kernel's own mappings, or a CPU with a kernel root.
    pub(crate) const KERNEL: Self = Self(0);
    /// No space: the host has loaded, or may load, a root that the engine does not know. (Names of spaces begin with an engine's number.)
    pub(super) const FOREIGN: Self = Self(1);
    /// Whatever space a CPU has loaded.
    pub(super) const LOADED: Self = Self(2);
    /// No space: each target executes a full barrier.
    pub(super) const BARRIER: Self = Self(3);
    /// No space: each target fetches its instructions anew.
    pub(super) const SERIALISE: Self = Self(4);
    /// No space: each target runs a function.
    pub(super) const ASK: Self = Self(5);
    /// A name that no space has.
    pub(crate) const NOBODY: Self = Self(u64::MAX);
    /// Where the engine's number begins.
    const ENGINE_SHIFT: u32 = 48;
    /// A bit that no name has, but [`NOBODY`](Self::NOBODY): sequences do not get so far.
    pub(crate) const SPARE_BIT: u64 = 1 << (Self::ENGINE_SHIFT - 1);

    /// The name of an engine's space number `sequence`.
    pub(crate) const fn of_engine(number: u64, sequence: u64) -> Self {
        Self(number << Self::ENGINE_SHIFT | sequence)
    }

    /// Whether it is a space's, of any engine.
    #[inline]
    pub(super) const fn is_space(self) -> bool {
        self.engine() != 0 && self.0 != Self::NOBODY.0
    }

    /// The same name, of a space that a host is leaving by [`begin_switch`](crate::host_roots::HostRoots::begin_switch).
    pub(super) const fn being_left(self) -> Self {
        Self(self.0 | Self::SPARE_BIT)
    }

    pub(super) const fn is_being_left(self) -> bool {
        self.0 & Self::SPARE_BIT != 0
    }

    /// A bit that names of [regions](crate::reach::Region) have, and no other name but [`NOBODY`](Self::NOBODY), which has the spare one, too.
    const REGION_BIT: u64 = Self::SPARE_BIT >> 1;

    /// Whether it is a region's.
    #[inline]
    pub(super) const fn is_region(self) -> bool {
        self.0 & (Self::SPARE_BIT | Self::REGION_BIT) == Self::REGION_BIT
    }

    /// The number of its engine.
    #[inline]
    pub(crate) const fn engine(self) -> u64 {
        self.0 >> Self::ENGINE_SHIFT
    }

    /// Its number among the spaces of its engine, for reports.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0 & ((1 << Self::ENGINE_SHIFT) - 1) & !Self::REGION_BIT
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

    /// The age of what is as new as this generation, of a root that has changed so often besides: both counts only grow, so their sum is the
    /// same only if both are.
    #[inline]
    pub(super) const fn aged(self, changes: u64) -> Self {
        Self(self.0.wrapping_add(changes))
    }
}

impl<P: Platform> Shootdown<P> {
    /// A name that no space of this engine has had.
    pub(crate) fn fresh_space_id(&self) -> SpaceId {
        let sequence = self.names.0.fetch_add(1, Ordering::Relaxed) + 1;
        SpaceId::of_engine(self.number(), sequence)
    }

    /// The first of so many names of regions, which follow each other.
    pub(super) fn fresh_region_names(&self, count: usize) -> SpaceId {
        let sequence = self.names.0.fetch_add(count as u64, Ordering::Relaxed) + 1;
        SpaceId(SpaceId::of_engine(self.number(), sequence).0 | SpaceId::REGION_BIT)
    }

    /// A number that tells this engine from others, as far as 65535 numbers can.
    pub(super) fn number(&self) -> u64 {
        use core::sync::atomic::Ordering::Relaxed;
        static NEXT: CoreU64 = CoreU64::new(0);
        let number = self.number.load(Relaxed);
        if number != 0 {
            return number;
        }
        let fresh = NEXT.fetch_add(1, Relaxed) % u64::from(u16::MAX) + 1;
        let given = self.number.compare_exchange(0, fresh, Relaxed, Relaxed);
        given.map_or_else(|other| other, |_| fresh)
    }

    /// Checks that a space is this engine's: with another's CPU sets and generations no flush would reach its CPUs.
    #[inline]
    #[track_caller]
    pub(crate) fn check_owner(&self, space: SpaceId) {
        if space.engine() != self.number.load(core::sync::atomic::Ordering::Relaxed) {
            of_another_engine(space);
        }
    }
}

// Out of line and by value, as in `engine`.

#[cold]
#[inline(never)]
#[track_caller]
fn of_another_engine(space: SpaceId) -> ! {
    panic!("{space:?} belongs to another engine");
}
