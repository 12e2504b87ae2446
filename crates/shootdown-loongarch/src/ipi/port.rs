//! The few machine operations that interrupts for other CPUs are made of.

/// A register of a CPU's private configuration space (Loongson 3A5000/3B5000 processor reference manual, "Inter-Processor Interrupts and Communication", "Accessing by Configuration Register
/// Instructions"; QEMU's `virt` machine has the same).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Register {
    /// Which vectors are pending here. 32 bits.
    Status = 0x1000,
    /// Which of them interrupt. 32 bits.
    Enable = 0x1004,
    /// Written ones are pending no longer. 32 bits.
    Clear = 0x100c,
    /// The mailbox with number 0 of this CPU. 64 bits.
    MailBox0 = 0x1020,
    /// Mailbox 1.
    MailBox1 = 0x1028,
    /// Mailbox 2.
    MailBox2 = 0x1030,
    /// Mailbox 3.
    MailBox3 = 0x1038,
    /// Makes a vector pending on a CPU. 32 bits.
    IpiSend = 0x1040,
    /// Writes half of a mailbox of a CPU. 64 bits.
    MailSend = 0x1048,
}

/// How [`Ipi`](super::Ipi) reaches the machine. `Hardware`, on LoongArch, is the real thing; tests record. All methods act on the CPU that calls them.
pub trait Port {
    /// `DBAR 0`: nothing behind it is executed before all loads and stores in front of it are complete (LoongArch reference manual vol. 1, 2.2.8.1 "DBAR").
    fn dbar(&self);
    /// Reads a register of 32 bits (vol. 1, 4.2.2 "IOCSR Access Instructions").
    fn read32(&self, register: Register) -> u32;
    /// Writes a register of 32 bits.
    ///
    /// # Safety
    ///
    /// 1. What the value does breaks none of Rust's rules: the interrupts that it sends are handled.
    unsafe fn write32(&self, register: Register, value: u32);
    /// Reads a register of 64 bits.
    fn read64(&self, register: Register) -> u64;
    /// Writes a register of 64 bits.
    ///
    /// # Safety
    ///
    /// 1. What the value does breaks none of Rust's rules: a CPU that firmware holds starts where a mailbox says.
    unsafe fn write64(&self, register: Register, value: u64);
    /// One turn of a loop that waits.
    fn relax(&self) {
        core::hint::spin_loop();
    }
}

#[cfg(target_arch = "loongarch64")]
pub use hardware::Hardware;

#[cfg(target_arch = "loongarch64")]
mod hardware {
    use core::arch::asm;

    use super::{Port, Register};
    use crate::barrier;

    /// The processor itself.
    #[derive(Clone, Copy, Debug)]
    pub struct Hardware(());

    impl Hardware {
        /// Access to the processor.
        ///
        /// # Safety
        ///
        /// 1. PLV 0, on every CPU that uses the value.
        /// 2. The processors have IOCSRs ([`Features::has_iocsr`](crate::Features::has_iocsr)), and among them the registers that [`Register`] names.
        pub const unsafe fn new() -> Self {
            Self(())
        }
    }

    impl Port for Hardware {
        #[inline]
        fn dbar(&self) {
            barrier::full();
        }

        #[inline]
        fn read32(&self, register: Register) -> u32 {
            let value: u32;
            // SAFETY: duties 1 and 2 of `new`; reading changes nothing.
            unsafe {
                asm!("iocsrrd.w {}, {}", out(reg) value, in(reg) register as u32, options(nostack));
            }
            value
        }

        #[inline]
        unsafe fn write32(&self, register: Register, value: u32) {
            // SAFETY: duties 1 and 2 of `new`; duty 1 of the caller.
            unsafe {
                asm!("iocsrwr.w {}, {}", in(reg) value, in(reg) register as u32, options(nostack));
            }
        }

        #[inline]
        fn read64(&self, register: Register) -> u64 {
            let value: u64;
            // SAFETY: duties 1 and 2 of `new`; reading changes nothing.
            unsafe {
                asm!("iocsrrd.d {}, {}", out(reg) value, in(reg) register as u32, options(nostack));
            }
            value
        }

        #[inline]
        unsafe fn write64(&self, register: Register, value: u64) {
            // SAFETY: duties 1 and 2 of `new`; duty 1 of the caller.
            unsafe {
                asm!("iocsrwr.d {}, {}", in(reg) value, in(reg) register as u32, options(nostack));
            }
        }
    }
}
