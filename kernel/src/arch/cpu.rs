//! Bringing one CPU into the state that the kernel runs in: control registers, SYSCALL, tables.

use core::arch::asm;

use shootdown_x86::{ApicId, Features};
use spin::Once;
use x86_64::VirtAddr;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr2, Cr4, Cr4Flags, Efer, EferFlags};
use x86_64::registers::model_specific::{LStar, Msr, SFMask};
use x86_64::registers::rflags::RFlags;

use super::descriptors::{self, KERNEL_CS, USER_SS};
use super::{idt, percpu, stacks};

static FEATURES: Once<Features> = Once::new();

/// CPUID leaf 7, ECX bit 2: SGDT and its kin fault in ring 3 (SDM vol. 2A, "CPUID").
const LEAF_STRUCTURED: u32 = 7;
const UMIP: u32 = 1 << 2;
/// IA32_STAR: the selectors of SYSCALL and SYSRET (SDM vol. 2B, "SYSCALL", "SYSRET").
const IA32_STAR: u32 = 0xc000_0081;

unsafe extern "C" {
    /// In `traps/entry.s`.
    static syscall_entry: u8;
}

/// What the processors of this machine can do; taken from the boot CPU.
pub fn features() -> &'static Features {
    FEATURES.call_once(Features::detect)
}

/// Tables, GS, control registers and SYSCALL of the running CPU. Interrupts off; afterwards
/// exceptions and per-CPU data work. The local APIC is not touched.
pub fn set_up(cpu: usize) {
    descriptors::install(cpu);
    percpu::install(cpu);
    idt::install();
    set_control_registers();
    set_up_syscall();
    percpu::set_kernel_stack(stacks::Stacks::of(cpu).main_top());
}

fn set_control_registers() {
    let cr0 = Cr0Flags::PROTECTED_MODE_ENABLE
        | Cr0Flags::MONITOR_COPROCESSOR
        | Cr0Flags::EXTENSION_TYPE
        | Cr0Flags::NUMERIC_ERROR
        | Cr0Flags::WRITE_PROTECT
        | Cr0Flags::ALIGNMENT_MASK
        | Cr0Flags::PAGING;
    // SAFETY: paging and protection stay on; the rest concerns floating point and
    // what RFLAGS.AC means in ring 3.
    unsafe { Cr0::write(cr0) };

    let features = features();
    let mut cr4 = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION
        | Cr4Flags::MACHINE_CHECK_EXCEPTION
        | Cr4Flags::OSFXSR
        | Cr4Flags::OSXMMEXCPT_ENABLE;
    cr4.set(Cr4Flags::PAGE_GLOBAL, features.has_pge());
    cr4.set(
        Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION,
        features.has_smep(),
    );
    cr4.set(
        Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION,
        features.has_smap(),
    );
    cr4.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, has_umip());
    // SAFETY: only bits that CPUID reports; no user page is mapped yet. FSGSBASE stays off: the
    // paranoid entries rely on it.
    unsafe { Cr4::write(cr4) };
}

/// Where the last page fault of this CPU was.
pub fn fault_address() -> usize {
    Cr2::read_raw() as usize
}

/// Puts that back, behind page faults that whoever it belongs to is not to see.
pub fn set_fault_address(address: usize) {
    // SAFETY: CPL 0; the processor only writes the register.
    unsafe { asm!("mov cr2, {}", in(reg) address, options(nomem, nostack, preserves_flags)) };
}

/// Whether there is a local APIC to use (CPUID leaf 1, EDX bit 9; firmware can switch it off).
pub fn has_local_apic() -> bool {
    core::arch::x86_64::__cpuid(1).edx >> 9 & 1 != 0
}

fn has_umip() -> bool {
    let highest = core::arch::x86_64::__cpuid(0).eax;
    highest >= LEAF_STRUCTURED
        && core::arch::x86_64::__cpuid_count(LEAF_STRUCTURED, 0).ecx & UMIP != 0
}

fn set_up_syscall() {
    // SYSCALL loads CS from bits 32..48 and SS from there plus 8; SYSRET takes CS from bits 48..64
    // plus 16 and SS from there plus 8.
    let sysret_base = u64::from(USER_SS) - 8;
    let star = sysret_base << 48 | u64::from(KERNEL_CS) << 32;
    // SAFETY: selectors of the GDT that `descriptors` made.
    unsafe { Msr::new(IA32_STAR).write(star) };
    LStar::write(VirtAddr::from_ptr(&raw const syscall_entry));
    // Interrupts off until the stack is the kernel's; TF, DF, AC, NT clear for kernel code.
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::ALIGNMENT_CHECK
            | RFlags::NESTED_TASK
            | RFlags::IOPL_LOW
            | RFlags::IOPL_HIGH,
    );
    // SAFETY: adds SYSCALL to what is on already.
    unsafe { Efer::update(|flags| flags.insert(EferFlags::SYSTEM_CALL_EXTENSIONS)) };
}

/// The APIC id of the running CPU by CPUID, as `start/entry.s` asks too: leaf 0xb where it exists, else the
/// 8 bits of leaf 1.
pub fn initial_apic_id() -> ApicId {
    const LEAF_TOPOLOGY: u32 = 0xb;
    if core::arch::x86_64::__cpuid(0).eax >= LEAF_TOPOLOGY {
        let topology = core::arch::x86_64::__cpuid_count(LEAF_TOPOLOGY, 0);
        if topology.ebx != 0 {
            return ApicId(topology.edx);
        }
    }
    ApicId(core::arch::x86_64::__cpuid(1).ebx >> 24)
}
