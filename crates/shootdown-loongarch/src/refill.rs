//! A handler for TLB refills in software that counts them. On LoongArch only.
//!
//! It is as short as one can be: LDDIR for each directory, LDPTE for the even and the odd page, TLBFILL (reference manual vol. 1, 4.2.5 "Software Page Walking Instructions", 4.2.4.4 "TLBFILL"; 6.2.4
//! "Hardware Exception Handling of TLB Refill Exception"). It keeps its one register in CSR.TLBRSAVE, and the count of this CPU in CSR.SAVE7, which the kernel uses for nothing else ([where it is there](crate::features::has_refill_count)). So it touches no memory but the tables, and no stack.
//!
//! Where the processor [walks by itself](crate::Features::has_hardware_walk) and [may](crate::walk::Walk::pwch), no refill comes here. QEMU 10.0 does not walk: there the count is that of the misses.

use core::arch::{asm, global_asm};

use crate::walk::Levels;

/// One handler: its name, and its LDDIRs. A page each, for the address in CSR.TLBRENTRY is at a boundary of 4 KiB.
macro_rules! handler {
    ($name:literal, $($directories:literal),*) => {
        global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\""),
            ".balign 4096",
            concat!(".hidden ", $name),
            concat!(".globl ", $name),
            concat!($name, ":"),
            "csrwr $t0, 0x8b",
            "csrrd $t0, 0x37",
            "addi.d $t0, $t0, 1",
            "csrwr $t0, 0x37",
            "csrrd $t0, 0x1b",
            $($directories,)*
            "ldpte $t0, 0",
            "ldpte $t0, 1",
            "tlbfill",
            "csrrd $t0, 0x8b",
            "ertn",
            ".popsection",
        );
    };
}

handler!(
    "shootdown_loongarch_refill3",
    "lddir $t0, $t0, 3",
    "lddir $t0, $t0, 1"
);
handler!(
    "shootdown_loongarch_refill4",
    "lddir $t0, $t0, 3",
    "lddir $t0, $t0, 2",
    "lddir $t0, $t0, 1"
);

unsafe extern "C" {
    fn shootdown_loongarch_refill3();
    fn shootdown_loongarch_refill4();
}

/// Where the handler for tables of so many levels is in the kernel's address space, at a boundary of 4 KiB. It cannot be called. Any context.
pub fn handler(levels: Levels) -> *const () {
    match levels {
        Levels::Three => shootdown_loongarch_refill3 as *const (),
        Levels::Four => shootdown_loongarch_refill4 as *const (),
    }
}

/// Has refills of this CPU handled at the *physical* address `handler` (CSR.TLBRENTRY, vol. 1, 7.5.11: the exception is taken in direct address translation mode), and counted from zero.
///
/// # Safety
///
/// 1. PLV 0, interrupts off.
/// 2. It is that of [`handler`] for the tables that [`Walk::apply`](crate::walk::Walk::apply) was told of, which have [no directory entry that leads nowhere](crate::walk#empty-directory-entries).
/// 3. The processor has [LDDIR and LDPTE](crate::Features::has_walk_instructions) and a [CSR.SAVE7](crate::features::has_refill_count), which is used for nothing else.
pub unsafe fn install(handler: u64) {
    // SAFETY: duties 1 to 3 are the caller's.
    unsafe {
        asm!("csrwr {}, 0x88", "csrwr {}, 0x37", inout(reg) handler => _, inout(reg) 0_u64 => _, options(nostack));
    }
}

/// How many refills this CPU has had since [`install`]. PLV 0, any context.
pub fn count() -> u64 {
    let count: u64;
    // SAFETY: a pure read; not `nomem`, so that it stays where it is among accesses.
    unsafe { asm!("csrrd {}, 0x37", out(reg) count, options(nostack)) };
    count
}
