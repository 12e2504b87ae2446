//! RV64 in supervisor mode on SBI: Sv39, ASIDs, software interrupts.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicUsize, Ordering};

use shootdown::tags::{Asid, TagEntries};
use shootdown::{FreedTables, LocalFlush, PageSize};

use crate::cpus::{self, MAX_CPUS, STACK_BYTES};
use crate::memory;
use crate::platform::SHOOTDOWN;
use crate::tables::Table;

/// Of the board.
pub const NAME: &str = "riscv64";
/// Behind the kernel, below what QEMU puts at the end of 128 MiB.
pub const OPTIONS: usize = 0x8600_0000;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_4K;
/// Of Sv39: what a top-level entry translates.
pub const TOP_SHIFT: usize = 30;
/// Where the first top-level entry begins.
pub const BASE: usize = 0;
/// sstatus.SIE.
pub const IRQS_ON: usize = 1 << 1;
/// sie.SSIE and sip.SSIP.
const SOFTWARE: usize = 1 << 1;
/// satp.MODE.
const SV39: u64 = 8 << 60;
const ASID_SHIFT: u32 = 44;
const ASID_BITS: u64 = 0xffff;
/// Page-table entries (Privileged Architecture, "Sv39"): V; R, W, A, D; X; G.
const VALID: u64 = 1 << 0;
const DATA: u64 = VALID | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7;
const EXECUTE: u64 = 1 << 3;
const GLOBAL: u64 = 1 << 5;
/// scause of a load page fault, and of a supervisor software interrupt.
const LOAD_FAULT: usize = 13;
const SOFTWARE_INTERRUPT: usize = 1 << 63 | 1;
/// The board's clock has 10 MHz.
const NS_PER_TICK: u64 = 100;

global_asm!(
    r#"
.section .text.entry
.globl _start
_start:
    li tp, 0
    la sp, STACKS
    li t0, {stack}
    add sp, sp, t0
    la t0, trap_entry
    csrw stvec, t0
    tail begin_boot
.globl start_other
start_other:
    mv tp, a1
    la sp, STACKS
    addi t0, a1, 1
    slli t0, t0, {shift}
    add sp, sp, t0
    la t0, trap_entry
    csrw stvec, t0
    tail begin_other
.align 2
trap_entry:
    addi sp, sp, -144
    sd ra, 0(sp); sd t0, 8(sp); sd t1, 16(sp); sd t2, 24(sp); sd t3, 32(sp); sd t4, 40(sp); sd t5, 48(sp); sd t6, 56(sp)
    sd a0, 64(sp); sd a1, 72(sp); sd a2, 80(sp); sd a3, 88(sp); sd a4, 96(sp); sd a5, 104(sp); sd a6, 112(sp); sd a7, 120(sp)
    csrr a0, scause
    csrr a1, sepc
    sd a1, 128(sp)
    csrr t0, sstatus
    sd t0, 136(sp)
    call on_trap
    csrw sepc, a0
    ld t0, 136(sp)
    csrw sstatus, t0
    ld ra, 0(sp); ld t0, 8(sp); ld t1, 16(sp); ld t2, 24(sp); ld t3, 32(sp); ld t4, 40(sp); ld t5, 48(sp); ld t6, 56(sp)
    ld a0, 64(sp); ld a1, 72(sp); ld a2, 80(sp); ld a3, 88(sp); ld a4, 96(sp); ld a5, 104(sp); ld a6, 112(sp); ld a7, 120(sp)
    addi sp, sp, 144
    sret
.globl probe_word
.globl probe_fault
probe_word:
    ld a0, 0(a0)
    li a1, 1
    ret
probe_fault:
    li a1, 0
    ret
"#,
    stack = const STACK_BYTES,
    shift = const STACK_BYTES.trailing_zeros(),
);

unsafe extern "C" {
    fn start_other();
    fn probe_word(address: usize) -> Probe;
    fn probe_fault();
}

#[repr(C)]
struct Probe {
    word: u64,
    is_mapped: usize,
}

/// The hart of each CPU.
static HARTS: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(usize::MAX) }; MAX_CPUS];
/// How many tags there are besides 0.
static TAGS: AtomicUsize = AtomicUsize::new(0);

#[unsafe(no_mangle)]
extern "C" fn begin_boot(hart: usize) -> ! {
    HARTS[0].store(hart, Ordering::Relaxed);
    crate::boot()
}

#[unsafe(no_mangle)]
extern "C" fn begin_other(_: usize, _: usize) -> ! {
    cpus::begin()
}

/// Returns where to go on.
#[unsafe(no_mangle)]
extern "C" fn on_trap(cause: usize, at: usize) -> usize {
    match cause {
        SOFTWARE_INTERRUPT => {
            // Before the engine looks: what comes later interrupts again.
            // SAFETY: the bit is ours.
            unsafe { asm!("csrc sip, {}", in(reg) SOFTWARE) };
            SHOOTDOWN.handle_ipi();
            at
        }
        LOAD_FAULT if at == probe_word as *const () as usize => probe_fault as *const () as usize,
        _ => panic!("trap {cause:#x} at {at:#x}"),
    }
}

fn sbi(extension: usize, function: usize, arguments: [usize; 3]) -> isize {
    let error;
    // SAFETY: the firmware keeps all but the two results.
    unsafe {
        asm!("ecall", inout("a0") arguments[0] => error, inout("a1") arguments[1] => _, in("a2") arguments[2],
            in("a6") function, in("a7") extension);
    }
    error
}

