//! The few machine operations that invalidation is made of.

use core::arch::asm;

use super::invpcid::InvpcidKind;
use crate::irq::{self, IrqState};

/// How [`Tlb`](super::Tlb) reaches the machine. [`Hardware`] is the real thing; tests record. All methods
/// act on the CPU that calls them.
///
/// Safe code can read the control registers and drop pages; it can load no root and change no mode:
///
/// ```compile_fail,E0133
/// use shootdown_x86::tlb::{Hardware, Port};
/// fn load(hardware: &Hardware, root: u64) {
///     hardware.write_cr3(root);
/// }
/// ```
pub trait Port {
    /// INVLPG for the page that holds `address`. Nothing happens if the address is not canonical.
    fn invlpg(&self, address: usize);
    /// INVPCID.
    ///
    /// # Safety
    ///
    /// 1. The processor has the instruction (else #UD).
    /// 2. A PCID other than 0 is named only while CR4.PCIDE is set (else #GP).
    /// 3. An address that is named is canonical (else #GP).
    unsafe fn invpcid(&self, kind: InvpcidKind);
    /// Reads CR3.
    fn read_cr3(&self) -> u64;
    /// Writes CR3. With CR4.PCIDE set, bits 11:0 are the tag, and bit 63 says that it keeps what it
    /// has cached; without it bit 63 faults.
    ///
    /// # Safety
    ///
    /// 1. The root maps the code, the stack and everything else that this CPU goes on using.
    /// 2. What the tag has cached, if it is kept, is true of the root.
    unsafe fn write_cr3(&self, value: u64);
    /// Reads CR4.
    fn read_cr4(&self) -> u64;
    /// Writes CR4. Interrupts are off since it was read: a handler in between could change it too.
    ///
    /// # Safety
    ///
    /// 1. `value` is what was read but for PGE and PCIDE.
    /// 2. The processor has those of them that are set, and PCIDE becomes set only while CR3 bits 11:0
    ///    are clear (else #GP).
    unsafe fn write_cr4(&self, value: u64);
    /// Disables interrupts, returns the previous state.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    ///
    /// # Safety
    ///
    /// 1. `before` is what that returned on this CPU.
    unsafe fn irq_restore(&self, before: IrqState);
}

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
    unsafe fn invpcid(&self, kind: InvpcidKind) {
        let (number, descriptor) = kind.encode();
        // SAFETY: CPL 0 by `new`; duties 1 to 3 are the caller's; `encode` sets no reserved bit. The
        // descriptor lives until the end of this function.
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
    unsafe fn write_cr3(&self, value: u64) {
        // SAFETY: CPL 0 by `new`; duties 1 and 2 are the caller's.
        unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    #[inline]
    fn read_cr4(&self) -> u64 {
        let value: u64;
        // SAFETY: CPL 0 by `new`; a pure read.
        unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }

    #[inline]
    unsafe fn write_cr4(&self, value: u64) {
        // SAFETY: CPL 0 by `new`; duties 1 and 2 are the caller's.
        unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
    }

    #[inline]
    fn irq_save(&self) -> IrqState {
        irq::save()
    }

    #[inline]
    unsafe fn irq_restore(&self, before: IrqState) {
        // SAFETY: 1. the caller's.
        unsafe { irq::restore(before) };
    }
}
