//! Interrupts for other CPUs, and starting them.
//!
//! Registers: Loongson 3A5000/3B5000 processor reference manual, "Inter-Processor Interrupts and Communication". Each CPU has 32 vectors, one bit each, which are all the one
//! interrupt CSR.ESTAT.IS bit 12 (LoongArch reference manual vol. 1, 7.4.6 "Exception Status"), enabled by CSR.ECFG.LIE bit 12 (7.4.5). A write interrupts one CPU; there is no multicast.
//!
//! * Stores to memory are not ordered before writes of IOCSRs by themselves: hence a `DBAR 0` in front, once for any number of them.
//! * Bit 31 of IPI_Send waits "for the interrupt to take effect". It stays clear: two CPUs that send to each other with interrupts off would wait for ever.
//! * A vector is one bit: two interrupts may be one. It is [acknowledged](Ipi::acknowledge) *before* the handler looks for what was sent, with a `DBAR 0` in between.

mod port;
mod start;

#[cfg(target_arch = "loongarch64")]
pub use port::Hardware;
pub use port::{Port, Register};
pub use start::{Mailbox, NoAnswer, Patience};

/// A CPU as the interrupt registers count them: CSR.CPUID of it (vol. 1, 7.4.12), below 1024.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CoreId(u16);

impl CoreId {
    /// A CPU by its number; None from 1024 on.
    pub const fn new(number: u16) -> Option<Self> {
        if number < 1024 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

/// One of the 32 interrupts that a CPU can send to another. The boot ROM of many machines takes number 0 as the one that starts a CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Vector(u8);

impl Vector {
    /// What starts a CPU that waits in the boot ROM (QEMU; Linux: `ACTION_BOOT_CPU`).
    pub const START: Self = Self(0);

    /// A vector by its number; None from 32 on.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 32 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The bit that it has in the registers, and in what [`Ipi::acknowledge`] returns.
    pub const fn mask(self) -> u32 {
        1 << self.0
    }
}

/// The interrupt registers of whichever CPU calls.
#[derive(Clone, Copy, Debug)]
pub struct Ipi<P: Port> {
    port: P,
}

impl<P: Port> Ipi<P> {
    /// Interrupts through `port`, which is `Hardware` on the machine.
    ///
    /// # Safety
    ///
    /// 1. The kernel handles the vectors that are sent, on every CPU that enables them.
    /// 2. `port` does what [`Port`] says, on the CPU that calls.
    pub const unsafe fn with_port(port: P) -> Self {
        Self { port }
    }

    /// Lets these [vectors](Vector::mask) interrupt this CPU, and no others; what was pending before is forgotten. Call it on each CPU before it comes online; the host sets ECFG.LIE
    /// bit 12 itself.
    ///
    /// # Safety
    ///
    /// 1. Interrupts are off, and nobody waits for what was sent to this CPU: it is not online.
    pub unsafe fn enable(&self, vectors: u32) {
        // SAFETY: 1. nothing is sent.
        unsafe { self.port.write32(Register::Clear, u32::MAX) };
        // SAFETY: 1. nothing is sent; what others send is handled, by the duty of `with_port`.
        unsafe { self.port.write32(Register::Enable, vectors) };
    }

    /// Interrupts `target`, which may be this CPU. It never waits, and is never refused. What this CPU wrote before is visible to the handler. Any context.
    #[inline]
    pub fn send(&self, target: CoreId, vector: Vector) {
        self.send_many([target], vector);
    }

    /// Interrupts each of `targets`: one barrier, and one write each. Any context.
    #[inline]
    pub fn send_many(&self, targets: impl IntoIterator<Item = CoreId>, vector: Vector) {
        self.port.dbar();
        for target in targets {
            let command = u32::from(target.0) << 16 | u32::from(vector.0);
            // SAFETY: 1. the duty of `with_port`.
            unsafe { self.port.write32(Register::IpiSend, command) };
        }
    }

    /// For the handler of ESTAT.IS bit 12, first of all: takes what is pending, and returns it as [masks](Vector::mask). What was written before any of these was sent is visible to
    /// what follows; what is sent from now on interrupts again.
    ///
    /// Zero if nothing was: the interrupt came of vectors that were taken already.
    ///
    /// # Safety
    ///
    /// 1. The caller handles all that is returned: nobody else hears of it.
    #[inline]
    pub unsafe fn acknowledge(&self) -> u32 {
        let pending = self.port.read32(Register::Status);
        // SAFETY: 1. nothing is sent.
        unsafe { self.port.write32(Register::Clear, pending) };
        self.port.dbar();
        pending
    }
}
