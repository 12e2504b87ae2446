//! This machine's local APICs: the one value through which all CPUs reach their own, and the map of all
//! of them.

use core::ptr::NonNull;

use shootdown::CpuId;
use shootdown_x86::apic::{Destination, TimerDivide, physical_base};
use shootdown_x86::{ApicMap, ApicMode, Delivery, FadtFlags, Features, LocalApic, SendError};
use spin::Once;

use super::trap::vectors;
use crate::addr::PhysAddr;
use crate::arch::paging::APIC_PAGE;
use crate::cpus::MAX_CPUS;

/// Which CPU has which APIC id.
pub static MAP: ApicMap<MAX_CPUS> = ApicMap::new();

/// How the timer is divided: QEMU's runs at 1 GHz, real ones at 25 to 200 MHz; By16 leaves both
/// enough resolution for milliseconds.
pub const TIMER_DIVIDE: TimerDivide = TimerDivide::By16;

static LOCAL: Once<LocalApic> = Once::new();

/// The local APIC of the running CPU.
///
/// # Panics
///
/// Before [`choose`].
#[inline]
pub fn local() -> &'static LocalApic {
    LOCAL
        .get()
        .expect("the local APIC is chosen first thing at boot")
}

/// Physical address of the register page, to be mapped uncached at [`APIC_PAGE`].
pub fn register_page() -> PhysAddr {
    // SAFETY: 1. the kernel runs at CPL 0.
    PhysAddr::new(unsafe { physical_base() })
}

/// Chooses the mode and the way to address CPUs, which the firmware may limit. Boot CPU, once.
pub fn choose(features: &Features, cpus: usize, firmware: FadtFlags) {
    let mode = ApicMode::detect(features);
    LOCAL.call_once(|| match mode {
        ApicMode::XApic => {
            let page = NonNull::new(APIC_PAGE as *mut u8).expect("not at 0");
            // SAFETY: 1. the kernel. 2. `paging` maps the page uncached and for ever, before the
            // first use. 3. `enable` below.
            unsafe { LocalApic::new_xapic(page) }
        }
        // SAFETY: 1. the kernel. 2. CPUID says so. 3. `enable` below.
        ApicMode::X2Apic => unsafe { LocalApic::new_x2apic() },
    });
    MAP.configure(Delivery::choose(mode, cpus, firmware))
        .expect("no CPU was inserted yet");
}

/// Has that CPU, which is not this one, choose a thread anew as soon as it takes interrupts. Preemption is off.
///
/// An interrupt of its own, not a function posted through the engine: it needs no request slot, which a
/// target with interrupts off would keep busy, so that this CPU would have to wait for it.
pub fn send_reschedule(cpu: CpuId) {
    let id = MAP
        .id(cpu.index())
        .expect("threads are queued on CPUs of the map only");
    while local()
        .send(Destination::Physical(id), vectors::RESCHEDULE)
        .is_err()
    {
        // The one before is still on its way: the controller's work, not another CPU's.
        core::hint::spin_loop();
    }
}

/// Sends that CPU an NMI, also this one.
///
/// # Errors
/// The controller refuses it, or there is no such CPU.
pub fn send_nmi(cpu: CpuId) -> Result<(), SendError> {
    let id = MAP.id(cpu.index());
    let id = id.ok_or(SendError::Unmapped(cpu.index()))?;
    // SAFETY: 1. the handler has a stack of its own and looks at GS itself.
    unsafe { local().send_nmi(Destination::Physical(id)) }
}

/// Switches this CPU's controller on. Interrupts off, IDT loaded.
pub fn enable(cpu: usize) {
    // SAFETY: 1. and 2. as promised above; the spurious vector's handler does nothing. 3. the map
    // knows the delivery mode, which is the same everywhere.
    unsafe { local().enable(vectors::SPURIOUS, MAP.flat_id(cpu)) };
    MAP.set_online(cpu);
}
