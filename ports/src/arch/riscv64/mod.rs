//! RV64 in supervisor mode on SBI: Sv39, ASIDs, software and timer interrupts.

mod entry;

use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use shootdown::remote::{FlushRequest, RemoteFlush, RemoteTargets};
use shootdown::tags::{Asid, TagEntries};
use shootdown::{FlushRange, FreedTables, IpiRefused, LocalFlush, PageSize};
use shootdown_riscv::ipi::{Port as _, RemoteFences, SbiArguments, SbiReturn};
use shootdown_riscv::irq::Port as _;
use shootdown_riscv::tlb::{self, AsidBits, Depth};
use shootdown_riscv::{Features, Hardware, HartId, HartMap, Ipi, Mode, Processor, Tlb, Way};

use crate::cpus::{AtBoot, MAX_CPUS};
use crate::memory;
use crate::tables::Table;

pub use shootdown_riscv::IrqState;

/// Of the board.
pub const NAME: &str = "riscv64";
/// Behind the kernel, below what QEMU puts at the end of 128 MiB.
pub const OPTIONS: usize = 0x8600_0000;
/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_4K;
/// What a top-level entry translates.
pub const TOP_SHIFT: usize = Mode::Sv39.top_shift() as usize;
/// Where the first top-level entry of spaces begins, and that of the kernel's part.
pub const SPACE_BASE: usize = 0;
pub const KERNEL_BASE: usize = 0;
/// sie.SSIE and sie.STIE.
const SOFTWARE_AND_TIMER: usize = 1 << 1 | 1 << 5;
/// Leaf entries (Privileged Architecture, "Sv39"): V, R, W, A, D; X; G.
const DATA: u64 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 6 | 1 << 7;
const EXECUTE: u64 = 1 << 3;
const GLOBAL: u64 = 1 << 5;
/// The board's clock has 10 MHz.
const NS_PER_TICK: u64 = 100;
/// SBI extensions and their functions (SBI 2.0): legacy console, HSM, TIME, SRST.
const PUT_CHARACTER: u64 = 1;
const HSM: u64 = 0x48_534d;
const HART_START: u64 = 0;
const HART_STOP: u64 = 1;
const TIME: u64 = 0x5449_4d45;
const RESET: u64 = 0x5352_5354;

// SAFETY: 1. supervisor mode; the firmware leaves TVM clear.
const HART: Hardware = unsafe { Hardware::new() };

static HARTS: HartMap<MAX_CPUS> = HartMap::new();
static IPI: Ipi<'static, Hardware, MAX_CPUS> = Ipi::new(HART, Way::Sbi(&HARTS));
static TLB: AtBoot<Tlb<Hardware>> = AtBoot::new();
static FENCES: AtBoot<RemoteFences<'static, Hardware, MAX_CPUS>> = AtBoot::new();
/// The hart that boots: the others have the ids from 0 on, without this.
static BOOT_HART: AtomicUsize = AtomicUsize::new(0);

fn sbi(extension: u64, function: u64, arguments: SbiArguments) -> SbiReturn {
    // SAFETY: 1. of the functions that are called here none changes memory, and a hart that starts begins at `entry::other`.
    unsafe { HART.sbi_call(extension, function, arguments) }
}

/// The boot hart, first of all.
extern "C" fn begin_boot(hart: usize) -> ! {
    BOOT_HART.store(hart, Ordering::Relaxed);
    insert(0, hart);
    crate::boot()
}

fn insert(cpu: usize, hart: usize) {
    let hart = HartId::new(hart as u64).expect("no hart has this id");
    // It is there already when it comes back.
    let _ = HARTS.insert(cpu, hart);
}

/// Any context.
pub fn put_byte(byte: u8) {
    sbi(PUT_CHARACTER, 0, [byte.into(), 0, 0, 0]);
}

