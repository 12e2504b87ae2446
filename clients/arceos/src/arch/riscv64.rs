//! RISC-V, QEMU's machine `virt`.

use core::arch::global_asm;
use core::ptr::write_volatile;

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

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    if let Ok(device) = axmm::iomap(TEST_DEVICE.into(), 0x1000) {
        // SAFETY: a register of QEMU's, which ends with the write.
        unsafe { write_volatile(device.as_mut_ptr().cast::<u32>(), code << 16 | ENDS) };
    }
    axhal::power::system_off()
}

// What the caller wants back is on the stack.
global_asm!(
    r#"
.globl load_or_abandon
load_or_abandon:
    addi sp, sp, -112
    sd ra, 0(sp)
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    sd s\n, 8 * \n + 8(sp)
.endr
    sd sp, 0(a1)
    ld t0, 0(a0)
    sd t0, 0(a2)
    li a0, 1
2:
    ld ra, 0(sp)
.irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    ld s\n, 8 * \n + 8(sp)
.endr
    addi sp, sp, 112
    ret
.globl abandon
abandon:
    mv sp, a0
    li a0, 0
    j 2b
"#
);
