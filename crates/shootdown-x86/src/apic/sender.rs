//! Sending only: all that there is to a controller that the host has switched on and goes on owning.

use core::ptr::NonNull;

use super::mode::ApicMode;
use super::port::{Hardware, Port};

/// Sends interrupts through the local APIC of whichever CPU calls, and touches nothing of it but the
/// interrupt command (in x2APIC mode also the register for interrupts to oneself): no mode, no local
/// source, no priority, no end of interrupt.
///
/// Whatever sends may be called with interrupts on or off and from interrupt handlers; in xAPIC mode not
/// from NMI handlers. In x2APIC mode every send is fenced as by [`fence_before_ipi`](super::fence_before_ipi).
///
/// The map that [`IpiSender::send_many`] takes is the host's to fill. [`Delivery::XapicFlat`] needs logical
/// ids as in [`ApicMap::flat_id`](super::ApicMap::flat_id) in the host's controllers; a host that did not set those uses
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
pub struct IpiSender<P: Port = Hardware> {
    pub(super) mode: ApicMode,
    pub(super) port: P,
}

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
        // SAFETY: duties 1 and 3 are the caller's.
        let port = unsafe { Hardware::with_page(page) };
        Self {
            mode: ApicMode::XApic,
            port,
        }
    }

    /// Through the x2APIC registers.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. All those CPUs are in x2APIC mode: IA32_APIC_BASE bits 10 and 11 are set (SDM vol. 3A,
    ///    "x2APIC State Transitions"); else every send raises #GP.
    pub const unsafe fn new_x2apic() -> Self {
        // SAFETY: duty 1 is the caller's.
        let port = unsafe { Hardware::without_page() };
        Self {
            mode: ApicMode::X2Apic,
            port,
        }
    }
}

impl<P: Port> IpiSender<P> {
    /// Through another port, for tests and simulators.
    ///
    /// # Safety
    ///
    /// 1. On every CPU that uses the value, `port` reaches the registers of `mode`, which is on.
    pub const unsafe fn with_port(mode: ApicMode, port: P) -> Self {
        Self { mode, port }
    }

    /// The mode that the controllers are in.
    pub const fn mode(&self) -> ApicMode {
        self.mode
    }

    pub(crate) const fn port(&self) -> &P {
        &self.port
    }
}