/// Ends the machine.
pub fn power_off() -> ! {
    sbi(RESET, 0, [0; 4]);
    loop {
        HART.wait_for_interrupt();
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

/// Starts a CPU that is not running; false if it cannot be started, now or at all.
pub fn start_cpu(cpu: usize) -> bool {
    let boot = BOOT_HART.load(Ordering::Relaxed);
    let hart = if cpu <= boot { cpu - 1 } else { cpu };
    insert(cpu, hart);
    let arguments = [hart as u64, entry::other() as u64, cpu as u64, 0];
    sbi(HSM, HART_START, arguments).result().is_ok()
}

/// Gives this CPU back to the firmware, until it is started again. Interrupts are off.
pub fn stop_cpu() -> ! {
    sbi(HSM, HART_STOP, [0; 4]);
    panic!("the firmware does not stop a CPU");
}

/// Loads the kernel's root, and lets interrupts through. Interrupts are off.
pub fn prepare_cpu() {
    let root = memory::kernel_root().as_u64();
    let processor = Processor::read(&HART).expect("the firmware says which processor it is");
    let tlb = |bits| {
        // SAFETY: 1. no extension is said to be there. 2. it is of that processor. 3. it is the hart.
        unsafe { Tlb::new(HART, Mode::Sv39, bits, Features::NONE, processor) }
    };
    // SAFETY: 1. it maps all memory where it is. 2. it is a table of the top level.
    unsafe { tlb(AsidBits::NONE).load_root(root) };
    let make = || {
        // SAFETY: 1. interrupts are off, and the root is loaded. 2. it is the hart.
        tlb(unsafe { tlb::detect_asid_bits(&HART) })
    };
    // SAFETY: 1. QEMU has OpenSBI, which waits. 2. all harts are of one kind. 3. it is the hart.
    let make_fences = || unsafe { RemoteFences::new(HART, &HARTS, processor) };
    // SAFETY: 1. the boot CPU comes here before it starts another.
    unsafe { TLB.set_once(make) };
    // SAFETY: 1. as above.
    unsafe { FENCES.set_once(make_fences) };
    TLB.get().flush_all();
    // SAFETY: the handlers are there.
    unsafe { asm!("csrw sie, {}", in(reg) SOFTWARE_AND_TIMER) };
}

/// How many tags there are besides 0.
pub fn tags() -> usize {
    TLB.get().asid_bits().tags()
}

/// Turns interrupts off; what they were.
#[inline]
pub fn irq_save() -> IrqState {
    HART.irq_save()
}

/// Undoes `irq_save`.
///
/// # Safety
/// 1. As [`Platform::irq_restore`](shootdown::Platform::irq_restore).
#[inline]
pub unsafe fn irq_restore(before: IrqState) {
    // SAFETY: 1. the caller's.
    unsafe { HART.irq_restore(before) };
}

/// Turns interrupts on.
pub fn irq_enable() {
    // SAFETY: 1. nothing relies on their being off.
    unsafe { HART.irq_restore(IrqState::Enabled) };
}

/// Until an interrupt has come.
pub fn wait_for_interrupt() {
    HART.wait_for_interrupt();
}

/// Contract 5.
pub fn send_ipi(targets: &[u64]) -> Result<(), IpiRefused> {
    IPI.send_many(targets).map_err(|_| IpiRefused)
}

/// Contract 3.
pub fn flush(operation: LocalFlush) {
    let tlb = TLB.get();
    match operation {
        LocalFlush::Pages(range, freed) => {
            let depth = match freed {
                FreedTables::No => Depth::Leaf,
                FreedTables::Yes => Depth::Tables,
            };
            let stride = range.page_size().bytes();
            tlb.flush_pages(range.start(), stride, range.page_count(), depth);
        }
        LocalFlush::Space => tlb.flush_loaded_tag(),
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
    // SAFETY: 1. every root maps the kernel. 2. roots are tables of the top level, and there are no more slots than tags. 3. the engine says so.
    unsafe { TLB.get().load_tagged_root(root, asid, entries) };
}

/// Whether an entry that leads elsewhere is emptied and flushed first.
pub const BREAKS_BEFORE_MAKE: bool = false;

/// Whether other CPUs can be flushed without an interrupt.
pub const FLUSHES_REMOTELY: bool = true;

/// By the firmware, which fences in machine mode.
pub fn flush_remote(targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
    let fences = FENCES.get();
    let words = targets.as_set().words();
    let by_range = |range: FlushRange| {
        let bytes = range.page_count().saturating_mul(range.page_size().bytes());
        match range == FlushRange::WHOLE {
            true => fences.flush_all(words),
            false => fences.flush_range(words, range.start() as u64, bytes as u64),
        }
    };
    let flushed = match request.freed_tables() {
        FreedTables::No => request.ranges().try_for_each(by_range),
        FreedTables::Yes => fences.flush_all(words),
    };
    // Else they are interrupted.
    if flushed.is_ok() {
        targets.take_all();
    }
    RemoteFlush::Done
}

/// What `flush_remote` began is done.
pub fn finish_remote(_: &mut RemoteTargets<'_>) {}

/// Nanoseconds since the board began.
pub fn now_ns() -> u64 {
    ticks() * NS_PER_TICK
}

fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: the firmware lets us read it.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Has this CPU's timer interrupt it once.
pub fn set_timer(after_ns: u64) {
    sbi(TIME, 0, [ticks() + after_ns / NS_PER_TICK, 0, 0, 0]);
}

/// How many translations this CPU has refilled, where software does that.
pub fn refills() -> Option<u64> {
    None
}

/// Where a static is in physical memory: the kernel is mapped where it is.
pub fn physical(address: usize) -> usize {
    address
}

/// An entry that leads to a table.
pub fn table(address: usize) -> u64 {
    tlb::table_entry(address as u64)
}

/// An entry for a page of data of the kernel's.
pub fn leaf(frame: usize, is_global: bool) -> u64 {
    frame as u64 >> 12 << 10 | DATA | if is_global { GLOBAL } else { 0 }
}

/// An entry of no page.
pub fn empty(_: bool) -> u64 {
    0
}

/// An entry of no table.
pub fn empty_directory() -> u64 {
    0
}

/// Stores to tables come before what follows; a fence orders this CPU's walks.
pub fn publish_tables() {
    HART.fence();
}

/// Memory where it is, for code and data.
pub fn map_kernel(root: &Table) {
    const RAM: usize = 0x8000_0000;
    root.set(RAM >> TOP_SHIFT, leaf(RAM, true) | EXECUTE);
}

/// Has the top-level entry `top` of the kernel's part lead to what all share.
pub fn share(roots: &[Table], top: usize, entry: u64) {
    roots.iter().for_each(|root| root.set(top, entry));
}
