//! Keeping interrupts away from this CPU for a few instructions.
//!
//! Both functions are also compiler barriers: no memory access moves across them, in either
//! direction.

use core::arch::asm;

/// RFLAGS.IF, the interrupt enable flag (SDM vol. 1, "EFLAGS Register").
const RFLAGS_IF: u64 = 1 << 9;

/// Whether maskable interrupts were enabled when [`save`] ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay disabled until the state is restored"]
pub enum IrqState {
    /// Interrupts were enabled; [`restore`] enables them again.
    Enabled,
    /// Interrupts were disabled already; [`restore`] leaves them so.
    Disabled,
}

impl IrqState {
    /// The state that an RFLAGS value describes.
    pub const fn from_rflags(rflags: u64) -> Self {
        if rflags & RFLAGS_IF != 0 {
            Self::Enabled
        } else {
            Self::Disabled
        }
    }

    /// Whether this is [`IrqState::Enabled`].
    pub const fn is_enabled(self) -> bool {
        matches!(self, Self::Enabled)
    }
}

/// The interrupt state of this CPU now.
#[inline]
pub fn state() -> IrqState {
    let rflags: u64;
    // SAFETY: pushes and pops RFLAGS on the stack that the compiler provides; nothing else changes.
    unsafe { asm!("pushfq", "pop {}", out(reg) rflags, options(preserves_flags)) };
    IrqState::from_rflags(rflags)
}

/// Disables maskable interrupts on this CPU and returns the previous state.
///
/// CPL 0 only: elsewhere CLI raises #GP, and nothing else happens, so this is safe to call. NMI,
/// machine check and SMI still get through.
#[inline]
pub fn save() -> IrqState {
    let before = state();
    // SAFETY: clears RFLAGS.IF; not `nomem`, so that the compiler keeps accesses on their side.
    unsafe { asm!("cli", options(nostack, preserves_flags)) };
    before
}

/// Returns this CPU to the state that [`save`] found. Pairs nest. CPL 0 only, as for [`save`].
///
/// ```compile_fail,E0133
/// use shootdown_x86::irq::{self, IrqState};
/// irq::restore(IrqState::Enabled);
/// ```
///
/// # Safety
///
/// 1. `before` is what the matching [`save`] returned on this CPU, or nothing that runs on this CPU
///    relies on interrupts being off.
#[inline]
pub unsafe fn restore(before: IrqState) {
    if before.is_enabled() {
        // SAFETY: sets RFLAGS.IF; by duty 1 nobody relies on it being clear.
        unsafe { asm!("sti", options(nostack, preserves_flags)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bit_nine_decides() {
        assert_eq!(IrqState::from_rflags(0x202), IrqState::Enabled);
        assert_eq!(IrqState::from_rflags(!RFLAGS_IF), IrqState::Disabled);
    }

    #[test]
    fn a_hosted_process_runs_with_interrupts_enabled() {
        assert!(state().is_enabled());
    }
}
