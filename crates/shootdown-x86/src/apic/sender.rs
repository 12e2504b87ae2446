//! Sending only, through a controller that the host has switched on and goes on owning.

use core::ptr::NonNull;

use super::error::SendError;
use super::icr::{Destination, Vector};
use super::local::{ApicMode, LocalApic};
use super::map::ApicMap;
use super::port::{Hardware, Port};

/// Sends interrupts through the local APIC of whichever CPU calls, and touches nothing of it but the
/// interrupt command (in x2APIC mode also the register for interrupts to oneself): no mode, no local
/// source, no priority, no end of interrupt.
///
/// Whatever sends may be called with interrupts on or off and from interrupt handlers; in xAPIC mode not
/// from NMI handlers. In x2APIC mode every send is fenced as by [`fence_before_ipi`](super::fence_before_ipi).
///
/// The map that [`IpiSender::send_many`] takes is the host's to fill. [`Delivery::XapicFlat`] needs logical
/// ids as in [`ApicMap::flat_id`] in the host's controllers; a host that did not set those uses
/// [`Delivery::XapicPhysical`].
///
/// ```
/// use shootdown_x86::{ApicId, ApicMap, Delivery, IpiSender, SendError, Vector};
///
/// static CPUS: ApicMap<64> = ApicMap::new();
///
/// /// Once, on a machine whose CPUs are all in x2APIC mode.
/// unsafe fn prepare(ids: &[u32]) -> IpiSender {
///     CPUS.configure(Delivery::X2Cluster).expect("nobody inserted yet");
///     for (cpu, &id) in ids.iter().enumerate() {
///         CPUS.insert(cpu, ApicId(id)).expect("the ids are distinct");
///     }
///     // SAFETY: a kernel; the host switched all CPUs to x2APIC mode.
///     unsafe { IpiSender::new_x2apic() }
/// }
///
/// fn interrupt(sender: &IpiSender, this_cpu: usize, targets: &[u64]) -> Result<(), SendError> {
///     sender.send_many(&CPUS, this_cpu, targets, Vector::new(0xf0).unwrap())
/// }
/// ```
///
/// [`Delivery::XapicFlat`]: super::Delivery::XapicFlat
/// [`Delivery::XapicPhysical`]: super::Delivery::XapicPhysical
#[derive(Clone, Copy, Debug)]
pub struct IpiSender<P: Port = Hardware>(LocalApic<P>);

impl IpiSender<Hardware> {
    /// Through the xAPIC registers that are mapped at `page`.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. All those CPUs are in xAPIC mode: IA32_APIC_BASE bit 11 is set, bit 10 clear (SDM vol. 3A,
    ///    "Local APIC Status and Location").
    /// 3. `page` is mapped for as long as the value is used, on all those CPUs, readable and writable
    ///    and strong uncacheable, to [`physical_base`](super::physical_base); 4 KiB aligned.
    /// 4. Nothing else that writes the interrupt command on one of those CPUs is interrupted between
    ///    its two halves, and no NMI handler writes it.
    pub const unsafe fn new_xapic(page: NonNull<u8>) -> Self {
        // SAFETY: 1. duty 1 of the caller. 2. duty 3. 3. `enable` would do what duty 2 says is done.
        Self(unsafe { LocalApic::new_xapic(page) })
    }

    /// Through the x2APIC registers.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. All those CPUs are in x2APIC mode: IA32_APIC_BASE bits 10 and 11 are set (SDM vol. 3A,
    ///    "x2APIC State Transitions"); else every send raises #GP.
    pub const unsafe fn new_x2apic() -> Self {
        // SAFETY: 1. duty 1 of the caller. 2. and 3. duty 2: it is there, and on.
        Self(unsafe { LocalApic::new_x2apic() })
    }
}

impl<P: Port> IpiSender<P> {
    /// Through another port, for tests and simulators.
    ///
    /// # Safety
    ///
    /// 1. On every CPU that uses the value, `port` reaches the registers of `mode`, which is on.
    pub const unsafe fn with_port(mode: ApicMode, port: P) -> Self {
        // SAFETY: 1. the caller's. 2. `enable` would do what it says is done.
        Self(unsafe { LocalApic::with_port(mode, port) })
    }

    /// The mode that the host's controllers are in.
    pub const fn mode(&self) -> ApicMode {
        self.0.mode()
    }

    /// Interrupts a destination with a vector.
    ///
    /// # Errors
    ///
    /// [`SendError::Busy`], in xAPIC mode only; nothing was sent.
    ///
    /// # Panics
    ///
    /// As [`LocalApic::send`].
    #[inline]
    pub fn send(&self, to: Destination, vector: Vector) -> Result<(), SendError> {
        self.0.send(to, vector)
    }

    /// Interrupts the CPUs with these indices in the map, as [`LocalApic::send_many`] does.
    ///
    /// # Errors
    ///
    /// [`SendError::Unmapped`]: nothing was sent. [`SendError::Busy`]: some targets may have been
    /// interrupted; sending to all of them again is harmless.
    ///
    /// # Panics
    ///
    /// As [`LocalApic::send_many`].
    #[inline]
    pub fn send_many<const N: usize>(
        &self,
        map: &ApicMap<N>,
        initiator: usize,
        targets: &[u64],
        vector: Vector,
    ) -> Result<(), SendError> {
        self.0.send_many(map, initiator, targets, vector)
    }

    /// Interrupts this CPU itself.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    #[inline]
    pub fn send_self(&self, vector: Vector) -> Result<(), SendError> {
        self.0.send_self(vector)
    }

    /// Sends a non-maskable interrupt.
    ///
    /// # Errors
    ///
    /// As for [`IpiSender::send`].
    ///
    /// # Panics
    ///
    /// As [`LocalApic::send`].
    ///
    /// # Safety
    ///
    /// 1. The targets have an NMI handler that works at any instruction boundary.
    #[inline]
    pub unsafe fn send_nmi(&self, to: Destination) -> Result<(), SendError> {
        // SAFETY: 1. the caller's.
        unsafe { self.0.send_nmi(to) }
    }
}
