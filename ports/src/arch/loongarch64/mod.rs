//! LoongArch at privilege level 0: tables of three levels with pages of 16 KiB in the upper half, ASIDs, refills by software, which are counted; interrupts by IOCSR.

mod entry;

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use shootdown::tags::{Asid, TagEntries};
use shootdown::{LocalFlush, PageSize};

use crate::cpus;
use crate::memory;
use crate::tables::Table;

/// Of the board.
pub const NAME: &str = "loongarch64";
/// Behind the kernel, in the lower 256 MiB.
pub const OPTIONS: usize = 0x0a00_0000;
/// Bytes of a page: QEMU 7.2 does not translate smaller ones well.
pub const PAGE_BYTES: usize = 16 << 10;
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_16K;
/// What a top-level entry translates.
pub const TOP_SHIFT: usize = 36;
/// The lower half is memory as it is (`DMW0`).
pub const BASE: usize = 0xffff_8000_0000_0000;
/// CRMD.IE.
pub const IRQS_ON: usize = 1 << 2;
const SERIAL: *mut u8 = 0x1fe0_01e0 as *mut u8;
const POWER: *mut u8 = 0x100e_001c as *mut u8;
const POWER_OFF: u8 = 0x34;
/// IOCSR registers (Reference Manual vol. 1, 10.2 "Inter-processor interrupts"): enable, send an interrupt, send mail.
const IPI_ENABLE: usize = 0x1004;
const IPI_SEND: usize = 0x1040;
const MAIL_SEND: usize = 0x1048;
/// Wait until it is done.
const BLOCKING: u64 = 1 << 31;
/// ECFG: interrupts from other CPUs.
const IPI: usize = 1 << 12;
/// Entries: V, D, MAT = coherent, P, W; and G.
const DATA: u64 = 0x193;
const GLOBAL: u64 = 1 << 6;

/// How many tags there are besides 0.
static TAGS: AtomicUsize = AtomicUsize::new(0);

/// Reads a control register.
macro_rules! read_csr {
    ($number:literal) => {{
        let value: usize;
        // SAFETY: it reads.
        unsafe { core::arch::asm!("csrrd {}, {}", out(reg) value, const $number) };
        value
    }};
}
use read_csr;

/// Writes one.
macro_rules! write_csr {
    ($number:literal, $value:expr) => {{
        let value: usize = $value;
        // SAFETY: see where it is used.
        unsafe { core::arch::asm!("csrwr {}, {}", inout(reg) value => _, const $number) };
    }};
}

fn write_iocsr(register: usize, value: u64) {
    // SAFETY: registers of this CPU's for interrupts.
    unsafe { asm!("iocsrwr.w {}, {}", in(reg) value, in(reg) register) };
}

/// Any context.
pub fn put_byte(byte: u8) {
    // SAFETY: the data register of the board's serial port.
    unsafe { SERIAL.write_volatile(byte) };
}

/// Ends the machine.
pub fn power_off() -> ! {
    // SAFETY: a register of the board's.
    unsafe { POWER.write_volatile(POWER_OFF) };
    loop {
        wait_for_interrupt();
    }
}

