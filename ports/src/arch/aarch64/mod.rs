//! AArch64 at EL1: tables of three levels with pages of 4 KiB, ASIDs, a GICv3, PSCI.
//!
//! The kernel is in the upper half, which TTBR1 translates: all memory and the devices are at [`MEMORY`]. Spaces have the lower half.

mod entry;
mod gic;

use core::arch::asm;

use shootdown::remote::{FlushRequest, RemoteFlush, RemoteTargets};
use shootdown::tags::{Asid, TagEntries};
use shootdown::{FlushRange, FreedTables, LocalFlush, PageSize};
use shootdown_arm64::irq::{self, Port as _};
use shootdown_arm64::tlb::{self, Depth, Granule, Pages};
use shootdown_arm64::{AsidBits, Errata, Features, IdRegisters, Tlb};

use crate::cpus::AtBoot;
use crate::memory;
use crate::tables::Table;

pub use gic::send_ipi;
pub use shootdown_arm64::IrqState;

/// Of the board.
pub const NAME: &str = "aarch64";
/// Where physical memory is.
const MEMORY: usize = 0xffff_ff80_0000_0000;
/// Behind the kernel, in 128 MiB.
pub const OPTIONS: usize = MEMORY + 0x4600_0000;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_4K;
/// With 39 bits of addresses: what a top-level entry translates.
pub const TOP_SHIFT: usize = 30;
/// Where the first top-level entry of spaces begins, and that of the kernel's part.
pub const SPACE_BASE: usize = 0;
pub const KERNEL_BASE: usize = MEMORY;
/// PSCI: CPU_OFF, CPU_ON, SYSTEM_OFF.
const CPU_OFF: usize = 0x8400_0002;
const CPU_ON: usize = 0xc400_0003;
const SYSTEM_OFF: usize = 0x8400_0008;
const SERIAL: *mut u32 = (MEMORY + 0x0900_0000) as *mut u32;
/// MAIR_EL1: attribute 0 is memory that is written back, 1 devices.
const MAIR: u64 = 0xff;
const DEVICE: u64 = 1 << 2;
/// TCR_EL1: T0SZ and T1SZ = 25, walks write back and are inner shareable, TG1 = 4 KiB; IPS = 2.
const TCR: u64 =
    25 | 1 << 8 | 1 << 10 | 3 << 12 | 25 << 16 | 1 << 24 | 1 << 26 | 3 << 28 | 2 << 30 | 2 << 32;
/// SCTLR_EL1: M, C, I.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;
/// Descriptors (DDI 0487, D8.3): valid; a table, or at the last level a page; inner shareable; accessed; not global; never executed.
const VALID: u64 = 1 << 0;
const TABLE_OR_PAGE: u64 = 1 << 1;
const SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const NO_EXECUTE: u64 = 3 << 53;
const RAM: usize = 0x4000_0000;
const NS_PER_S: u128 = 1_000_000_000;

// SAFETY: 1. EL1.
const PORT: tlb::Hardware = unsafe { tlb::Hardware::new() };
// SAFETY: 1. EL1.
const IRQS: irq::Hardware = unsafe { irq::Hardware::new() };

static TLB: AtBoot<Tlb<tlb::Hardware>> = AtBoot::new();
/// As wide as tags are on the boot CPU.
static TAG_BITS: AtBoot<AsidBits> = AtBoot::new();
static EMPTY: Table = Table::new();
/// Devices and memory, for the upper half, and for the lower one until the CPU has come there. Its global entries are cached there until [`Tlb::start`] has loaded the empty table and dropped everything; meanwhile no code uses an
/// address of the lower half.
static KERNEL_ROOT: Table = Table::with([
    (0, NO_EXECUTE | ACCESSED | DEVICE | VALID),
    (RAM >> TOP_SHIFT, RAM as u64 | ACCESSED | SHAREABLE | VALID),
]);

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

/// Starts a CPU that is not running; false if it cannot be started, now or at all.
pub fn start_cpu(cpu: usize) -> bool {
    let entry = physical(entry::other());
    psci(CPU_ON, [gic::affinity(cpu).as_u64() as usize, entry, cpu]) == 0
}

/// Gives this CPU back to the firmware, until it is started again. Interrupts are off.
pub fn stop_cpu() -> ! {
    psci(CPU_OFF, [0; 3]);
    panic!("the firmware does not stop a CPU");
}

/// Made by the boot CPU, which publishes tables before it loads any.
fn tlb() -> &'static Tlb<tlb::Hardware> {
    let make = || {
        // SAFETY: 1. EL1.
        let features = Features::of(unsafe { IdRegisters::read() });
        assert!(features.has_gic_registers(), "no GICv3");
        let empty = EMPTY.physical() as u64;
        // SAFETY: 1. the CPUs are alike. 2. `TCR` says so, and DS is 0. 3. a static. 4. `prepare_cpu`. 5. it is the processor.
        unsafe { Tlb::new(PORT, &features, Errata::of(&features), Granule::Kib4, empty) }
    };
    // SAFETY: 1. the boot CPU comes here before it starts another.
    unsafe { TLB.set_once(make) };
    TLB.get()
}

