//! AArch64 at EL1: tables of three levels in TTBR0, ASIDs, a GICv3, PSCI.

mod entry;
mod gic;

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use shootdown::tags::{Asid, TagEntries};
use shootdown::{FreedTables, LocalFlush, PageSize};

use crate::cpus;
use crate::memory;
use crate::tables::Table;

pub use gic::send_ipi;

/// Of the board.
pub const NAME: &str = "aarch64";
/// Behind the kernel, in 128 MiB.
pub const OPTIONS: usize = 0x4600_0000;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_4K;
/// With 39 bits of addresses: what a top-level entry translates.
pub const TOP_SHIFT: usize = 30;
/// Where the first top-level entry begins.
pub const BASE: usize = 0;
/// Interrupts are on.
pub const IRQS_ON: usize = 1;
/// DAIF.I.
const MASKED: usize = 1 << 7;
const ASID_SHIFT: u32 = 48;
/// PSCI: CPU_ON, SYSTEM_OFF.
const CPU_ON: usize = 0xc400_0003;
const SYSTEM_OFF: usize = 0x8400_0008;
const SERIAL: *mut u32 = 0x0900_0000 as *mut u32;
/// MAIR_EL1: attribute 0 is memory that is written back, 1 devices.
const MAIR: u64 = 0xff;
const DEVICE: u64 = 1 << 2;
/// TCR_EL1: T0SZ = 25, walks of TTBR0 write back and are inner shareable, TTBR1 is not walked; IPS = 2; AS = 1.
const TCR: u64 = 25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23 | 2 << 32 | 1 << 36;
/// SCTLR_EL1: M, C, I.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;
/// Descriptors (DDI 0487, D8.3): valid; a table, or at the last level a page; inner shareable; accessed; not global; never executed.
const VALID: u64 = 1 << 0;
const TABLE_OR_PAGE: u64 = 1 << 1;
const SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const NO_EXECUTE: u64 = 3 << 53;

/// How many tags there are besides 0.
static TAGS: AtomicUsize = AtomicUsize::new(0);

fn psci(function: usize, arguments: [usize; 3]) -> isize {
    let result;
    // SAFETY: the firmware changes no other registers than a function may.
    unsafe {
        asm!("hvc #0", inout("x0") function => result, inout("x1") arguments[0] => _, inout("x2") arguments[1] => _,
            inout("x3") arguments[2] => _, clobber_abi("C"));
    }
    result
}

/// Any context.
pub fn put_byte(byte: u8) {
    // SAFETY: the data register of the board's serial port.
    unsafe { SERIAL.write_volatile(byte.into()) };
}

/// Ends the machine.
pub fn power_off() -> ! {
    psci(SYSTEM_OFF, [0; 3]);
    loop {
        wait_for_interrupt();
    }
}

