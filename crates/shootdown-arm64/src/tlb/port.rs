//! The few machine operations that invalidation is made of.

use super::operand::{Reach, Tlbi};

/// A DSB, by what it waits for (DDI 0487, B2.6.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dsb {
    /// ISH: loads and stores, in the inner shareable domain; TLBIs of all kinds.
    Full,
    /// ISHST: stores only.
    Stores,
    /// NSH: this CPU's own; TLBIs that reach it alone.
    Own,
}

/// How [`Tlb`](super::Tlb) reaches the machine. `Hardware` is the real thing; tests record. All methods act on the CPU that calls them, and none may be moved over another by the compiler.
///
/// Safe code can drop translations; it can load no root and change no mode:
///
/// ```compile_fail,E0133
/// fn load(port: &impl shootdown_arm64::tlb::Port, root: u64) {
///     port.write_ttbr0(root);
/// }
/// ```
pub trait Port {
    /// DSB.
    fn dsb(&self, kind: Dsb);
    /// ISB.
    fn isb(&self);
    /// TLBI. A [range](Tlbi::Range) needs FEAT_TLBIRANGE (else the instruction is undefined).
    ///
    /// # Safety
    ///
    /// 1. A range is named only if the processor has them.
    unsafe fn tlbi(&self, reach: Reach, operation: Tlbi);
    /// Reads TTBR0_EL1.
    fn read_ttbr0(&self) -> u64;
    /// Writes TTBR0_EL1: the root, CnP in bit 0, the ASID in bits 63:48.
    ///
    /// # Safety
    ///
    /// 1. Nothing that this CPU uses until another write is translated by TTBR0_EL1, unless the root translates it.
    /// 2. What the tag has cached and will be used is true of the root.
    unsafe fn write_ttbr0(&self, value: u64);
    /// Reads TCR_EL1.
    fn read_tcr(&self) -> u64;
    /// Writes TCR_EL1.
    ///
    /// # Safety
    ///
    /// 1. `value` is what was read but for A1 and AS.
    unsafe fn write_tcr(&self, value: u64);
}

/// The processor itself.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
pub struct Hardware(());

#[cfg(target_arch = "aarch64")]
impl Hardware {
    /// Access to the processor.
    ///
    /// # Safety
    ///
    /// 1. EL1 (or EL2 with VHE, where HCR_EL2.E2H and TGE make these names those of EL2), on every CPU that uses the value.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// One TLBI with a register, by its name. Ranges need an extension of the assembler.
#[cfg(target_arch = "aarch64")]
macro_rules! tlbi {
    ($name:literal, $operand:expr) => {
        // SAFETY: EL1 by `new`; it changes nothing that memory holds. A range exists by duty 1 of the caller. Not `nomem`: stores to page tables stay before it.
        unsafe {
            core::arch::asm!(".arch_extension tlb-rmi", concat!("tlbi ", $name, ", {}"), in(reg) $operand,
                options(nostack, preserves_flags))
        }
    };
}

#[cfg(target_arch = "aarch64")]
impl Port for Hardware {
    #[inline]
    fn dsb(&self, kind: Dsb) {
        match kind {
            // SAFETY: barriers have no effect but ordering; not `nomem`, so that the compiler orders too.
            Dsb::Full => unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) },
            // SAFETY: as above.
            Dsb::Stores => unsafe {
                core::arch::asm!("dsb ishst", options(nostack, preserves_flags))
            },
            // SAFETY: as above.
            Dsb::Own => unsafe { core::arch::asm!("dsb nsh", options(nostack, preserves_flags)) },
        }
    }

    #[inline]
    fn isb(&self) {
        // SAFETY: as for `dsb`.
        unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
    }

    #[inline]
    unsafe fn tlbi(&self, reach: Reach, operation: Tlbi) {
        use super::operand::Depth::{Leaf, Tables};
        use Reach::{Inner, Own};
        let operand = operation.operand();
        match (reach, operation) {
            // SAFETY: as in `tlbi!`.
            (Own, Tlbi::All) => unsafe {
                core::arch::asm!("tlbi vmalle1", options(nostack, preserves_flags))
            },
            // SAFETY: as in `tlbi!`.
            (Inner, Tlbi::All) => unsafe {
                core::arch::asm!("tlbi vmalle1is", options(nostack, preserves_flags))
            },
            (Own, Tlbi::Tag(_)) => tlbi!("aside1", operand),
            (Inner, Tlbi::Tag(_)) => tlbi!("aside1is", operand),
            (Own, Tlbi::Page(None, _, Leaf)) => tlbi!("vaale1", operand),
            (Own, Tlbi::Page(None, _, Tables)) => tlbi!("vaae1", operand),
            (Own, Tlbi::Page(Some(_), _, Leaf)) => tlbi!("vale1", operand),
            (Own, Tlbi::Page(Some(_), _, Tables)) => tlbi!("vae1", operand),
            (Inner, Tlbi::Page(None, _, Leaf)) => tlbi!("vaale1is", operand),
            (Inner, Tlbi::Page(None, _, Tables)) => tlbi!("vaae1is", operand),
            (Inner, Tlbi::Page(Some(_), _, Leaf)) => tlbi!("vale1is", operand),
            (Inner, Tlbi::Page(Some(_), _, Tables)) => tlbi!("vae1is", operand),
            (Own, Tlbi::Range(None, _, Leaf)) => tlbi!("rvaale1", operand),
            (Own, Tlbi::Range(None, _, Tables)) => tlbi!("rvaae1", operand),
            (Own, Tlbi::Range(Some(_), _, Leaf)) => tlbi!("rvale1", operand),
            (Own, Tlbi::Range(Some(_), _, Tables)) => tlbi!("rvae1", operand),
            (Inner, Tlbi::Range(None, _, Leaf)) => tlbi!("rvaale1is", operand),
            (Inner, Tlbi::Range(None, _, Tables)) => tlbi!("rvaae1is", operand),
            (Inner, Tlbi::Range(Some(_), _, Leaf)) => tlbi!("rvale1is", operand),
            (Inner, Tlbi::Range(Some(_), _, Tables)) => tlbi!("rvae1is", operand),
        }
    }

    #[inline]
    fn read_ttbr0(&self) -> u64 {
        let value: u64;
        // SAFETY: EL1 by `new`; a pure read.
        unsafe {
            core::arch::asm!("mrs {}, ttbr0_el1", out(reg) value, options(nostack, preserves_flags))
        };
        value
    }

    #[inline]
    unsafe fn write_ttbr0(&self, value: u64) {
        // SAFETY: EL1 by `new`; duties 1 and 2 are the caller's.
        unsafe {
            core::arch::asm!("msr ttbr0_el1, {}", in(reg) value, options(nostack, preserves_flags))
        };
    }

    #[inline]
    fn read_tcr(&self) -> u64 {
        let value: u64;
        // SAFETY: EL1 by `new`; a pure read.
        unsafe {
            core::arch::asm!("mrs {}, tcr_el1", out(reg) value, options(nostack, preserves_flags))
        };
        value
    }

    #[inline]
    unsafe fn write_tcr(&self, value: u64) {
        // SAFETY: EL1 by `new`; duty 1 is the caller's.
        unsafe {
            core::arch::asm!("msr tcr_el1, {}", in(reg) value, options(nostack, preserves_flags))
        };
    }
}
