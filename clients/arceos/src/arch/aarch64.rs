//! AArch64 at EL1, QEMU's machine `virt` with a GICv2.

use core::arch::{asm, global_asm};
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};

use axconfig::devices::GICD_PADDR;
use axhal::irq::IPI_IRQ;
use axhal::mem::{phys_to_virt, virt_to_phys};
use lazyinit::LazyInit;
use shootdown::{FlushRange, IpiRefused};
use shootdown_arm64::gic::{Distributor, InterfaceMap};
use shootdown_arm64::tlb::{Granule, Hardware, Pages};
use shootdown_arm64::{Errata, Features, Gic2, IdRegisters, Sgi};

pub use page_table_entry::aarch64::A64PTE as Entry;
pub use shootdown_arm64::{Tlb, tlb::Depth};

use super::{ENDS_BADLY, ENDS_WELL};

/// Levels of page tables.
pub const LEVELS: usize = 4;

/// Ends QEMU with an exit code ("Semihosting for AArch32 and AArch64", "SYS_EXIT_EXTENDED (0x20)"): the operation, and the reason.
const EXIT_EXTENDED: usize = 0x20;
const APPLICATION_EXIT: usize = 0x20026;
/// Where the distributor says which bit is the CPU's that reads (IHI 0048, 4.3.12, "GICD_ITARGETSR0").
const ITARGETSR0: usize = 0x800;

static GIC: LazyInit<Gic2<Distributor>> = LazyInit::new();
static INTERFACES: InterfaceMap = InterfaceMap::new();
const SGI: Sgi = Sgi::new(IPI_IRQ as u8).expect("the platform's configuration names an SGI");

#[repr(C, align(4096))]
struct Table([u64; 512]);
static EMPTY: Table = Table([0; 512]);

/// What this CPU has cached, once `prepare_cpu` has run. The kernel is behind TTBR1_EL1; roots that are loaded go to TTBR0_EL1, where ArceOS has none.
pub static TLB: LazyInit<Tlb<Hardware>> = LazyInit::new();

/// On each CPU, interrupts off, before it is online.
pub fn prepare_cpu(cpu: usize) {
    // SAFETY: 1. EL1.
    let features = Features::of(unsafe { IdRegisters::read() });
    TLB.call_once(|| {
        let empty = virt_to_phys(EMPTY.0.as_ptr().addr().into());
        // SAFETY: 1. EL1.
        let port = unsafe { Hardware::new() };
        // SAFETY: 1. the CPUs are alike. 2. ArceOS has pages of 4 KiB, and leaves DS clear. 3. a static. 4. each comes by here.
        unsafe {
            Tlb::new(
                port,
                &features,
                Errata::of(&features),
                Granule::Kib4,
                empty.as_usize() as u64,
            )
        }
    });
    // SAFETY: 1. the caller's. 2. the kernel is behind TTBR1_EL1, where ArceOS writes addresses alone.
    let _ = unsafe { TLB.start() };
    let distributor = phys_to_virt(GICD_PADDR.into()).as_mut_ptr();
    let distributor = NonNull::new(distributor).expect("an address of the kernel");
    // SAFETY: 1. ArceOS maps it as a device, for ever, on all CPUs. 1. `boot` has a handler, and enables it on each.
    GIC.call_once(|| unsafe { Gic2::new(Distributor::new(distributor)) });
    // SAFETY: a register there, which may be read by bytes.
    let interface = unsafe { distributor.add(ITARGETSR0).read_volatile() };
    let inserted = INTERFACES.insert(cpu, interface);
    inserted.expect("each CPU has an interface, and comes by once");
}

/// Interrupts a CPU.
pub fn send_ipi(cpu: usize) -> Result<(), IpiRefused> {
    let sent = GIC.send_many(&INTERFACES, &[1 << cpu], SGI);
    sent.map_err(|_| IpiRefused)
}

/// Takes note of the interrupt, before the engine looks.
pub fn acknowledge() {
    // ORDERING: Acquire: ArceOS has read GICC_IAR, which takes the interrupt, with no barrier behind; the engine's looks come after (contract 6).
    fence(Ordering::Acquire);
}

/// Drops pages.
pub fn flush_pages(range: FlushRange, depth: Depth) {
    let pages = Pages {
        start: range.start(),
        stride_bytes: range.page_size().bytes(),
        count: range.page_count(),
    };
    TLB.flush_pages(pages, depth);
}

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    let block = [APPLICATION_EXIT, code as usize];
    // SAFETY: QEMU ends with it.
    unsafe { asm!("hlt #0xf000", inout("x0") EXIT_EXTENDED => _, in("x1") &block) };
    axhal::power::system_off()
}

// What the caller wants back is on the stack.
global_asm!(
    r#"
.globl load_or_abandon
load_or_abandon:
    stp x29, x30, [sp, #-96]!
    stp x19, x20, [sp, #16]
    stp x21, x22, [sp, #32]
    stp x23, x24, [sp, #48]
    stp x25, x26, [sp, #64]
    stp x27, x28, [sp, #80]
    mov x9, sp
    str x9, [x1]
    ldr x9, [x0]
    str x9, [x2]
    mov w0, #1
2:
    ldp x19, x20, [sp, #16]
    ldp x21, x22, [sp, #32]
    ldp x23, x24, [sp, #48]
    ldp x25, x26, [sp, #64]
    ldp x27, x28, [sp, #80]
    ldp x29, x30, [sp], #96
    ret
.globl abandon
abandon:
    mov sp, x0
    mov w0, #0
    b 2b
"#
);
