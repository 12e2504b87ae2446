//! The hart itself, for `riscv64` targets: one instruction a method.

use core::arch::asm;
use core::ptr::NonNull;

use crate::ipi::{self, SbiArguments, SbiReturn};
use crate::irq::{self, IrqState, SSTATUS_SIE};
use crate::tlb::{self, Fence};

/// `sip.SSIP` (Privileged, "Supervisor Interrupt (sip and sie) Registers").
const SIP_SSIP: usize = 1 << 1;

/// The hart that calls.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(());

impl Hardware {
    /// Access to the hart.
    ///
    /// # Safety
    ///
    /// 1. Supervisor mode, on every hart that uses the value, with `mstatus.TVM` clear (else accesses of `satp` and SFENCE.VMA are illegal instructions;
    ///    in a guest: `hstatus.VTVM`).
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

// The class `reg` has no x0 (Rust Reference, "Inline assembly", "Register operands"), so a register that holds 0 is no x0 here: an address or an
// ASID of 0 is named as such. `nomem` is nowhere: each of these is a compiler barrier, too.
impl tlb::Port for Hardware {
    #[inline]
    fn sfence_vma(&self, what: Fence) {
        match what {
            // SAFETY: supervisor mode by `new`; dropping a translation never changes what memory holds.
            Fence::All => unsafe { asm!("sfence.vma x0, x0", options(nostack)) },
            // SAFETY: as above.
            Fence::Tag(asid) => unsafe {
                asm!("sfence.vma x0, {}", in(reg) usize::from(asid.as_u16()), options(nostack));
            },
            // SAFETY: as above.
            Fence::Page(address) => unsafe {
                asm!("sfence.vma {}, x0", in(reg) address, options(nostack));
            },
        }
    }

    // By number, so that it assembles for targets without the extension: ("svinval", chapter "Svinval"): funct7 0x0c with rs2 0 and 1, and 0x0b.
    #[inline]
    unsafe fn sfence_w_inval(&self) {
        // SAFETY: 1. the caller's: the hart has it.
        unsafe { asm!(".insn r 0x73, 0, 0x0c, x0, x0, x0", options(nostack)) };
    }

    #[inline]
    unsafe fn sinval_vma(&self, address: usize) {
        // SAFETY: 1. the caller's: the hart has it; as SFENCE.VMA otherwise.
        unsafe { asm!(".insn r 0x73, 0, 0x0b, x0, {}, x0", in(reg) address, options(nostack)) };
    }

    #[inline]
    unsafe fn sfence_inval_ir(&self) {
        // SAFETY: 1. the caller's: the hart has it.
        unsafe { asm!(".insn r 0x73, 0, 0x0c, x0, x0, x1", options(nostack)) };
    }

    #[inline]
    fn read_satp(&self) -> u64 {
        let satp: u64;
        // SAFETY: supervisor mode by `new`; a pure read.
        unsafe { asm!("csrr {}, satp", out(reg) satp, options(nostack)) };
        satp
    }

    #[inline]
    unsafe fn write_satp(&self, value: u64) {
        // SAFETY: duties 1 and 2 are the caller's.
        unsafe { asm!("csrw satp, {}", in(reg) value, options(nostack)) };
    }
}

impl ipi::Port for Hardware {
    #[inline]
    fn fence(&self) {
        // SAFETY: orders, and nothing else.
        unsafe { asm!("fence iorw, iorw", options(nostack)) };
    }

    #[inline]
    unsafe fn sbi_call(&self, extension: u64, function: u64, arguments: SbiArguments) -> SbiReturn {
        let [first, second, third, fourth] = arguments;
        let (error, value): (i64, u64);
        // SAFETY: duty 1 is the caller's. All registers but a0 and a1 are preserved (SBI, "Binary Encoding").
        unsafe {
            asm!("ecall", inlateout("a0") first => error, inlateout("a1") second => value, in("a2") third, in("a3") fourth,
                 in("a6") function, in("a7") extension, options(nostack));
        }
        SbiReturn { error, value }
    }

    #[inline]
    unsafe fn write_word(&self, register: NonNull<u32>, value: u32) {
        // SAFETY: duties 1 and 2 are the caller's.
        unsafe { asm!("sw {}, 0({})", in(reg) value, in(reg) register.as_ptr(), options(nostack)) };
    }

    #[inline]
    fn clear_software_interrupt(&self) {
        // SAFETY: supervisor mode by `new`; a pending bit has no effect but an interrupt.
        unsafe { asm!("csrc sip, {}", in(reg) SIP_SSIP, options(nostack)) };
    }

    #[inline]
    unsafe fn claim_external_interrupt(&self) -> u64 {
        let top: u64;
        // SAFETY: duty 1 is the caller's. 0x15c is `stopei`; one instruction reads and claims, as "Top external interrupt CSRs" asks.
        unsafe { asm!("csrrw {}, 0x15c, x0", out(reg) top, options(nostack)) };
        top
    }
}

impl irq::Port for Hardware {
    #[inline]
    fn irq_save(&self) -> IrqState {
        let before: usize;
        // SAFETY: supervisor mode by `new`; clears SIE and nothing else.
        unsafe {
            asm!("csrrc {}, sstatus, {}", out(reg) before, in(reg) SSTATUS_SIE, options(nostack))
        };
        IrqState::from_sstatus(before)
    }

    #[inline]
    unsafe fn irq_restore(&self, before: IrqState) {
        if before.is_enabled() {
            // SAFETY: sets SIE; by duty 1 nobody relies on its being clear.
            unsafe { asm!("csrs sstatus, {}", in(reg) SSTATUS_SIE, options(nostack)) };
        }
    }

    #[inline]
    fn wait_for_interrupt(&self) {
        // SAFETY: a hint to wait.
        unsafe { asm!("wfi", options(nostack)) };
    }

    #[inline]
    fn synchronise(&self) {
        // SAFETY: orders fetches, and nothing else.
        unsafe { asm!("fence.i", options(nostack)) };
    }
}
