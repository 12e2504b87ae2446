//! Keeping interrupts away from this CPU for a few instructions, and waiting for one.
//!
//! CRMD.IE is bit 2 (reference manual vol. 1, 7.4.1 "Current Mode Information"). Hazards between writes of CSRs and what follows are the
//! hardware's (7.3), so no barrier is needed behind them. The functions exist on LoongArch only, and are barriers for the compiler: no
//! memory access moves across them.

use core::ops::Range;

/// CRMD.IE.
const CRMD_IE: usize = 1 << 2;

/// Whether interrupts were enabled when they were turned off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay disabled until the state is restored"]
pub enum IrqState {
    /// Interrupts were enabled; they will be again.
    Enabled,
    /// Interrupts were disabled already, and stay so.
    Disabled,
}

impl IrqState {
    /// The state that a value of CRMD describes.
    pub const fn from_crmd(crmd: usize) -> Self {
        if crmd & CRMD_IE != 0 {
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

/// Where an interrupt that came at `era` returns to, if the code that waits is at `waiting`: never to the IDLE, which would sleep although the interrupt
/// has brought work. Any context.
pub const fn resume_after(era: usize, waiting: &Range<usize>) -> usize {
    if era >= waiting.start && era < waiting.end {
        waiting.end
    } else {
        era
    }
}

#[cfg(target_arch = "loongarch64")]
pub use hardware::{restore, resume_address, save, wait};

#[cfg(target_arch = "loongarch64")]
mod hardware {
    use core::arch::{asm, global_asm};

    use super::{CRMD_IE, IrqState, resume_after};

    /// Disables interrupts on this CPU and returns the previous state. Pairs with [`restore`] nest. PLV 0 only: elsewhere it raises an exception, and
    /// nothing else happens, so this is safe to call. Machine errors and exceptions still get through.
    #[inline]
    pub fn save() -> IrqState {
        let mut crmd = 0_usize;
        // $t0, because no mask can be in $ra: CSRXCHG with that is CSRWR.
        // SAFETY: clears CRMD.IE only, by the mask. Not `nomem`, so that the compiler keeps accesses on their side.
        unsafe {
            asm!("csrxchg {}, $t0, 0x0", inout(reg) crmd, in("$t0") CRMD_IE, options(nostack));
        }
        IrqState::from_crmd(crmd)
    }

    /// Returns this CPU to the state that [`save`] found. PLV 0 only.
    ///
    /// # Safety
    ///
    /// 1. `before` is what the matching [`save`] returned on this CPU, or nothing that runs on this CPU relies on interrupts being off.
    #[inline]
    pub unsafe fn restore(before: IrqState) {
        if before.is_enabled() {
            // SAFETY: sets CRMD.IE only, by the mask; by duty 1 nobody relies on it being clear.
            unsafe {
                asm!("csrxchg {}, $t0, 0x0", inout(reg) CRMD_IE => _, in("$t0") CRMD_IE, options(nostack));
            }
        }
    }

    // IDLE has to execute with interrupts on, for what is pending while they are off need not wake it. Between the two an interrupt may come.
    global_asm!(
        ".pushsection .text.shootdown_loongarch_wait, \"ax\"",
        ".hidden shootdown_loongarch_wait",
        ".hidden shootdown_loongarch_waited",
        ".globl shootdown_loongarch_wait",
        ".globl shootdown_loongarch_waited",
        "shootdown_loongarch_wait:",
        "ori $t0, $zero, 4",
        "csrxchg $t0, $t0, 0x0",
        "idle 0",
        "shootdown_loongarch_waited:",
        "ori $t0, $zero, 4",
        "csrxchg $zero, $t0, 0x0",
        "jr $ra",
        ".popsection",
    );

    unsafe extern "C" {
        fn shootdown_loongarch_wait();
        fn shootdown_loongarch_waited();
    }

    /// Enables interrupts, waits for one with `IDLE 0` (vol. 1, 4.2.6.3), and disables them again. Call it with interrupts off, after a last look for work:
    /// what is sent after that look ends the wait. PLV 0 only.
    ///
    /// # Safety
    ///
    /// 1. The kernel's interrupt handler returns to [`resume_address`] of the ERA that it found.
    /// 2. Nothing that runs on this CPU relies on interrupts being off during the call.
    #[inline]
    pub unsafe fn wait() {
        // SAFETY: a function without arguments that changes $t0 and CRMD.IE; duties 1 and 2 are the caller's.
        unsafe { shootdown_loongarch_wait() };
    }

    /// Where the interrupt handler returns to that found `era` in CSR.ERA: behind the wait, if it came in [`wait`], else to `era`. Any context. (Linux: `handle_vint`, which
    /// does the same for `__arch_cpu_idle`.)
    #[inline]
    pub fn resume_address(era: usize) -> usize {
        let start = shootdown_loongarch_wait as *const () as usize;
        let end = shootdown_loongarch_waited as *const () as usize;
        resume_after(era, &(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bit_two_decides() {
        assert!(IrqState::from_crmd(0xb4).is_enabled());
        assert_eq!(IrqState::from_crmd(!CRMD_IE), IrqState::Disabled);
    }

    #[test]
    fn an_interrupt_inside_the_wait_ends_it() {
        let waiting = 0x1000..0x100c;
        for (era, resumed) in [
            (0xffc, 0xffc),
            (0x1000, 0x100c),
            (0x1008, 0x100c),
            (0x100c, 0x100c),
            (0x1010, 0x1010),
        ] {
            assert_eq!(resume_after(era, &waiting), resumed, "{era:#x}");
        }
    }
}
