//! AMD's virtual machines (SVM) on this CPU: whether it has them, turning them on and off, and the way into a guest and back.
//!
//! VMRUN and #VMEXIT exchange a part of the registers; VMSAVE and VMLOAD another, GS among them, without which this kernel finds nothing;
//! the rest is moved by hand. All of that happens with the global interrupt flag clear (CLGI), so that nobody, not even an NMI, sees a half
//! (APM vol. 2, "Secure Virtual Machine").

use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;

use shootdown::{CpuId, tags::AsidSlot};
use shootdown_x86::guest::GuestTags;
use shootdown_x86::msr::{self, Msr};
use shootdown_x86::svm::{EFER_SVME, Svm, SvmTags, VM_CR_SVMDIS};
use spin::Once;

use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::cpus::MAX_CPUS;

/// How many tags of guests a CPU uses at most: virtual CPUs that take turns on one CPU are few.
pub const TAGS: usize = 16;
/// A virtual CPU has its tag in one of so many.
const WAYS: usize = 4;

/// The tags of one CPU.
pub type Tags = SvmTags<TAGS>;

/// Where the processor keeps the host's state while a guest runs: the page of VMRUN, and one for VMSAVE.
#[repr(C, align(4096))]
struct HostState(UnsafeCell<[u8; 2 * PAGE_BYTES]>);

// SAFETY: only the processor that has it writes to it.
unsafe impl Sync for HostState {}

static HOST_STATES: [HostState; MAX_CPUS] =
    [const { HostState(UnsafeCell::new([0; 2 * PAGE_BYTES])) }; MAX_CPUS];

/// One CPU's slots, on cache lines of its own.
#[repr(align(128))]
struct Slots([AsidSlot; TAGS]);

static SLOTS: [Slots; MAX_CPUS] = [const { Slots([const { AsidSlot::new() }; TAGS]) }; MAX_CPUS];

static SUPPORT: Once<Option<Support>> = Once::new();

/// What the processors of this machine have.
#[derive(Clone, Copy, Debug)]
struct Support {
    svm: Svm,
    slots: usize,
}

/// Looks whether this machine can run guests. Boot CPU, once, before it is online.
pub fn choose() {
    SUPPORT.call_once(detect);
}

fn detect() -> Option<Support> {
    let svm = Svm::detect()?;
    // SAFETY: 1. the kernel. 2. processors with SVM have the register. 3. a read without effects.
    let is_off = unsafe { msr::read(Msr::VM_CR) } & VM_CR_SVMDIS != 0;
    let tags = Tags::new(&svm).ok().filter(|_| !is_off)?;
    let slots = tags.slots() / WAYS * WAYS;
    Some(Support { svm, slots })
}

fn support() -> Option<&'static Support> {
    SUPPORT.get()?.as_ref()
}

/// Whether guests can run here, on nested page tables.
pub fn is_supported() -> bool {
    support().is_some()
}

/// What a CPU remembers of its guests' tags.
#[inline]
pub fn slots(cpu: CpuId) -> &'static [AsidSlot] {
    let count = support().map_or(0, |support| support.slots);
    &SLOTS[cpu.index()].0[..count]
}

/// Turns SVM on on this CPU, whose number is `cpu`; its tags, of which nothing is known yet. `None` where there is none. Interrupts off.
pub fn turn_on(cpu: CpuId) -> Option<Tags> {
    let tags = Tags::new(&support()?.svm).ok()?;
    // SAFETY: 1. the kernel. 2. every processor in long mode has the register. 3. a read without effects.
    let efer = unsafe { msr::read(Msr::EFER) };
    // SAFETY: 1. the kernel. 2. the processor has SVM, and firmware has not switched it off. 3. it only makes instructions known.
    unsafe { msr::write(Msr::EFER, efer | EFER_SVME) };
    let save = host_state(cpu).as_u64();
    // SAFETY: 1. the kernel. 2. SVM is on; a page of memory. 3. this CPU's own, which Rust code never looks at.
    unsafe { msr::write(Msr::VM_HSAVE_PA, save) };
    Some(tags)
}

/// Turns it off again, on a CPU that has it on. Interrupts off.
pub fn turn_off() {
    // SAFETY: 1. the kernel. 2. SVM is on. 3. the page may be used otherwise from here on, and is not.
    unsafe { msr::write(Msr::VM_HSAVE_PA, 0) };
    leave();
}

/// Ends what keeps INIT and NMIs off (GIF of 0), and turns SVM off where it is on. Any context, for a CPU that runs no guest any more.
pub fn leave() {
    // SAFETY: 1. the kernel. 2. every processor in long mode has the register. 3. a read without effects.
    let efer = unsafe { msr::read(Msr::EFER) };
    if efer & EFER_SVME == 0 {
        return;
    }
    // SAFETY: SVM is on; an NMI that waits comes here, and its handler has a stack of its own.
    unsafe { asm!("stgi", options(nostack)) };
    // SAFETY: 1. the kernel. 2. no reserved bit. 3. as the caller says; the global interrupt flag is set.
    unsafe { msr::write(Msr::EFER, efer & !EFER_SVME) };
}