/// Any context.
pub fn put_byte(byte: u8) {
    // Legacy "Console Putchar".
    sbi(1, 0, [usize::from(byte), 0, 0]);
}

/// SRST: shutdown.
pub fn power_off() -> ! {
    sbi(0x5352_5354, 0, [0, 0, 0]);
    loop {
        wait_for_interrupt();
    }
}

/// The number of this CPU.
#[inline]
pub fn this_cpu() -> usize {
    let cpu;
    // SAFETY: `tp` is the number from the first instruction on.
    unsafe { asm!("mv {}, tp", out(reg) cpu, options(nomem, nostack, preserves_flags)) };
    cpu
}

/// Starts a CPU at `start_other`; false if there is none.
pub fn start_cpu(cpu: usize) -> bool {
    let boot = HARTS[0].load(Ordering::Relaxed);
    let hart = if cpu <= boot { cpu - 1 } else { cpu };
    HARTS[cpu].store(hart, Ordering::Relaxed);
    // HSM: start.
    sbi(0x48_534d, 0, [hart, start_other as *const () as usize, cpu]) == 0
}

/// Loads the kernel's root, and lets software interrupts through.
pub fn prepare_cpu() {
    // SAFETY: it maps the kernel; nothing is cached of another.
    unsafe {
        load_root(
            memory::kernel_root().as_u64(),
            Asid::UNTAGGED,
            TagEntries::Drop,
        )
    };
    if this_cpu() == 0 {
        let (before, seen): (u64, u64);
        // SAFETY: an ASID in which nothing is cached, for three instructions.
        unsafe {
            asm!("csrr {0}, satp", "or {2}, {0}, {1}", "csrw satp, {2}", "csrr {2}, satp", "csrw satp, {0}", "sfence.vma",
                out(reg) before, in(reg) ASID_BITS << ASID_SHIFT, out(reg) seen);
        }
        let _ = before;
        TAGS.store((seen >> ASID_SHIFT & ASID_BITS) as usize, Ordering::Relaxed);
    }
    // SAFETY: the handler is there.
    unsafe { asm!("csrw sie, {}", in(reg) SOFTWARE) };
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
    unsafe { asm!("csrrci {}, sstatus, 2", out(reg) before) };
    before & IRQS_ON
}

/// Turns them on, if they were.
#[inline]
pub fn irq_restore(before: usize) {
    // SAFETY: as above.
    unsafe { asm!("csrs sstatus, {}", in(reg) before) };
}

/// IPI extension; stores before it are seen by the handler.
pub fn send_ipi(cpu: usize) {
    let hart = HARTS[cpu].load(Ordering::Relaxed);
    // SAFETY: a barrier.
    unsafe { asm!("fence rw, rw") };
    sbi(0x73_5049, 0, [1, hart, 0]);
}

/// Contract 3: SFENCE.VMA orders stores before it; with an address it orders leaf entries only, so all goes where tables were freed.
pub fn flush(operation: LocalFlush) {
    match operation {
        LocalFlush::Pages(range, FreedTables::No) => {
            for address in range.iter_pages() {
                // SAFETY: it drops translations.
                unsafe { asm!("sfence.vma {}, x0", in(reg) address) };
            }
        }
        // SAFETY: as above.
        LocalFlush::Pages(_, FreedTables::Yes) | LocalFlush::Space | LocalFlush::All => unsafe {
            asm!("sfence.vma");
        },
    }
}

/// Contract 4.
///
/// # Safety
/// 1. As [`Platform::load_tagged_root`](shootdown::Platform::load_tagged_root).
pub unsafe fn load_root(root: u64, asid: Asid, entries: TagEntries) {
    let asid = u64::from(asid.as_u16());
    let satp = SV39 | asid << ASID_SHIFT | root >> 12;
    let drops = entries == TagEntries::Drop;
    if drops {
        // SAFETY: it drops translations.
        unsafe { asm!("sfence.vma x0, {}", in(reg) asid) };
    }
    // SAFETY: as the caller promises.
    unsafe { asm!("csrw satp, {}", in(reg) satp) };
    if drops {
        // What was loaded had the same tag, perhaps.
        // SAFETY: as above.
        unsafe { asm!("sfence.vma x0, {}", in(reg) asid) };
    }
}

/// Nanoseconds since the board began.
pub fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: the firmware lets us read it.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks * NS_PER_TICK
}

/// The word at an address, if it is mapped.
pub fn probe(address: usize) -> Option<u64> {
    // SAFETY: a fault there ends it.
    let found = unsafe { probe_word(address) };
    (found.is_mapped != 0).then_some(found.word)
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

/// An entry that leads to a table: A, D and U are clear there.
pub fn table(address: usize) -> u64 {
    address as u64 >> 12 << 10 | VALID
}

/// An entry for a page of data of the kernel's.
pub fn leaf(frame: usize, is_global: bool) -> u64 {
    address_bits(frame) | DATA | if is_global { GLOBAL } else { 0 }
}

fn address_bits(address: usize) -> u64 {
    address as u64 >> 12 << 10
}

/// An entry of no page.
pub fn empty(_: bool) -> u64 {
    0
}

/// Stores to tables are ordered before what follows; SFENCE.VMA does it for this CPU's walks.
pub fn publish_tables() {}

/// Memory where it is, for code and data.
pub fn map_kernel(root: &Table) {
    const RAM: usize = 0x8000_0000;
    root.set(
        RAM >> TOP_SHIFT,
        address_bits(RAM) | DATA | EXECUTE | GLOBAL,
    );
}
