//! LoongArch at privilege level 0: tables of three levels with pages of 16 KiB, ASIDs, refills by software, which are counted; interrupts and mail by IOCSR.
//!
//! Memory is at [`MEMORY`], devices are at [`DEVICES`]: windows, which are not translated. Spaces have the lower half, what the kernel translates is in the upper one.

mod entry;

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::remote::{FlushRequest, RemoteFlush, RemoteTargets};
use shootdown::tags::{Asid, TagEntries};
use shootdown::{IpiRefused, LocalFlush, PageSize};
use shootdown_loongarch::entry::Fault;
use shootdown_loongarch::features::has_refill_count;
use shootdown_loongarch::ipi::{Mailbox, Patience};
use shootdown_loongarch::refill;
use shootdown_loongarch::tlb::{self, AsidWidth, Pages};
use shootdown_loongarch::walk::{Levels, Walk};
use shootdown_loongarch::{CoreId, Features, Ipi, Tlb, Vector, barrier, ipi, irq};
use shootdown_torture::{Memory, Region};

use crate::arch::probe;
use crate::console::say;
use crate::cpus::{self, AtBoot};
use crate::memory;
use crate::tables::{ENTRIES, Table};

pub use shootdown_loongarch::IrqState;

/// Of the board.
pub const NAME: &str = "loongarch64";
/// Windows: memory, and devices.
const MEMORY: usize = 0x9000 << 48;
const DEVICES: usize = 0x8000 << 48;
/// Behind the kernel, in the lower 256 MiB.
pub const OPTIONS: usize = MEMORY | 0x0a00_0000;
/// QEMU 7.2 does not translate smaller pages well.
const SIZE: tlb::PageSize = tlb::PageSize::SIZE_16K;
/// Bytes of a page.
pub const PAGE_BYTES: usize = SIZE.bytes();
/// The same, as the engine has it.
pub const PAGE_SIZE: PageSize = PageSize::SIZE_16K;
/// What a top-level entry translates.
pub const TOP_SHIFT: usize = 36;
/// Where the first top-level entry of spaces begins, and that of the kernel's part.
pub const SPACE_BASE: usize = 0;
pub const KERNEL_BASE: usize = 0xffff_8000_0000_0000;
const SERIAL: *mut u8 = (DEVICES | 0x1fe0_01e0) as *mut u8;
const POWER: *mut u8 = (DEVICES | 0x100e_001c) as *mut u8;
const POWER_OFF: u8 = 0x34;
/// ECFG and ESTAT: interrupts of the timer, and from other CPUs.
const TIMER: usize = 1 << 11;
const IPIS: usize = 1 << 12;
/// Entries: V, D, MAT = coherent, P, W.
const DATA: u64 = 0x193;
/// The board's clock has 100 MHz.
const NS_PER_TICK: u64 = 10;
const SHOOTDOWN_VECTOR: Vector = Vector::new(1).unwrap();

const WALK: Walk = Walk::new(SIZE, Levels::Three).unwrap();
const _: () = assert!(WALK.address_bits() == 47 && TOP_SHIFT == 36);

// SAFETY: 1. privilege level 0. 2. QEMU's board has them.
const PORT: ipi::Hardware = unsafe { ipi::Hardware::new() };
// SAFETY: 1. `on_trap` handles the vector. 2. it is the processor.
static IPI: Ipi<ipi::Hardware> = unsafe { Ipi::with_port(PORT) };
static TLB: AtBoot<Tlb<tlb::Hardware>> = AtBoot::new();
/// What the kernel translates, on all CPUs.
static KERNEL_ROOT: Table = Table::new();
/// Where directory entries lead that have no table, on each level: its entries lead to itself, and as entries of pages are invalid.
static EMPTY: Table = Table::new();
/// What an entry translates on each level, the root first, as a logarithm.
const SHIFTS: [usize; 3] = [TOP_SHIFT, 25, 14];
/// No top-level entry leads here, of spaces or of the kernel's part.
const NOWHERE: usize = 5 << TOP_SHIFT;
/// How often what was cached of a page forbade what its entry allows.
static SPURIOUS_FAULTS: AtomicU64 = AtomicU64::new(0);

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
use write_csr;

fn core(cpu: usize) -> CoreId {
    CoreId::new(cpu as u16).expect("there are fewer CPUs")
}

/// Any context.
pub fn put_byte(byte: u8) {
    // SAFETY: the data register of the board's serial port.
    unsafe { SERIAL.write_volatile(byte) };
}