/// The number of this CPU.
#[inline]
pub fn this_cpu() -> usize {
    let cpu;
    // SAFETY: the entry has set it; no function uses it.
    unsafe { asm!("move {}, $r21", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu
}

/// Has a CPU go on that waits for mail.
pub fn start_cpu(cpu: usize) -> bool {
    for half in [1, 0] {
        let mail = 1 << 32 | BLOCKING | half << 2 | (cpu as u64) << 16;
        // SAFETY: mail to a CPU that reads it as it starts.
        unsafe { asm!("iocsrwr.d {}, {}", in(reg) mail, in(reg) MAIL_SEND) };
    }
    send_ipi(cpu);
    true
}

/// Loads the kernel's root, and lets interrupts through.
pub fn prepare_cpu() {
    // PWCL, PWCH: three levels of 11 bits, the top one as directory 3, whose base has the bits for it; STLBPS, TLBREHI and TLBIDX: the size of pages.
    write_csr!(0x1c, 14 | 11 << 5 | 25 << 10 | 11 << 15);
    write_csr!(0x1d, 36 | 11 << 6);
    write_csr!(0x1e, 14);
    write_csr!(0x8e, 14);
    write_csr!(0x10, 14 << 24);
    // SAFETY: nothing is cached of another.
    unsafe {
        load_root(
            memory::kernel_root().as_u64(),
            Asid::UNTAGGED,
            TagEntries::Drop,
        )
    };
    flush(LocalFlush::All);
    let bits = read_csr!(0x18) >> 16 & 0xff;
    TAGS.store((1 << bits) - 1, Ordering::Relaxed);
    write_iocsr(IPI_ENABLE, u32::MAX.into());
    write_csr!(0x4, IPI);
}

/// How many tags there are besides 0.
pub fn tags() -> usize {
    TAGS.load(Ordering::Relaxed)
}

/// Turns interrupts off; what they were.
#[inline]
pub fn irq_save() -> usize {
    let before: usize;
    // SAFETY: the bit is ours.
    unsafe { asm!("csrxchg {}, {}, 0", inout(reg) 0_usize => before, in(reg) IRQS_ON) };
    before & IRQS_ON
}

/// Turns them on, if they were.
#[inline]
pub fn irq_restore(before: usize) {
    // SAFETY: as above.
    unsafe { asm!("csrxchg {}, {}, 0", inout(reg) before => _, in(reg) before) };
}

/// Vector 0 of another CPU; stores before it are seen by the handler.
pub fn send_ipi(cpu: usize) {
    // SAFETY: a barrier.
    unsafe { asm!("dbar 0") };
    write_iocsr(IPI_SEND, BLOCKING | (cpu as u64) << 16);
}

/// Contract 3: op 6 drops both pages of a pair, global or of the tag; nothing caches tables.
pub fn flush(operation: LocalFlush) {
    publish_tables();
    let tag = read_csr!(0x18) & 0x3ff;
    match operation {
        LocalFlush::Pages(range, _) => {
            for address in range.iter_pages() {
                // SAFETY: it drops translations.
                unsafe { asm!("invtlb 6, {}, {}", in(reg) tag, in(reg) address) };
            }
        }
        // SAFETY: as above.
        LocalFlush::Space => unsafe { asm!("invtlb 4, {}, $zero", in(reg) tag) },
        // SAFETY: as above.
        LocalFlush::All => unsafe { asm!("invtlb 0, $zero, $zero") },
    }
}

/// Contract 4. Interrupts are off, and the kernel's memory is not translated: nothing is refilled in between.
///
/// # Safety
/// 1. As [`Platform::load_tagged_root`](shootdown::Platform::load_tagged_root).
pub unsafe fn load_root(root: u64, asid: Asid, entries: TagEntries) {
    let tag = usize::from(asid.as_u16());
    write_csr!(0x1a, root as usize);
    write_csr!(0x18, tag);
    if entries == TagEntries::Drop {
        // SAFETY: it drops translations.
        unsafe { asm!("invtlb 4, {}, $zero", in(reg) tag) };
    }
}

/// Nanoseconds since the board began: its clock has 100 MHz.
pub fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: it reads.
    unsafe { asm!("rdtime.d {}, $zero", out(reg) ticks) };
    ticks * 10
}

/// The word at an address, if it is mapped.
pub fn probe(address: usize) -> Option<u64> {
    entry::probe(address)
}

/// How many translations this CPU has refilled, where software does that.
pub fn refills() -> Option<u64> {
    Some(entry::refills(this_cpu()))
}

/// Until one is pending.
pub fn wait_for_interrupt() {
    // SAFETY: it waits.
    unsafe { asm!("idle 0") };
}

/// An entry that leads to a table.
pub fn table(address: usize) -> u64 {
    address as u64
}

/// An entry for a page of data of the kernel's.
pub fn leaf(frame: usize, is_global: bool) -> u64 {
    frame as u64 | DATA | empty(is_global)
}

/// An entry of no page: a pair is global if both of it are.
pub fn empty(is_global: bool) -> u64 {
    if is_global { GLOBAL } else { 0 }
}

/// Stores to tables are seen by walkers.
pub fn publish_tables() {
    // SAFETY: a barrier.
    unsafe { asm!("dbar 0") };
}

/// It is not translated.
pub fn map_kernel(_: &Table) {}

/// Where a CPU begins, on its stack.
extern "C" fn begin(cpu: usize) -> ! {
    match cpu {
        0 => crate::boot(),
        _ => cpus::begin(),
    }
}
