//! x86-64, a PC under QEMU.

use core::arch::{asm, global_asm};
use core::ptr::{NonNull, read_volatile, write_volatile};

use alloc::string::String;
use axhal::irq::IPI_IRQ;
use axhal::mem::phys_to_virt;
use lazyinit::LazyInit;
use shootdown::{FlushRange, IpiRefused};
use shootdown_x86::{ApicId, ApicMode, Destination, Features, IpiSender, Vector, apic};

pub use page_table_entry::x86_64::X64PTE as Entry;
pub use shootdown_x86::{Tlb, tlb::Depth};

use super::{ENDS_BADLY, ENDS_WELL};

/// Levels of page tables.
pub const LEVELS: usize = 4;

/// QEMU's device isa-debug-exit: QEMU ends with 2v + 1.
const EXIT_PORT: u16 = 0xf4;

/// Registers of the HPET (IA-PC HPET specification, "Register Overview").
const HPET: usize = 0xfed0_0000;
const HPET_PERIOD_FS: usize = HPET + 4;
const HPET_CONFIGURATION: usize = HPET + 0x10;
const HPET_COUNTER: usize = HPET + 0xf0;

/// Where the address of the command line is in the information of multiboot 0.6.96.
const MULTIBOOT_CMDLINE: usize = 16;
/// QEMU's device fw_cfg, and items of it.
const SELECT_PORT: u16 = 0x510;
const KERNEL_ADDRESS: u16 = 0x07;
const KERNEL_DATA: u16 = 0x11;

const VECTOR: Vector = Vector::new(IPI_IRQ as u8).expect("no exception has this vector");
static SENDER: LazyInit<IpiSender> = LazyInit::new();
/// What this CPU has cached, once `prepare_cpu` has run.
pub static TLB: LazyInit<Tlb> = LazyInit::new();

/// On each CPU, before it is online. ArceOS has the ids of local APICs for numbers.
pub fn prepare_cpu(_: usize) {
    let features = Features::detect();
    // SAFETY: 1. a kernel. 2. the CPUs are alike, and ArceOS leaves PCIDE clear.
    TLB.call_once(|| unsafe { Tlb::new(&features) });
    SENDER.call_once(|| match ApicMode::detect(&features) {
        // SAFETY: 1. a kernel. 2. ArceOS chooses the mode by the same bit of CPUID.
        ApicMode::X2Apic => unsafe { IpiSender::new_x2apic() },
        ApicMode::XApic => {
            // SAFETY: 1. a kernel.
            let page = physical(unsafe { apic::physical_base() } as usize);
            let page = NonNull::new(page.cast()).expect("an address of the kernel");
            // SAFETY: 1. and 2. as above. 3. ArceOS maps it as a device, for ever. 4. its own driver sends while it starts CPUs, and no more.
            unsafe { IpiSender::new_xapic(page) }
        }
    });
}

/// Interrupts a CPU.
pub fn send_ipi(cpu: usize) -> Result<(), IpiRefused> {
    let to = Destination::Physical(ApicId(cpu as u32));
    SENDER.send(to, VECTOR).map_err(|_| IpiRefused)
}

/// The local APIC has taken note of the interrupt: what comes later is pending in the IRR.
pub fn acknowledge() {}

/// Drops pages.
pub fn flush_pages(range: FlushRange, depth: Depth) {
    let stride = range.page_size().bytes();
    TLB.flush_pages(range.start(), stride, range.page_count(), depth);
}

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    // SAFETY: a port of QEMU's, which ends with the write.
    unsafe { asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") code / 2) };
    axhal::power::system_off()
}

fn physical(address: usize) -> *mut u32 {
    phys_to_virt(address.into()).as_mut_ptr().cast()
}

/// Has QEMU's configuration device hand out an item from its beginning.
fn select(item: u16) {
    // SAFETY: the ports of the device, which only this function and `next_byte` use.
    unsafe { asm!("out dx, ax", in("dx") SELECT_PORT, in("ax") item) };
}

fn next_byte() -> u8 {
    let byte;
    // SAFETY: the same.
    unsafe { asm!("in al, dx", in("dx") SELECT_PORT + 1, out("al") byte) };
    byte
}

fn number(item: u16) -> usize {
    select(item);
    (0..4).fold(0, |number, byte| {
        number | (next_byte() as usize) << (8 * byte)
    })
}

/// What stands behind the name of the image. QEMU has put it behind the kernel, where ArceOS's allocator has been since; it is read from what QEMU
/// loaded.
pub fn command_line() -> String {
    let information = axhal::dtb::get_bootarg();
    // SAFETY: multiboot's information lies below 1 MiB, which ArceOS maps and leaves alone; QEMU always gives a command line.
    let line = unsafe { read_volatile(physical(information + MULTIBOOT_CMDLINE)) };
    let before = line as usize - number(KERNEL_ADDRESS);
    select(KERNEL_DATA);
    (0..before).for_each(|_| {
        next_byte();
    });
    let bytes = core::iter::repeat_with(next_byte).take_while(|byte| *byte != 0);
    bytes.map(char::from).collect()
}

/// Nanoseconds of a clock whose frequency is known.
pub fn reference_ns() -> Option<u64> {
    // SAFETY: the registers of the HPET, which ArceOS maps and does not use.
    let period_fs = unsafe { read_volatile(physical(HPET_PERIOD_FS)) };
    // SAFETY: the same; bit 0 lets it run.
    unsafe { write_volatile(physical(HPET_CONFIGURATION), 1) };
    // SAFETY: the same.
    let count = unsafe { read_volatile(physical(HPET_COUNTER).cast::<u64>()) };
    Some((u128::from(count) * u128::from(period_fs) / 1_000_000) as u64)
}

// What the caller wants back is on the stack.
global_asm!(
    r#"
.globl load_or_abandon
load_or_abandon:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rsi], rsp
    mov rcx, [rdi]
    mov [rdx], rcx
    mov eax, 1
2:
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret
.globl abandon
abandon:
    mov rsp, rdi
    xor eax, eax
    jmp 2b
"#
);
