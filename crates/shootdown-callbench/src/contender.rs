//! [`Contender`]: whose calls a turn makes.

use alloc::boxed::Box;

use shootdown::{Capacity, Cpus, Platform, Shootdown};
use shootdown_peers::{CrossCall, Peer};

/// A peer's calls, or ours.
pub type Contender<const N: usize> = &'static dyn CrossCall<Cpus<N>>;

/// The calls of `peer` for CPUs below `cpus`, for ever. The engine is the host's: it is too large to be made on a kernel's
/// stack.
pub(crate) fn contender<P, const N: usize>(
    peer: Peer,
    platform: P,
    ours: &'static Shootdown<P>,
    cpus: usize,
) -> Contender<N>
where
    P: Platform<Cpus = Cpus<N>> + 'static,
    Cpus<N>: Capacity,
{
    match peer.calls(platform, cpus) {
        Some(calls) => Box::leak(calls),
        None => ours,
    }
}
