//! The few machine operations that invalidation is made of.

use super::asid::Asid;
use crate::irq::IrqState;

/// What INVTLB drops, on this CPU only (reference manual vol. 1, 4.2.4.7 "INVTLB"). It has more operations, for which there is no use here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invtlb {
    /// 0x0: everything.
    All,
    /// 0x3: what is not global, of all tags.
    NonGlobal,
    /// 0x4: what is not global, of one tag.
    Tag(Asid),
    /// 0x6: the entry that holds an address, if it is global or of the tag.
    Page(Asid, usize),
}

/// How [`Tlb`](super::Tlb) reaches the machine. `Hardware`, on LoongArch, is the real thing; tests emulate. All methods act on the CPU that calls them.
pub trait Port {
    /// `DBAR 0`: nothing behind it is executed before all loads and stores in front of it are complete (vol. 1, 2.2.8.1 "DBAR"). What is complete, walks see.
    fn dbar(&self);
    /// INVTLB.
    fn invtlb(&self, operation: Invtlb);
    /// Reads CSR.ASID: the tag, and in bits 23:16 its width (vol. 1, 7.5.4).
    fn read_asid(&self) -> u32;
    /// Writes CSR.ASID.
    ///
    /// # Safety
    ///
    /// 1. What the tag has cached maps what this CPU goes on using as the loaded roots do.
    unsafe fn write_asid(&self, asid: Asid);
    /// Reads CSR.PGDL (vol. 1, 7.5.5).
    fn read_pgdl(&self) -> u64;
    /// Writes CSR.PGDL.
    ///
    /// # Safety
    ///
    /// 1. `root` is the physical address of a top-level table, at a boundary of 4 KiB, and its tables stay while it is loaded.
    /// 2. Nothing that this CPU goes on using is in the lower half of the address space, but where the root before maps it in the same way.
    unsafe fn write_pgdl(&self, root: u64);
    /// Disables interrupts, returns the previous state.
    fn irq_save(&self) -> IrqState;
    /// Undoes the matching [`Port::irq_save`].
    ///
    /// # Safety
    ///
    /// 1. `before` is what that returned on this CPU.
    unsafe fn irq_restore(&self, before: IrqState);
}

#[cfg(target_arch = "loongarch64")]
pub use hardware::Hardware;

#[cfg(target_arch = "loongarch64")]
mod hardware {
    use core::arch::asm;

    use super::{Asid, Invtlb, Port};
    use crate::barrier;
    use crate::irq::{self, IrqState};

    /// The processor itself.
    #[derive(Clone, Copy, Debug)]
    pub struct Hardware(());

    impl Hardware {
        /// Access to the processor.
        ///
        /// # Safety
        ///
        /// 1. PLV 0, on every CPU that uses the value.
        pub const unsafe fn new() -> Self {
            Self(())
        }
    }

    /// INVTLB with its operation, tag and address. Not `nomem`: accesses stay on their side.
    macro_rules! invtlb {
        ($operation:literal, $asid:expr, $address:expr) => {
            // SAFETY: PLV 0 by `new`; dropping a translation never changes what memory holds.
            unsafe {
                asm!(concat!("invtlb ", $operation, ", {}, {}"), in(reg) $asid, in(reg) $address, options(nostack));
            }
        };
    }

    impl Port for Hardware {
        #[inline]
        fn dbar(&self) {
            barrier::full();
        }

        #[inline]
        fn invtlb(&self, operation: Invtlb) {
            let number = |asid: Asid| usize::from(asid.as_u16());
            match operation {
                Invtlb::All => invtlb!("0x0", 0_usize, 0_usize),
                Invtlb::NonGlobal => invtlb!("0x3", 0_usize, 0_usize),
                Invtlb::Tag(asid) => invtlb!("0x4", number(asid), 0_usize),
                Invtlb::Page(asid, address) => invtlb!("0x6", number(asid), address),
            }
        }

        #[inline]
        fn read_asid(&self) -> u32 {
            let value: u32;
            // SAFETY: PLV 0 by `new`; a pure read.
            unsafe { asm!("csrrd {}, 0x18", out(reg) value, options(nomem, nostack)) };
            value
        }

        #[inline]
        unsafe fn write_asid(&self, asid: Asid) {
            let value = u32::from(asid.as_u16());
            // SAFETY: PLV 0 by `new`; duty 1 is the caller's. The bits besides the tag are read only.
            unsafe { asm!("csrwr {}, 0x18", inout(reg) value => _, options(nostack)) };
        }

        #[inline]
        fn read_pgdl(&self) -> u64 {
            let root: u64;
            // SAFETY: PLV 0 by `new`; a pure read.
            unsafe { asm!("csrrd {}, 0x19", out(reg) root, options(nomem, nostack)) };
            root
        }

        #[inline]
        unsafe fn write_pgdl(&self, root: u64) {
            // SAFETY: PLV 0 by `new`; duties 1 and 2 are the caller's.
            unsafe { asm!("csrwr {}, 0x19", inout(reg) root => _, options(nostack)) };
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
}