fn host_state(cpu: CpuId) -> PhysAddr {
    PhysAddr::of(HOST_STATES[cpu.index()].0.get())
}

/// A guest's registers that VMRUN does not exchange. RAX and RSP are in the VMCB.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the names are the manual's")]
pub struct GuestRegisters {
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
}

/// Runs the guest of this VMCB on the CPU with number `cpu` until it exits.
///
/// # Safety
/// 1. The CPU is this one, SVM is on here, and interrupts are off.
/// 2. `vmcb` is that of a VMCB, which nobody else uses; it intercepts VMRUN, NMI, INTR with V_INTR_MASKING unless the caller does without interrupts, and
///    whatever would harm the host; its nested page tables show the guest nothing but what is the guest's.
/// 3. What the guest finds and leaves in registers that neither the VMCB nor `registers` has, such as those of the FPU, is right.
pub unsafe fn enter(cpu: CpuId, vmcb: PhysAddr, registers: &mut GuestRegisters) {
    let host = host_state(cpu).as_u64() + PAGE_BYTES as u64;
    // SAFETY: duties 1 to 3 are the caller's; the second page is for VMSAVE.
    unsafe { enter_guest(vmcb.as_u64(), registers, host) };
}

/// RDI is the VMCB, RSI the registers, RDX the page for the host's VMSAVE. With STI under CLGI the host's interrupt flag says, for V_INTR_MASKING, that
/// an interrupt ends the guest (APM vol. 2, "Physical (INTR) Interrupt Masking in EFLAGS").
#[unsafe(naked)]
unsafe extern "C" fn enter_guest(vmcb: u64, registers: &mut GuestRegisters, host: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "push rdx",
        "push rdi",
        "clgi",
        // Not last before VMRUN: QEMU takes what holds interrupts off behind STI into the guest.
        "sti",
        "mov rax, rdx",
        "vmsave rax",
        "mov rax, rdi",
        "vmload rax",
        "mov rbx, [rsi + {rbx}]",
        "mov rcx, [rsi + {rcx}]",
        "mov rdx, [rsi + {rdx}]",
        "mov rdi, [rsi + {rdi}]",
        "mov rbp, [rsi + {rbp}]",
        "mov r8, [rsi + {r8}]",
        "mov r9, [rsi + {r9}]",
        "mov r10, [rsi + {r10}]",
        "mov r11, [rsi + {r11}]",
        "mov r12, [rsi + {r12}]",
        "mov r13, [rsi + {r13}]",
        "mov r14, [rsi + {r14}]",
        "mov r15, [rsi + {r15}]",
        "mov rsi, [rsi + {rsi}]",
        "vmrun rax",
        "cli",
        // RAX and RSP are the host's again.
        "pop rax",
        "vmsave rax",
        "pop rax",
        "vmload rax",
        "pop rax",
        "mov [rax + {rbx}], rbx",
        "mov [rax + {rcx}], rcx",
        "mov [rax + {rdx}], rdx",
        "mov [rax + {rsi}], rsi",
        "mov [rax + {rdi}], rdi",
        "mov [rax + {rbp}], rbp",
        "mov [rax + {r8}], r8",
        "mov [rax + {r9}], r9",
        "mov [rax + {r10}], r10",
        "mov [rax + {r11}], r11",
        "mov [rax + {r12}], r12",
        "mov [rax + {r13}], r13",
        "mov [rax + {r14}], r14",
        "mov [rax + {r15}], r15",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        // An NMI that waits comes here, with the host's registers.
        "stgi",
        "ret",
        rbx = const offset_of!(GuestRegisters, rbx),
        rcx = const offset_of!(GuestRegisters, rcx),
        rdx = const offset_of!(GuestRegisters, rdx),
        rsi = const offset_of!(GuestRegisters, rsi),
        rdi = const offset_of!(GuestRegisters, rdi),
        rbp = const offset_of!(GuestRegisters, rbp),
        r8 = const offset_of!(GuestRegisters, r8),
        r9 = const offset_of!(GuestRegisters, r9),
        r10 = const offset_of!(GuestRegisters, r10),
        r11 = const offset_of!(GuestRegisters, r11),
        r12 = const offset_of!(GuestRegisters, r12),
        r13 = const offset_of!(GuestRegisters, r13),
        r14 = const offset_of!(GuestRegisters, r14),
        r15 = const offset_of!(GuestRegisters, r15),
    )
}