/// The number of this CPU.
#[inline]
pub fn this_cpu() -> usize {
    let cpu;
    // SAFETY: the entry has set it.
    unsafe { asm!("mrs {}, tpidr_el1", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu
}

/// Starts a CPU; false if there is none.
pub fn start_cpu(cpu: usize) -> bool {
    psci(CPU_ON, [gic::affinity(cpu), entry::other(), cpu]) == 0
}

/// Loads the kernel's root, turns the MMU on, and lets interrupts through.
pub fn prepare_cpu() {
    // SAFETY: the root maps all memory where it is.
    unsafe {
        asm!("msr mair_el1, {}", "msr tcr_el1, {}", "isb", in(reg) MAIR, in(reg) TCR);
        load_root(
            memory::kernel_root().as_u64(),
            Asid::UNTAGGED,
            TagEntries::Drop,
        );
        asm!("tlbi vmalle1", "dsb nsh", "mrs {0}, sctlr_el1", "orr {0}, {0}, {1}", "msr sctlr_el1, {0}", "isb",
            out(reg) _, in(reg) MMU_AND_CACHES);
    }
    let features: u64;
    // SAFETY: it reads.
    unsafe { asm!("mrs {}, id_aa64mmfr0_el1", out(reg) features) };
    let has_16_bits = features >> 4 & 0xf == 2;
    TAGS.store(if has_16_bits { 0xffff } else { 0xff }, Ordering::Relaxed);
    gic::prepare(this_cpu());
}

/// How many tags there are besides 0.
pub fn tags() -> usize {
    TAGS.load(Ordering::Relaxed)
}

/// Turns interrupts off; what they were.
#[inline]
pub fn irq_save() -> usize {
    let daif: usize;
    // SAFETY: the bit is ours.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) daif) };
    usize::from(daif & MASKED == 0)
}

/// Turns them on, if they were.
#[inline]
pub fn irq_restore(before: usize) {
    if before == IRQS_ON {
        // SAFETY: as above.
        unsafe { asm!("msr daifclr, #2") };
    }
}

/// Contract 3. By address of all ASIDs, global or not: leaf entries where no table was freed.
pub fn flush(operation: LocalFlush) {
    publish_tables();
    match operation {
        LocalFlush::Pages(range, freed) => {
            for address in range.iter_pages() {
                let page = (address >> 12) & ((1 << 44) - 1);
                // SAFETY: it drops translations.
                match freed {
                    FreedTables::No => unsafe { asm!("tlbi vaale1, {}", in(reg) page) },
                    FreedTables::Yes => unsafe { asm!("tlbi vaae1, {}", in(reg) page) },
                }
            }
        }
        LocalFlush::Space => {
            let root: u64;
            // SAFETY: as above.
            unsafe { asm!("mrs {0}, ttbr0_el1", "tlbi aside1, {0}", out(reg) root) };
            let _ = root;
        }
        // SAFETY: as above.
        LocalFlush::All => unsafe { asm!("tlbi vmalle1") },
    }
    // SAFETY: barriers: it is over, and what follows is translated anew.
    unsafe { asm!("dsb nsh", "isb") };
}

/// Contract 4.
///
/// # Safety
/// 1. As [`Platform::load_tagged_root`](shootdown::Platform::load_tagged_root).
pub unsafe fn load_root(root: u64, asid: Asid, entries: TagEntries) {
    let tag = u64::from(asid.as_u16()) << ASID_SHIFT;
    let drop_tag = || {
        if entries == TagEntries::Drop {
            // SAFETY: it drops translations.
            unsafe { asm!("dsb nshst", "tlbi aside1, {}", "dsb nsh", "isb", in(reg) tag) };
        }
    };
    drop_tag();
    // SAFETY: as the caller promises.
    unsafe { asm!("msr ttbr0_el1, {}", "isb", in(reg) root | tag) };
    // What was loaded had the same tag, perhaps.
    drop_tag();
}

/// Nanoseconds since the board began.
pub fn now_ns() -> u64 {
    let (ticks, per_s): (u64, u64);
    // SAFETY: it reads.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) per_s)
    };
    ticks / per_s * 1_000_000_000 + ticks % per_s * 1_000_000_000 / per_s
}

/// The word at an address, if it is mapped.
pub fn probe(address: usize) -> Option<u64> {
    entry::probe(address)
}

/// How many translations this CPU has refilled, where software does that.
pub fn refills() -> Option<u64> {
    None
}

/// Until one is pending.
pub fn wait_for_interrupt() {
    // SAFETY: it waits.
    unsafe { asm!("wfi") };
}

/// An entry that leads to a table.
pub fn table(address: usize) -> u64 {
    address as u64 | TABLE_OR_PAGE | VALID
}

/// An entry for a page of data of the kernel's.
pub fn leaf(frame: usize, is_global: bool) -> u64 {
    let tagged = if is_global { 0 } else { NOT_GLOBAL };
    frame as u64 | NO_EXECUTE | tagged | ACCESSED | SHAREABLE | TABLE_OR_PAGE | VALID
}

/// An entry of no page.
pub fn empty(_: bool) -> u64 {
    0
}

/// Stores to tables are seen by walkers, this CPU's too.
pub fn publish_tables() {
    // SAFETY: barriers.
    unsafe { asm!("dsb ishst", "isb") };
}

/// Devices and memory where they are.
pub fn map_kernel(root: &Table) {
    const RAM: usize = 0x4000_0000;
    root.set(0, NO_EXECUTE | ACCESSED | DEVICE | VALID);
    root.set(RAM >> TOP_SHIFT, RAM as u64 | ACCESSED | SHAREABLE | VALID);
}

/// Where a CPU begins, on its stack.
extern "C" fn begin(cpu: usize) -> ! {
    match cpu {
        0 => crate::boot(),
        _ => cpus::begin(),
    }
}
