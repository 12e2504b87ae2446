//! Keeping interrupts away from this CPU for a few instructions, and waiting for one.
//!
//! Both IRQ and FIQ: some platforms deliver interrupts between CPUs as FIQ (Linux masks both since 5.13, `arch/arm64/include/asm/daifflags.h`). A kernel that masks
//! by priority instead (ICC_PMR_EL1) writes its own.

/// PSTATE.I and PSTATE.F as DAIF has them (DDI 0487, C5.2, "DAIF, Interrupt Mask Bits").
const DAIF_I: u64 = 1 << 7;
const DAIF_F: u64 = 1 << 6;

/// What DAIF held when [`Port::save`] ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "interrupts stay masked until the state is restored"]
pub struct IrqState(u64);

impl IrqState {
    /// The state that a DAIF value describes.
    pub const fn from_daif(daif: u64) -> Self {
        Self(daif)
    }

    /// The DAIF value.
    pub const fn daif(self) -> u64 {
        self.0
    }

    /// Whether neither IRQ nor FIQ was masked.
    pub const fn is_enabled(self) -> bool {
        self.0 & (DAIF_I | DAIF_F) == 0
    }
}

/// How interrupts are masked: `Hardware` is the real thing. All methods act on the CPU that calls them.
pub trait Port {
    /// Masks IRQ and FIQ on this CPU, returns the previous state. SError and non-maskable interrupts still get through. A barrier for the compiler.
    fn save(&self) -> IrqState;
    /// Returns this CPU to the state that [`save`](Self::save) found. Pairs nest. A barrier for the compiler.
    ///
    /// # Safety
    ///
    /// 1. `before` is what the matching `save` returned on this CPU, or nothing that runs on this CPU relies on interrupts being masked.
    unsafe fn restore(&self, before: IrqState);
    /// Waits for an interrupt, also for one that is masked: WFI wakes up for it and does not take it (DDI 0487, "Wait for Interrupt"). So an idle loop masks interrupts,
    /// looks for work, waits, and unmasks. It may return without an interrupt. A DSB before it completes what this CPU has stored.
    fn wait(&self);
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
    /// 1. EL1 (or EL2 with VHE), on every CPU that uses the value.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

#[cfg(target_arch = "aarch64")]
impl Port for Hardware {
    #[inline]
    fn save(&self) -> IrqState {
        let daif: u64;
        // SAFETY: EL1 by `new`. It reads DAIF and sets I and F; not `nomem`, so that the compiler keeps accesses on their side.
        unsafe {
            core::arch::asm!("mrs {}, daif", "msr daifset, #3", out(reg) daif, options(nostack, preserves_flags));
        }
        IrqState(daif)
    }

    #[inline]
    unsafe fn restore(&self, before: IrqState) {
        // SAFETY: EL1 by `new`; by duty 1 nobody relies on what it unmasks.
        unsafe {
            core::arch::asm!("msr daif, {}", in(reg) before.0, options(nostack, preserves_flags))
        };
    }

    #[inline]
    fn wait(&self) {
        // SAFETY: it changes nothing, and ends with any interrupt.
        unsafe { core::arch::asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
    }
}