/// Loads the kernel's root, and lets interrupts through. Interrupts are off.
pub fn prepare_cpu() {
    let tlb = tlb();
    // SAFETY: 1. interrupts are off. 2. the kernel is in the upper half, and CnP is 0.
    let bits = unsafe { tlb.start() };
    // SAFETY: 1. as above: the boot CPU comes here first.
    unsafe { TAG_BITS.set_once(|| bits) };
    assert_eq!(bits, *TAG_BITS.get(), "the CPUs are alike");
    // SAFETY: 1. as above. 2. and 3. it is a static, and the tag is 0. 4. nothing is kept.
    unsafe { tlb.load_root(memory::kernel_root().as_u64()) };
    gic::prepare(this_cpu());
}

/// How many tags there are besides 0.
pub fn tags() -> usize {
    (1 << TAG_BITS.get().count()) - 1
}

/// Turns interrupts off; what they were.
#[inline]
pub fn irq_save() -> IrqState {
    IRQS.save()
}

/// Undoes `irq_save`.
///
/// # Safety
/// 1. As [`Platform::irq_restore`](shootdown::Platform::irq_restore).
#[inline]
pub unsafe fn irq_restore(before: IrqState) {
    // SAFETY: 1. the caller's.
    unsafe { IRQS.restore(before) };
}

/// Turns interrupts on.
pub fn irq_enable() {
    // SAFETY: nothing relies on their being off.
    unsafe { asm!("msr daifclr, #2") };
}

/// Until an interrupt has come.
pub fn wait_for_interrupt() {
    IRQS.wait();
}

fn pages(range: FlushRange) -> Pages {
    Pages {
        start: range.start(),
        stride_bytes: range.page_size().bytes(),
        count: range.page_count(),
    }
}

fn depth(freed: FreedTables) -> Depth {
    match freed {
        FreedTables::No => Depth::Leaf,
        FreedTables::Yes => Depth::Tables,
    }
}

/// Contract 3.
pub fn flush(operation: LocalFlush) {
    let tlb = TLB.get();
    match operation {
        LocalFlush::Pages(range, freed) => tlb.flush_pages(pages(range), depth(freed)),
        LocalFlush::Space => tlb.flush_space(),
        LocalFlush::All => tlb.flush_all(),
    }
}

/// Contract 4.
///
/// # Safety
/// 1. As [`Platform::load_tagged_root`](shootdown::Platform::load_tagged_root).
pub unsafe fn load_root(root: u64, asid: Asid, entries: TagEntries) {
    let entries = match entries {
        TagEntries::Keep => tlb::TagEntries::Keep,
        TagEntries::Drop => tlb::TagEntries::Drop,
    };
    let asid = tlb::Asid::new(asid.as_u16());
    // SAFETY: 1. the engine's. 2. roots are statics, and the kernel is in the upper half. 3. there are no more slots than tags. 4. the engine says so.
    unsafe { TLB.get().load_tagged_root(root, asid, entries) };
}

/// An entry that leads elsewhere is emptied and flushed first (DDI 0487, D8.16 "TLB maintenance", "break-before-make").
pub const BREAKS_BEFORE_MAKE: bool = true;

/// Whether other CPUs can be flushed without an interrupt.
pub const FLUSHES_REMOTELY: bool = true;

/// By broadcast, under all tags.
pub fn flush_remote(_: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
    let Some(broadcast) = TLB.get().broadcast() else {
        return RemoteFlush::Done;
    };
    match request.ranges().any(|range| range == FlushRange::WHOLE) {
        true => broadcast.begin_all(),
        false => broadcast.begin(
            None,
            request.ranges().map(pages),
            depth(request.freed_tables()),
        ),
    }
    RemoteFlush::Unfinished
}

/// Waits for it.
pub fn finish_remote(targets: &mut RemoteTargets<'_>) {
    if let Some(broadcast) = TLB.get().broadcast() {
        broadcast.finish();
        targets.take_all();
    }
}

fn ticks_per_s() -> u64 {
    let per_s: u64;
    // SAFETY: it reads.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) per_s) };
    per_s
}

/// Nanoseconds since the board began.
pub fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: it reads.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks) };
    (u128::from(ticks) * NS_PER_S / u128::from(ticks_per_s())) as u64
}

/// Has this CPU's timer interrupt it once.
pub fn set_timer(after_ns: u64) {
    let ticks = (u128::from(after_ns) * u128::from(ticks_per_s()) / NS_PER_S) as u64;
    // SAFETY: the handler is there; CNTV_CTL_EL0: enabled, not masked.
    unsafe {
        asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) ticks, in(reg) 1_u64)
    };
}

/// It interrupts no more until it is set.
fn stop_timer() {
    // SAFETY: it is ours.
    unsafe { asm!("msr cntv_ctl_el0, xzr", "isb") };
}

/// How many translations this CPU has refilled, where software does that.
pub fn refills() -> Option<u64> {
    None
}

/// Where a static is in physical memory.
pub fn physical(address: usize) -> usize {
    address - MEMORY
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

/// An entry of no table.
pub fn empty_directory() -> u64 {
    0
}

/// Stores to tables are seen by walkers, this CPU's too.
pub fn publish_tables() {
    tlb().publish();
}

/// TTBR1 translates it.
pub fn map_kernel(_: &Table) {}

/// Has the top-level entry `top` of the kernel's part lead to what all share.
pub fn share(_: &[Table], top: usize, entry: u64) {
    KERNEL_ROOT.set(top, entry);
}
