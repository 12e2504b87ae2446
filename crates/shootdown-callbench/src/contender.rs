//! [`Contender`]: whose calls a turn makes.

use alloc::boxed::Box;

use shootdown::{Capacity, Cpus, Platform};
use shootdown_peers::{CrossCall, Peer};

use crate::engines::Engines;

/// A peer's calls, or ours.
pub type Contender<const N: usize> = &'static dyn CrossCall<Cpus<N>>;

/// The calls of `peer` for CPUs below `cpus`, for ever. The engines are the host's: they are too large to be made on a kernel's
/// stack.
pub(crate) fn contender<P, const N: usize>(
    peer: Peer,
    ours: &'static Engines<P, N>,
    cpus: usize,
) -> Contender<N>
where
    P: Platform<Cpus = Cpus<N>> + Copy + 'static,
    Cpus<N>: Capacity,
{
    match peer.calls(*ours.full.engine.platform(), cpus) {
        Some(calls) => Box::leak(calls),
        None if peer == Peer::Plain => &ours.plain.engine,
        None => &ours.full.engine,
    }
}
