//! Sending by GICv3 and GICv4.

use super::affinity::AffinityMap;
use super::plan::{RangeSelector, writes};
use super::port::Port;
use super::{SendError, Sgi, cpus};

/// The CPU's interface to a GICv3 or GICv4, for sending. Interrupts in any state; nothing waits.
#[derive(Clone, Copy, Debug)]
pub struct Gic3<P: Port> {
    port: P,
    selector: RangeSelector,
}

impl<P: Port> Gic3<P> {
    /// Through this port.
    ///
    /// # Safety
    ///
    /// 1. `selector` holds on every CPU that uses the value.
    /// 2. Every CPU of the maps that are used with it handles each SGI that is sent, or has it disabled.
    /// 3. The port does on the CPU that calls what [`Port`] says.
    pub const unsafe fn new(port: P, selector: RangeSelector) -> Self {
        Self { port, selector }
    }

    /// Sends `sgi` to one CPU, this one too.
    ///
    /// # Errors
    ///
    /// [`SendError`]; nothing was sent then.
    pub fn send<const N: usize>(
        &self,
        map: &AffinityMap<N>,
        cpu: usize,
        sgi: Sgi,
    ) -> Result<(), SendError> {
        self.send_to(map, core::iter::once(cpu), sgi)
    }

    /// Sends `sgi` to every CPU whose bit is set in `targets` (CPU 0 in bit 0 of the first word), by one write for each group of 16 affinities.
    ///
    /// # Errors
    ///
    /// [`SendError`] for the first CPU that cannot be reached; the others have been sent theirs.
    pub fn send_many<const N: usize>(
        &self,
        map: &AffinityMap<N>,
        targets: &[u64],
        sgi: Sgi,
    ) -> Result<(), SendError> {
        self.send_to(map, cpus(targets), sgi)
    }

    fn send_to<const N: usize>(
        &self,
        map: &AffinityMap<N>,
        targets: impl Iterator<Item = usize>,
        sgi: Sgi,
    ) -> Result<(), SendError> {
        // A write of a system register is not ordered behind stores by anything less (Linux: `gic_ipi_send_mask`).
        self.port.fence();
        let sent = writes(map, self.selector, targets, sgi, |value| {
            // SAFETY: 1. duty 2 of `new`.
            unsafe { self.port.write(value) };
        });
        // Else the write may wait for the next context synchronisation event, and a caller that spins for the answer has none.
        self.port.synchronise();
        sent
    }
}