/// Ends the machine.
pub fn power_off() -> ! {
    let faults = SPURIOUS_FAULTS.load(Ordering::Relaxed);
    say!("ports: spurious_faults={faults}");
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

/// Has a CPU begin that waits for mail.
pub fn start_cpu(cpu: usize) -> bool {
    const PATIENCE: Patience = Patience {
        attempts: 1000,
        looks: 10_000,
    };
    let entry = physical(entry::start()) as u64;
    // SAFETY: 1. it may. 2. it waits for mail.
    let started = unsafe { IPI.start_cpu(core(cpu), entry, PATIENCE, || cpus::is_online(cpu)) };
    started.is_ok()
}

/// Waits for mail as the firmware does, and begins again. Interrupts are off.
pub fn stop_cpu() -> ! {
    IPI.clear_mail(Mailbox::Zero);
    while IPI.mail(Mailbox::Zero) == 0 {
        core::hint::spin_loop();
    }
    entry::begin_again()
}

/// Loads the kernel's root, and lets interrupts through. Interrupts are off.
pub fn prepare_cpu() {
    IPI.clear_mail(Mailbox::Zero);
    // SAFETY: 1. privilege level 0.
    let port = unsafe { tlb::Hardware::new() };
    // PGDH.
    write_csr!(0x1a, KERNEL_ROOT.physical());
    assert_relied_on();
    // SAFETY: 1. all that is used is in a window. 2. spaces and the kernel have such tables, and `EMPTY`. 3. software walks.
    unsafe { WALK.apply(false) };
    // SAFETY: 1. interrupts are off. 2. it is for these tables. 3. `assert_relied_on`; nothing else uses that register.
    unsafe { refill::install(physical(refill::handler(Levels::Three).addr()) as u64) };
    let make = || {
        let width = Tlb::detect_width(&port);
        // SAFETY: 1. all pages have this size; the CPUs are alike. 2. nobody else does, and each of them comes by here. 3. it is the processor.
        unsafe { Tlb::with_port(port, SIZE, width) }
    };
    // SAFETY: 1. the boot CPU comes here before it starts another.
    unsafe { TLB.set_once(make) };
    // SAFETY: 1. interrupts are off. 2. the CPU is not online.
    unsafe { TLB.get().start() };
    // SAFETY: 1. and 2. roots are statics, and the kernel is in a window.
    unsafe { TLB.get().load_root(memory::kernel_root().as_u64()) };
    let without_page = memory::spaces().address(Region::Kernel, 0) + (100 << SHIFTS[1]);
    for address in [SPACE_BASE + NOWHERE, KERNEL_BASE + NOWHERE, without_page] {
        let found = probe(address);
        assert!(found.is_none(), "an empty entry leads to {found:x?}");
    }
    // SAFETY: 1. interrupts are off, and the CPU is not online.
    unsafe { IPI.enable(SHOOTDOWN_VECTOR.mask()) };
    // ECFG.
    write_csr!(0x4, TIMER | IPIS);
}

/// What this and the crate rely on is there. (LDDIR and LDPTE, too, but QEMU 7.2 does not say so.)
fn assert_relied_on() {
    let features = Features::detect();
    assert!(features.is_la64() && features.has_page_mapping() && features.has_iocsr());
    assert!(u64::from(features.virtual_bits()) > WALK.address_bits());
    // In QEMU 7.2 these are 0, which no processor's are.
    let [prcfg1, prcfg2] = [read_csr!(0x21) as u64, read_csr!(0x22) as u64];
    assert!(prcfg1 == 0 || has_refill_count(prcfg1));
    assert!(prcfg2 == 0 || SIZE.is_supported(prcfg2));
}

/// The entry of a page as the tables have it now. Interrupts are off, and its root is loaded: no table of it is freed until they are on again.
fn entry_of(address: usize) -> u64 {
    let root = match address < KERNEL_BASE {
        true => TLB.get().root() as usize,
        false => KERNEL_ROOT.physical(),
    };
    let below = |table: u64, shift: usize| {
        let index = address >> shift & (ENTRIES - 1);
        let word = ((MEMORY | table as usize) as *const AtomicU64).wrapping_add(index);
        // SAFETY: each entry above the last level leads to a table, or to `EMPTY`.
        unsafe { &*word }.load(Ordering::Relaxed)
    };
    SHIFTS.into_iter().fold(root as u64, below)
}

/// Whether the tables allow by now what has faulted here; what was cached of the page is gone then.
fn is_spurious(fault: Fault, address: usize) -> bool {
    let is_spurious = fault.is_spurious(entry_of(address), 0);
    if is_spurious {
        TLB.get().flush_faulted(address);
        SPURIOUS_FAULTS.fetch_add(1, Ordering::Relaxed);
    }
    is_spurious
}

/// How many tags there are besides 0.
pub fn tags() -> usize {
    let width: AsidWidth = TLB.get().width();
    width.slots().into()
}

/// Turns interrupts off; what they were.
#[inline]
pub fn irq_save() -> IrqState {
    irq::save()
}

/// Undoes `irq_save`.
///
/// # Safety
/// 1. As [`Platform::irq_restore`](shootdown::Platform::irq_restore).
#[inline]
pub unsafe fn irq_restore(before: IrqState) {
    // SAFETY: 1. the caller's.
    unsafe { irq::restore(before) };
}

/// Turns interrupts on.
pub fn irq_enable() {
    // SAFETY: 1. nothing relies on their being off.
    unsafe { irq::restore(IrqState::Enabled) };
}

/// Until an interrupt has come. Interrupts are on.
pub fn wait_for_interrupt() {
    let before = irq_save();
    // SAFETY: 1. `on_trap` does. 2. they were on.
    unsafe { irq::wait() };
    // SAFETY: 1. of the `irq_save` above.
    unsafe { irq_restore(before) };
}

/// Contract 5.
pub fn send_ipi(targets: &[u64]) -> Result<(), IpiRefused> {
    let cpus = (0..cpus::MAX_CPUS).filter(|cpu| targets[0] >> cpu & 1 != 0);
    IPI.send_many(cpus.map(core), SHOOTDOWN_VECTOR);
    Ok(())
}

/// Contract 3.
pub fn flush(operation: LocalFlush) {
    let tlb = TLB.get();
    match operation {
        LocalFlush::Pages(range, _) => {
            let shift = range.page_size().bytes().trailing_zeros();
            let size = tlb::PageSize::from_shift(shift as u8).expect("a size of pages");
            tlb.flush_pages(Pages::new(range.start(), size, range.page_count()));
        }
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
    let asid = tlb::Asid::new(asid.as_u16()).expect("there are no more slots than tags");
    // SAFETY: 1. and 2. roots are statics, and the kernel is in a window or in the upper half. 3. the engine says so. 4. there are no more slots.
    unsafe { TLB.get().load_tagged_root(root, asid, entries) };
}

/// Whether an entry that leads elsewhere is emptied and flushed first.
pub const BREAKS_BEFORE_MAKE: bool = false;

/// Whether other CPUs can be flushed without an interrupt.
pub const FLUSHES_REMOTELY: bool = false;

/// There is no such instruction.
pub fn flush_remote(_: &mut RemoteTargets<'_>, _: &FlushRequest) -> RemoteFlush {
    RemoteFlush::Done
}

/// Nothing was begun.
pub fn finish_remote(_: &mut RemoteTargets<'_>) {}

/// Nanoseconds since the board began.
pub fn now_ns() -> u64 {
    let ticks: u64;
    // SAFETY: it reads.
    unsafe { asm!("rdtime.d {}, $zero", out(reg) ticks) };
    ticks * NS_PER_TICK
}

/// Has this CPU's timer interrupt it once.
pub fn set_timer(after_ns: u64) {
    // TCFG: enabled, once; the two lowest bits of the count are 0.
    write_csr!(0x41, (after_ns / NS_PER_TICK) as usize & !3 | 1);
}

/// How many translations this CPU has refilled, where software does that.
pub fn refills() -> Option<u64> {
    Some(refill::count())
}

/// Where a static is in physical memory.
pub fn physical(address: usize) -> usize {
    address & !MEMORY
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
    if is_global {
        shootdown_loongarch::entry::EMPTY_GLOBAL
    } else {
        0
    }
}

/// Stores to tables are seen by walkers.
pub fn publish_tables() {
    barrier::full();
}

/// An entry of no table. LDDIR does not stop at 0, but walks physical page 0.
pub fn empty_directory() -> u64 {
    table(EMPTY.physical())
}

/// It is not translated.
pub fn map_kernel(root: &Table) {
    root.become_directory();
}

/// Has the top-level entry `top` of the kernel's part lead to what all share. Once.
pub fn share(_: &[Table], top: usize, entry: u64) {
    EMPTY.become_directory();
    KERNEL_ROOT.become_directory();
    // As a table it leads to tables that are not there, or to huge pages; as the last one it has valid pages: a walk that goes astray is noticed.
    for index in 0..ENTRIES {
        let word = (MEMORY as *mut u64).wrapping_add(index);
        // SAFETY: a page of memory that nothing else uses.
        unsafe { word.write_volatile(leaf(0, true)) };
    }
    KERNEL_ROOT.set(top, entry);
}
