//! The few machine operations that invalidation is made of.

use core::arch::asm;

use super::invpcid::InvpcidKind;
use crate::irq::{self, IrqState};

/// How [`Tlb`](super::Tlb) reaches the machine. [`Hardware`] is the real thing; tests record.
pub trait Port {
    /// INVLPG for the page that holds `address`.
    fn invlpg(&self, address: usize);
    /// INVPCID.
    fn invpcid(&self, kind: InvpcidKind);
    /// Reads CR3.
    fn read_cr3(&self) -> u64;
    /// Writes CR3, bit 63 ("keep translations") clear.
    ///
    /// # Safety
    ///
    /// 1. `root` maps the code, the stack and everything else that this CPU goes on using.
    unsafe fn write_cr3(&self, root: u64);
    /// Flips CR4.PGE and flips it back: each change drops everything. The processor has PGE.
    ///
    /// Interrupts are off: a handler in between could save and restore the wrong CR4.
    fn toggle_global_pages(&self);
    /// Disables interrupts, returns the previous state.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    fn irq_restore(&self, before: IrqState);
}

/// CR4.PGE (SDM vol. 3A, "Control Registers").
const CR4_PGE: u64 = 1 << 7;

/// The processor itself.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(());

impl Hardware {
    /// Access to the processor.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Port for Hardware {
    #[inline]
    fn invlpg(&self, address: usize) {
        // SAFETY: CPL 0 by `new`; dropping a translation never changes what memory holds. Any
        // address is allowed, a non-canonical one does nothing (SDM vol. 2A, "INVLPG").
        unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
    }

    #[inline]
    fn invpcid(&self, kind: InvpcidKind) {
        let (number, descriptor) = kind.encode();
        // SAFETY: CPL 0 by `new`; `Tlb` calls it only where CPUID has it; `encode` sets no reserved
        // bit. The descriptor lives until the end of this function.
        unsafe {
            asm!("invpcid {}, [{}]", in(reg) number, in(reg) &raw const descriptor,
                 options(nostack, preserves_flags));
        }
    }

    #[inline]
    fn read_cr3(&self) -> u64 {
        let root: u64;
        // SAFETY: CPL 0 by `new`; a pure read.
        unsafe { asm!("mov {}, cr3", out(reg) root, options(nomem, nostack, preserves_flags)) };
        root
    }

    #[inline]
    unsafe fn write_cr3(&self, root: u64) {
        // SAFETY: CPL 0 by `new`; duty 1 is the caller's.
        unsafe { asm!("mov cr3, {}", in(reg) root, options(nostack, preserves_flags)) };
    }

    #[inline]
    fn toggle_global_pages(&self) {
        let before: u64;
        // SAFETY: CPL 0 by `new`; a pure read.
        unsafe { asm!("mov {}, cr4", out(reg) before, options(nomem, nostack, preserves_flags)) };
        let flipped = before ^ CR4_PGE;
        // SAFETY: CPL 0 by `new`; `Tlb` calls it only where CPUID has PGE, and that bit may change
        // at any time.
        unsafe { asm!("mov cr4, {}", in(reg) flipped, options(nostack, preserves_flags)) };
        // SAFETY: the value that was there.
        unsafe { asm!("mov cr4, {}", in(reg) before, options(nostack, preserves_flags)) };
    }

    #[inline]
    fn irq_save(&self) -> IrqState {
        irq::save()
    }

    #[inline]
    fn irq_restore(&self, before: IrqState) {
        irq::restore(before);
    }
}
