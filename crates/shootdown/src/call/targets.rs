//! [`CallTargets`]: whom a call is for.

use crate::capacity::Capacity;
use crate::cpu::CpuId;
use crate::mask::CpuMask;

/// Whom a call is for. CPUs that are not online do not get it. `&mask` is short for the first:
///
/// ```no_run
/// # use shootdown::*;
/// # fn example<P: Platform>(engine: &Shootdown<P>, mask: &CpuMask<P::Cpus>) {
/// engine.call_many(mask, &|cpu| println!("{cpu} is one of them"));
/// engine.call_many(CallTargets::Online, &|cpu| println!("{cpu} is online"));
/// engine.call_many(CallTargets::AnyOf(mask), &|cpu| println!("{cpu} was the nearest"));
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum CallTargets<'a, C: Capacity> {
    /// All of these.
    Of(&'a CpuMask<C>),
    /// All CPUs.
    Online,
    /// One of these that is online: the caller's own CPU if it is among them, else the next one by number, going round. It is online until it has
    /// run the function. None gets the call only if none of them is online.
    AnyOf(&'a CpuMask<C>),
}

impl<C: Capacity> CallTargets<'_, C> {
    /// The same, but none that is not in `mask`, which keeps those that are named.
    pub(super) fn among(self, mask: &mut CpuMask<C>) -> CallTargets<'_, C> {
        if let Self::Of(targets) | Self::AnyOf(targets) = self {
            mask.intersect(targets);
        }
        match self {
            Self::AnyOf(_) => CallTargets::AnyOf(mask),
            Self::Of(_) | Self::Online => CallTargets::Of(mask),
        }
    }

    /// Whether `cpu` may be one of them.
    #[inline]
    pub(super) fn may_name(self, cpu: CpuId) -> bool {
        match self {
            Self::Of(mask) | Self::AnyOf(mask) => mask.contains(cpu),
            Self::Online => true,
        }
    }
}

impl<'a, C: Capacity> From<&'a CpuMask<C>> for CallTargets<'a, C> {
    #[inline]
    fn from(mask: &'a CpuMask<C>) -> Self {
        Self::Of(mask)
    }
}
