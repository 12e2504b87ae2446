//! [`FlushScope`]: whose page tables were changed.

use crate::capacity::Capacity;
use crate::tlb::{AddressSpace, GuestSpace, SpaceId};

/// Whose page tables were changed, which every flush is told first. `&space` and `&guest` are short for the first and the last:
///
/// ```
/// # use shootdown::*;
/// # fn example<P: Platform>(engine: &Shootdown<P>, space: &AddressSpace<P::Cpus>, range: FlushRange) {
/// engine.flush(space, range, FreedTables::No);
/// engine.flush(FlushScope::Kernel, range, FreedTables::No);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum FlushScope<'a, C: Capacity> {
    /// The user part of a space: those CPUs forget it that have the space loaded, or keep it under a tag.
    Space(&'a AddressSpace<C>),
    /// The kernel's part, which all spaces share, global pages included: every CPU forgets it that is online in this engine.
    Kernel,
    /// The nested page tables of a guest. Its virtual CPUs forget all that they have cached, whatever the ranges, as they run next; no virtual
    /// CPU runs on old translations once the flush is done. No x86 processor drops anything by guest-physical address.
    Guest(&'a GuestSpace<C>),
}

impl<C: Capacity> FlushScope<'_, C> {
    /// By which a batch knows it.
    #[inline]
    pub(crate) fn id(self) -> SpaceId {
        match self {
            Self::Space(space) => space.id(),
            Self::Kernel => SpaceId::KERNEL,
            Self::Guest(guest) => guest.id(),
        }
    }
}

impl<'a, C: Capacity> From<&'a AddressSpace<C>> for FlushScope<'a, C> {
    #[inline]
    fn from(space: &'a AddressSpace<C>) -> Self {
        Self::Space(space)
    }
}

impl<'a, C: Capacity> From<&'a GuestSpace<C>> for FlushScope<'a, C> {
    #[inline]
    fn from(guest: &'a GuestSpace<C>) -> Self {
        Self::Guest(guest)
    }
}
