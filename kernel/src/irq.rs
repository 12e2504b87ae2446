//! The interrupt flag of this CPU: the one place where the kernel turns interrupts off and on, and tells the latency tracer.

use core::arch::asm;

pub use shootdown_x86::irq::IrqState;

use crate::latency;

/// Disables interrupts on this CPU and returns the previous state.
#[inline]
#[track_caller]
pub fn save() -> IrqState {
    let before = shootdown_x86::irq::save();
    if before.is_enabled() {
        latency::irqs_off();
    }
    before
}

/// Returns this CPU to the state that [`save`] found. Pairs nest.
#[inline]
pub fn restore(before: IrqState) {
    if before.is_enabled() {
        latency::irqs_on();
    }
    // SAFETY: 1. `before` is from `save`, or `enable` was called, where nothing has interrupts off for itself.
    unsafe { shootdown_x86::irq::restore(before) };
}

/// Enables interrupts on this CPU.
pub fn enable() {
    restore(IrqState::Enabled);
}

/// Disables interrupts on this CPU.
#[track_caller]
pub fn disable() {
    let _ = save();
}

/// Whether interrupts are enabled on this CPU.
pub fn enabled() -> bool {
    shootdown_x86::irq::state().is_enabled()
}

/// Halts until a non-maskable interrupt has been handled. Interrupts are off and stay so: others wait (SDM vol. 2A, "HLT").
pub fn wait_for_nmi() {
    debug_assert!(!enabled());
    // SAFETY: CPL 0; whoever is to end it sends an NMI, again and again until it is answered.
    unsafe { asm!("hlt", options(nostack)) };
}

/// Enables interrupts and halts until one arrives. No wake-up is lost: STI takes effect after the
/// next instruction (SDM vol. 2B, "STI"), so one that is pending already ends the HLT at once.
/// Returns with interrupts enabled.
pub fn wait_for_interrupt() {
    latency::irqs_on();
    // SAFETY: CPL 0; handlers are installed before the first idle loop runs.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}
