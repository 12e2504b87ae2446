//! RISC-V, QEMU's machine `virt`.

use core::arch::naked_asm;
use core::ptr::write_volatile;
use core::sync::atomic::AtomicUsize;

use lazyinit::LazyInit;
use shootdown::{FlushRange, IpiRefused};
use shootdown_riscv::tlb::AsidBits;
use shootdown_riscv::{Features, Hardware, HartId, HartMap, Ipi, Mode, Processor, Way};

pub use page_table_entry::riscv::Rv64PTE as Entry;
pub use shootdown_riscv::{Tlb, tlb::Depth};

use super::{ENDS_BADLY, ENDS_WELL};
use crate::platform::CPUS;

/// Levels of page tables: Sv39.
pub const LEVELS: usize = 3;

/// sstatus.SIE, as `IrqSave` keeps it.
const INTERRUPTS_ON: usize = 1 << 1;

/// QEMU's device sifive_test: a write of this, with a code in the upper half, ends QEMU with the code.
const TEST_DEVICE: usize = 0x10_0000;
const ENDS: u32 = 0x3333;

// SAFETY: 1. supervisor mode; OpenSBI leaves TVM clear.
const HART: Hardware = unsafe { Hardware::new() };
static HARTS: HartMap<CPUS> = HartMap::new();
static IPI: Ipi<'static, Hardware, CPUS> = Ipi::new(HART, Way::Sbi(&HARTS));
/// What this hart has cached, once `prepare_cpu` has run.
pub static TLB: LazyInit<Tlb<Hardware>> = LazyInit::new();

/// On each CPU, before it is online. ArceOS has the ids of harts for numbers.
pub fn prepare_cpu(cpu: usize) {
    TLB.call_once(|| {
        let processor = Processor::read(&HART).expect("OpenSBI says which processor it is");
        // SAFETY: 1. no extension and no ASID is said to be there, and ArceOS has loaded a root of Sv39. 2. harts are alike.
        unsafe { Tlb::new(HART, Mode::Sv39, AsidBits::NONE, Features::NONE, processor) }
    });
    let inserted = HartId::new(cpu as u64).map(|hart| HARTS.insert(cpu, hart));
    assert!(inserted == Some(Ok(())), "each CPU is one hart");
}

/// Interrupts a CPU.
pub fn send_ipi(cpu: usize) -> Result<(), IpiRefused> {
    IPI.send(cpu).map_err(|_| IpiRefused)
}

/// Takes note of the interrupt, before the engine looks. ArceOS has cleared SSIP, but with no FENCE behind.
pub fn acknowledge() {
    IPI.acknowledge();
}

/// Drops pages.
pub fn flush_pages(range: FlushRange, depth: Depth) {
    let stride = range.page_size().bytes();
    TLB.flush_pages(range.start(), stride, range.page_count(), depth);
}

/// Whether a state of `IrqSave` has interrupts on.
pub fn means_enabled(state: usize) -> bool {
    state & INTERRUPTS_ON != 0
}

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    if let Ok(device) = axmm::iomap(TEST_DEVICE.into(), 0x1000) {
        // SAFETY: a register of QEMU's, which ends with the write.
        unsafe { write_volatile(device.as_mut_ptr().cast::<u32>(), code << 16 | ENDS) };
    }
    axhal::power::system_off()
}

/// What the device tree has.
pub fn command_line() -> alloc::string::String {
    axhal::dtb::get_chosen_bootargs().unwrap_or("").into()
}

/// ArceOS knows the frequency of its clock.
pub fn reference_ns() -> Option<u64> {
    None
}

/// Loads the word at `address` into `word`; false if `abandon` was called meanwhile with what is in `stack`.
///
/// # Safety
/// 1. Interrupts are off, and only a fault of this load calls `abandon`.
/// 2. `word` may be written, and a load of `address` has no effect.
#[unsafe(naked)]
pub unsafe extern "C" fn load_or_abandon(
    address: usize,
    stack: &AtomicUsize,
    word: *mut u64,
) -> bool {
    naked_asm!(
        "addi sp, sp, -112",
        "sd ra, 0(sp)",
        "sd s0, 8(sp)",
        "sd s1, 16(sp)",
        "sd s2, 24(sp)",
        "sd s3, 32(sp)",
        "sd s4, 40(sp)",
        "sd s5, 48(sp)",
        "sd s6, 56(sp)",
        "sd s7, 64(sp)",
        "sd s8, 72(sp)",
        "sd s9, 80(sp)",
        "sd s10, 88(sp)",
        "sd s11, 96(sp)",
        "sd sp, 0(a1)",
        "ld t0, 0(a0)",
        "sd t0, 0(a2)",
        "li a0, 1",
        "tail {leave}",
        leave = sym leave,
    )
}

/// Has `load_or_abandon` return false.
///
/// # Safety
/// 1. `stack` is what that has stored, and it waits for its load.
#[unsafe(naked)]
pub unsafe extern "C" fn abandon(stack: usize) -> ! {
    naked_asm!("mv sp, a0", "li a0, 0", "tail {leave}", leave = sym leave)
}

#[unsafe(naked)]
unsafe extern "C" fn leave() {
    naked_asm!(
        "ld ra, 0(sp)",
        "ld s0, 8(sp)",
        "ld s1, 16(sp)",
        "ld s2, 24(sp)",
        "ld s3, 32(sp)",
        "ld s4, 40(sp)",
        "ld s5, 48(sp)",
        "ld s6, 56(sp)",
        "ld s7, 64(sp)",
        "ld s8, 72(sp)",
        "ld s9, 80(sp)",
        "ld s10, 88(sp)",
        "ld s11, 96(sp)",
        "addi sp, sp, 112",
        "ret",
    )
}
