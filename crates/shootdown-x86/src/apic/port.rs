//! The few machine operations that local APIC code is made of.

use core::arch::asm;
use core::ptr::NonNull;

use crate::irq::{self, IrqState};
use crate::msr::{self, Msr};

/// How [`LocalApic`](super::LocalApic) reaches the machine.
///
/// [`Hardware`] is the real thing. Tests and simulators provide their own to see, in order, what
/// was done. All methods act on the CPU that calls them.
pub trait Port {
    /// Reads the 32-bit register at `offset` in the xAPIC page.
    fn read_page(&self, offset: u16) -> u32;
    /// Writes the 32-bit register at `offset` in the xAPIC page.
    fn write_page(&self, offset: u16, value: u32);
    /// Reads a model-specific register.
    fn read_msr(&self, msr: Msr) -> u64;
    /// Writes a model-specific register.
    fn write_msr(&self, msr: Msr, value: u64);
    /// Makes earlier stores visible to all CPUs before anything later on this CPU executes.
    fn fence(&self);
    /// Disables interrupts, returns the previous state.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    fn irq_restore(&self, before: IrqState);
    /// One turn of a busy-wait loop.
    fn relax(&self) {
        core::hint::spin_loop();
    }
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
            offset < 4096 && offset.is_multiple_of(16),
            "not a local APIC register"
        );
        let page = self
            .page
            .expect("xAPIC register access needs the xAPIC page");
        // SAFETY: duty 2 of `with_page`: 4 KiB are mapped there, and the offset is within.
        unsafe { page.byte_add(usize::from(offset)) }
    }
}

impl Port for Hardware {
    #[inline]
    fn read_page(&self, offset: u16) -> u32 {
        // SAFETY: duty 2 of `with_page`; aligned because offsets are multiples of 16.
        unsafe { self.register(offset).read_volatile() }
    }

    #[inline]
    fn write_page(&self, offset: u16, value: u32) {
        // SAFETY: duty 2 of `with_page`; aligned because offsets are multiples of 16.
        unsafe { self.register(offset).write_volatile(value) }
    }

    #[inline]
    fn read_msr(&self, msr: Msr) -> u64 {
        // SAFETY: 1. duty 1 of the constructors. 2. `LocalApic` names only APIC registers of the
        // mode it is in. 3. reading them does not touch memory.
        unsafe { msr::read(msr) }
    }

    #[inline]
    fn write_msr(&self, msr: Msr, value: u64) {
        // SAFETY: 1. duty 1 of the constructors. 2. `LocalApic` writes only APIC registers of the
        // mode it is in. 3. what can reset or start CPUs is behind unsafe functions there.
        unsafe { msr::write(msr, value) }
    }

    #[inline]
    fn fence(&self) {
        // SAFETY: fences have no effect but ordering; not `nomem`, so the compiler orders too.
        unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
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
