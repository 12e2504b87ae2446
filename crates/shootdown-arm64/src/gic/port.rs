//! The few machine operations that sending is made of.

/// How SGIs are written. `SystemRegisters` and `Distributor` are the real things; tests record. All methods act on the CPU that calls them.
pub trait Port {
    /// Makes earlier stores of this CPU visible to all CPUs before anything later: DSB ISHST.
    fn fence(&self);
    /// Writes the register that generates SGIs: ICC_SGI1R_EL1, or the 32 bits of GICD_SGIR.
    ///
    /// # Safety
    ///
    /// 1. The value names an SGI that its targets handle.
    unsafe fn write(&self, value: u64);
    /// Has earlier writes executed before anything later: ISB.
    fn synchronise(&self);
}

/// Also the compiler's barriers: not `nomem`.
#[cfg(target_arch = "aarch64")]
#[inline]
fn dsb_ishst() {
    // SAFETY: a barrier has no effect but ordering.
    unsafe { core::arch::asm!("dsb ishst", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn isb() {
    // SAFETY: as for `dsb_ishst`.
    unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
}

/// GICv3's and GICv4's registers of the CPU.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
pub struct SystemRegisters(());

#[cfg(target_arch = "aarch64")]
impl SystemRegisters {
    /// Access to them.
    ///
    /// # Safety
    ///
    /// 1. EL1 (or EL2 with VHE), ICC_SRE_EL1.SRE set and group 1 of the interface enabled, on every CPU that uses the value.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

#[cfg(target_arch = "aarch64")]
impl Port for SystemRegisters {
    #[inline]
    fn fence(&self) {
        dsb_ishst();
    }

    #[inline]
    unsafe fn write(&self, value: u64) {
        // SAFETY: duty 1 of `new`: the register exists; duty 1 of the caller. By its number (ICC_SGI1R_EL1), which needs no extension of the assembler.
        unsafe {
            core::arch::asm!("msr s3_0_c12_c11_5, {}", in(reg) value, options(nostack, preserves_flags))
        };
    }

    #[inline]
    fn synchronise(&self) {
        isb();
    }
}

/// GICv2's distributor.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
pub struct Distributor {
    sgir: core::ptr::NonNull<u32>,
}

// SAFETY: the page is device memory that all CPUs share; no reference to it is made, and each access is one instruction.
#[cfg(target_arch = "aarch64")]
unsafe impl Send for Distributor {}
// SAFETY: as for Send.
#[cfg(target_arch = "aarch64")]
unsafe impl Sync for Distributor {}

#[cfg(target_arch = "aarch64")]
impl Distributor {
    /// GICD_SGIR (Arm IHI 0048, 4.3.15).
    const SGIR: usize = 0xf00;

    /// Access through the distributor's page at `page`.
    ///
    /// # Safety
    ///
    /// 1. `page` is mapped for as long as the value is used, on all CPUs that use it, as device memory, to the distributor, 4 KiB aligned.
    pub const unsafe fn new(page: core::ptr::NonNull<u8>) -> Self {
        // SAFETY: 1. 4 KiB are mapped there, and the offset is within.
        let sgir = unsafe { page.byte_add(Self::SGIR) };
        Self { sgir: sgir.cast() }
    }
}

#[cfg(target_arch = "aarch64")]
impl Port for Distributor {
    #[inline]
    fn fence(&self) {
        dsb_ishst();
    }

    #[inline]
    unsafe fn write(&self, value: u64) {
        // SAFETY: duty 1 of `new`, and of the caller. An STR without writeback: hypervisors emulate no other.
        unsafe {
            core::arch::asm!("str {:w}, [{}]", in(reg) value, in(reg) self.sgir.as_ptr(), options(nostack, preserves_flags));
        }
    }

    #[inline]
    fn synchronise(&self) {
        isb();
    }
}
