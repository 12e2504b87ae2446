//! [`FlushScope`]: whose page tables were changed.

use crate::capacity::{Capacity, Cpus};
use crate::tlb::{AddressSpace, GuestSpace, SpaceId};

/// Whose page tables were changed, which every flush is told first. `&space` and `&guest` are short for the first and the last:
///
/// ```
/// # use shootdown::*;
/// # fn example<P: Platform>(engine: &Shootdown<P, 64>, space: &AddressSpace<64>, range: FlushRange) {
/// engine.flush(space, range, FreedTables::No);
/// engine.flush(FlushScope::Kernel, range, FreedTables::No);
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum FlushScope<'a, const N: usize>
where
    Cpus<N>: Capacity,
{
    /// The user part of a space: those CPUs forget it that have the space loaded, or keep it under a tag.
    Space(&'a AddressSpace<N>),
    /// The kernel's part, which all spaces share, global pages included: every CPU forgets it that is online in this engine.
    Kernel,
    /// The nested page tables of a guest. Its virtual CPUs forget all that they have cached, whatever the ranges, as they run next; no virtual
    /// CPU runs on old translations once the flush is done. No x86 processor drops anything by guest-physical address.
    Guest(&'a GuestSpace<N>),
}

impl<const N: usize> FlushScope<'_, N>
where
    Cpus<N>: Capacity,
{
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

impl<'a, const N: usize> From<&'a AddressSpace<N>> for FlushScope<'a, N>
where
    Cpus<N>: Capacity,
{
    #[inline]
    fn from(space: &'a AddressSpace<N>) -> Self {
        Self::Space(space)
    }
}

impl<'a, const N: usize> From<&'a GuestSpace<N>> for FlushScope<'a, N>
where
    Cpus<N>: Capacity,
{
    #[inline]
    fn from(guest: &'a GuestSpace<N>) -> Self {
        Self::Guest(guest)
    }
}
