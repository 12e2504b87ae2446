//! The interrupt flag of this CPU.

use core::arch::asm;

pub use shootdown_x86::irq::{IrqState, restore, save};

/// Enables interrupts on this CPU.
pub fn enable() {
    restore(IrqState::Enabled);
}

/// Disables interrupts on this CPU.
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
    // SAFETY: CPL 0; handlers are installed before the first idle loop runs.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}
