//! The few machine operations that local APIC code is made of.

use core::arch::asm;
use core::ptr::NonNull;

use crate::irq::{self, IrqState};
use crate::msr::{self, Msr};

/// How [`LocalApic`](super::LocalApic) reaches the machine.
///
/// [`Hardware`] is the real thing. Tests and simulators provide their own to see, in order, what
/// was done. All methods act on the CPU that calls them, and may be called in any context.
///
/// Registers can reset and start CPUs, and model-specific ones can do anything. So safe code cannot
/// reach them:
///
/// ```compile_fail,E0133
/// use shootdown_x86::apic::{Hardware, Port, Register};
/// fn reset_all_others(hardware: &Hardware) {
///     hardware.write_page(Register::CommandLow.offset(), 0x000c_4500);
/// }
/// ```
///
/// ```compile_fail,E0133
/// use shootdown_x86::{apic::{Hardware, Port}, msr::Msr};
/// fn write(hardware: &Hardware) {
///     hardware.write_msr(Msr::APIC_BASE, 0);
/// }
/// ```
pub trait Port {
    /// Reads the 32-bit register at `offset` bytes in the xAPIC page.
    ///
    /// # Safety
    ///
    /// 1. The controller is in xAPIC mode, and the port reaches its page.
    /// 2. `offset` is a [`Register`](super::Register)'s that this mode has.
    unsafe fn read_page(&self, offset: u16) -> u32;
    /// Writes the 32-bit register at `offset` bytes in the xAPIC page.
    ///
    /// # Safety
    ///
    /// 1. The controller is in xAPIC mode, and the port reaches its page.
    /// 2. `offset` is a [`Register`](super::Register)'s that this mode has.
    /// 3. The effect of the value breaks none of Rust's rules: an interrupt command can reset a CPU,
    ///    start it in any page below 1 MiB, or raise an NMI.
    unsafe fn write_page(&self, offset: u16, value: u32);
    /// Reads a model-specific register.
    ///
    /// # Safety
    ///
    /// 1. The register exists on this processor in its present mode (else #GP).
    /// 2. Reading it has no effect that breaks Rust's rules.
    unsafe fn read_msr(&self, msr: Msr) -> u64;
    /// Writes a model-specific register.
    ///
    /// # Safety
    ///
    /// 1. The register exists on this processor in its present mode, and `value` sets no reserved
    ///    bit (else #GP).
    /// 2. The effect of the value breaks none of Rust's rules: as for [`Port::write_page`] in x2APIC
    ///    mode.
    unsafe fn write_msr(&self, msr: Msr, value: u64);
    /// Makes earlier stores visible to all CPUs before anything later on this CPU executes.
    fn fence(&self);
    /// Disables interrupts, returns the previous state.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    ///
    /// # Safety
    ///
    /// 1. `before` is what that returned on this CPU.
    unsafe fn irq_restore(&self, before: IrqState);
    /// One turn of a busy-wait loop.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}

/// Makes all earlier stores of this CPU visible to all CPUs before any later instruction executes, a
/// WRMSR too: MFENCE, then LFENCE.
///
/// For hosts that write the interrupt command register themselves. In x2APIC mode that is a WRMSR which
/// does not serialise and may overtake stores (SDM vol. 3A, "MSR Access in x2APIC Mode"), so a target
/// could take the interrupt and not yet see what it was sent for. Call this after the last store that
/// the target must see, and before the WRMSR; once is enough for several commands in a row. Not needed
/// in xAPIC mode, whose registers are uncacheable memory, nor before anything in this crate that sends:
/// it does so itself.
///
/// Any privilege level, any context; changes no register and no flag. Also a compiler barrier.
#[inline(always)]
pub fn fence_before_ipi() {
    // SAFETY: fences have no effect but ordering; not `nomem`, so the compiler orders too.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
}

/// The processor itself.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// The xAPIC page; none in x2APIC mode, where that page does not respond.
    page: Option<NonNull<u32>>,
}

// SAFETY: the page is device memory that every CPU sees as its own controller; `Hardware` never
// makes a reference to it, and each register access is one instruction.
unsafe impl Send for Hardware {}
// SAFETY: as for Send.
unsafe impl Sync for Hardware {}

impl Hardware {
    /// Access through the page at `page`.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    /// 2. `page` is mapped for as long as the value is used, on all those CPUs, readable and
    ///    writable and strong uncacheable (SDM vol. 3A, "Local APIC Status and Location"), to the
    ///    physical address in IA32_APIC_BASE, 4 KiB aligned.
    pub const unsafe fn with_page(page: NonNull<u8>) -> Self {
        Self {
            page: Some(page.cast()),
        }
    }

    /// Access through MSRs only.
    ///
    /// # Safety
    ///
    /// 1. CPL 0, on every CPU that uses the value.
    pub const unsafe fn without_page() -> Self {
        Self { page: None }
    }

    /// Address of a register.
    #[inline]
    fn register(&self, offset: u16) -> NonNull<u32> {
        assert!(
            offset < 4096 && offset % 16 == 0,
            "not a local APIC register"
        );
        let page = self
            .page
            .expect("xAPIC register access needs the xAPIC page");
        // SAFETY: duty 2 of `with_page`: 4 KiB are mapped there, and the offset is within.
        unsafe { page.byte_add(usize::from(offset)) }
    }
}

/// A MOV for each access to the page: compilers make TEST and the like of volatile reads, which not every hypervisor carries out.
impl Port for Hardware {
    #[inline]
    unsafe fn read_page(&self, offset: u16) -> u32 {
        let register = self.register(offset).as_ptr();
        let value: u32;
        // SAFETY: duty 2 of `with_page`; aligned because offsets are multiples of 16.
        unsafe {
            asm!("mov {:e}, [{}]", out(reg) value, in(reg) register, options(nostack, preserves_flags));
        }
        value
    }

    #[inline]
    unsafe fn write_page(&self, offset: u16, value: u32) {
        let register = self.register(offset).as_ptr();
        // SAFETY: duty 2 of `with_page`; aligned because offsets are multiples of 16; duty 3 of the
        // caller.
        unsafe {
            asm!("mov [{}], {:e}", in(reg) register, in(reg) value, options(nostack, preserves_flags));
        }
    }

    #[inline]
    unsafe fn read_msr(&self, msr: Msr) -> u64 {
        // SAFETY: 1. duty 1 of the constructors. 2. and 3. duties 1 and 2 of the caller.
        unsafe { msr::read(msr) }
    }

    #[inline]
    unsafe fn write_msr(&self, msr: Msr, value: u64) {
        // SAFETY: 1. duty 1 of the constructors. 2. and 3. duties 1 and 2 of the caller.
        unsafe { msr::write(msr, value) }
    }

    #[inline]
    fn fence(&self) {
        fence_before_ipi();
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
