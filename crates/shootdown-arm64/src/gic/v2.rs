//! Sending by GICv2: up to eight CPUs, all with one write.

use core::sync::atomic::{AtomicU8, Ordering};

use super::affinity::MapError;
use super::port::Port;
use super::{SendError, Sgi, cpus};

/// From CPU numbers of the host to CPU interfaces of the distributor. Filled at boot.
#[derive(Debug, Default)]
pub struct InterfaceMap {
    /// One bit, or 0 for none.
    cpus: [AtomicU8; 8],
}

impl InterfaceMap {
    /// Without any CPU.
    pub const fn new() -> Self {
        Self {
            cpus: [const { AtomicU8::new(0) }; 8],
        }
    }

    /// Adds a CPU by the bit of its interface, which it reads in any byte of its own GICD_ITARGETSR0 to 7 (Arm IHI 0048, 4.3.12). One call at a time.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; [`AffinityTaken`](MapError::AffinityTaken) also for what is not one bit.
    pub fn insert(&self, cpu: usize, interface: u8) -> Result<(), MapError> {
        let taken = self.cpus.iter().map(|slot| slot.load(Ordering::Relaxed));
        if !interface.is_power_of_two() || taken.into_iter().any(|other| other == interface) {
            return Err(MapError::AffinityTaken(cpu));
        }
        let slot = self.cpus.get(cpu).ok_or(MapError::IndexTooLarge(cpu))?;
        // Relaxed: as in `AffinityMap`.
        slot.compare_exchange(0, interface, Ordering::Relaxed, Ordering::Relaxed)
            .map(drop)
            .map_err(|_| MapError::IndexTaken(cpu))
    }

    fn interface(&self, cpu: usize) -> Option<u8> {
        let interface = self.cpus.get(cpu)?.load(Ordering::Relaxed);
        (interface != 0).then_some(interface)
    }
}

/// A GICv2, for sending. Interrupts in any state; nothing waits.
#[derive(Clone, Copy, Debug)]
pub struct Gic2<P: Port> {
    port: P,
}

impl<P: Port> Gic2<P> {
    /// Through this port.
    ///
    /// # Safety
    ///
    /// 1. Every CPU of the maps that are used with it handles each SGI that is sent, or has it disabled.
    /// 2. The port does on the CPU that calls what [`Port`] says.
    pub const unsafe fn new(port: P) -> Self {
        Self { port }
    }

    /// Sends `sgi` to every CPU whose bit is set in `targets` (CPU 0 in bit 0 of the first word), by one write.
    ///
    /// # Errors
    ///
    /// [`SendError::UnknownCpu`] for the first that is not in the map; the others have been sent theirs.
    pub fn send_many(
        &self,
        map: &InterfaceMap,
        targets: &[u64],
        sgi: Sgi,
    ) -> Result<(), SendError> {
        let (mut list, mut result) = (0, Ok(()));
        for cpu in cpus(targets) {
            match map.interface(cpu) {
                Some(interface) => list |= u64::from(interface),
                None => result = result.and(Err(SendError::UnknownCpu(cpu))),
            }
        }
        if list != 0 {
            // The store to the distributor's device memory is ordered behind earlier stores by no less than a DMB ISHST; a DSB as for GICv3.
            self.port.fence();
            // SAFETY: 1. duty 1 of `new`. GICD_SGIR (Arm IHI 0048, 4.3.15): filter 0 in bits 25:24, the list in 23:16, the number in 3:0.
            unsafe { self.port.write(list << 16 | sgi.bits()) };
        }
        result
    }
}
