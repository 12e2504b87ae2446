//! Linux's KVM interface (`Documentation/virt/kvm/api.rst`), as far as it is here: requests, structures, exits.

use crate::arch::uaccess::Pod;

/// What `KVM_GET_API_VERSION` answers.
pub const API_VERSION: usize = 12;

const NONE: u32 = 0;
const WRITE: u32 = 1;
const READ: u32 = 2;

/// As `_IOC(direction, KVMIO, number, bytes)`.
const fn request(direction: u32, number: u32, bytes: usize) -> u32 {
    const KVMIO: u32 = 0xae;
    direction << 30 | (bytes as u32) << 16 | KVMIO << 8 | number
}

/// Requests of `/dev/kvm`.
pub const GET_API_VERSION: u32 = request(NONE, 0x00, 0);
pub const CREATE_VM: u32 = request(NONE, 0x01, 0);
pub const CHECK_EXTENSION: u32 = request(NONE, 0x03, 0);
pub const GET_VCPU_MMAP_SIZE: u32 = request(NONE, 0x04, 0);
pub const GET_SUPPORTED_CPUID: u32 = request(READ | WRITE, 0x05, size_of::<CpuidHeader>());

/// Requests of a machine.
pub const CREATE_VCPU: u32 = request(NONE, 0x41, 0);
pub const GET_DIRTY_LOG: u32 = request(WRITE, 0x42, size_of::<DirtyLog>());
pub const SET_USER_MEMORY_REGION: u32 = request(WRITE, 0x46, size_of::<MemoryRegion>());
pub const SET_TSS_ADDR: u32 = request(NONE, 0x47, 0);
pub const SET_IDENTITY_MAP_ADDR: u32 = request(WRITE, 0x48, size_of::<u64>());
pub const ENABLE_CAP: u32 = request(WRITE, 0xa3, size_of::<EnableCap>());
pub const CLEAR_DIRTY_LOG: u32 = request(READ | WRITE, 0xc0, size_of::<ClearDirtyLog>());

/// Requests of a virtual CPU.
pub const RUN: u32 = request(NONE, 0x80, 0);
pub const GET_REGS: u32 = request(READ, 0x81, size_of::<Regs>());
pub const SET_REGS: u32 = request(WRITE, 0x82, size_of::<Regs>());
pub const GET_SREGS: u32 = request(READ, 0x83, size_of::<Sregs>());
pub const SET_SREGS: u32 = request(WRITE, 0x84, size_of::<Sregs>());
pub const INTERRUPT: u32 = request(WRITE, 0x86, size_of::<Interrupt>());
pub const NMI: u32 = request(NONE, 0x9a, 0);
pub const SET_CPUID2: u32 = request(WRITE, 0x90, size_of::<CpuidHeader>());

// As `linux/kvm.h` has them when compiled.
const _: () = assert!(GET_DIRTY_LOG == 0x4010_ae42 && SET_USER_MEMORY_REGION == 0x4020_ae46);
const _: () = assert!(ENABLE_CAP == 0x4068_aea3 && CLEAR_DIRTY_LOG == 0xc018_aec0);
const _: () = assert!(GET_REGS == 0x8090_ae81 && SET_SREGS == 0x4138_ae84);
const _: () = assert!(INTERRUPT == 0x4004_ae86);
const _: () = assert!(SET_CPUID2 == 0x4008_ae90 && GET_SUPPORTED_CPUID == 0xc008_ae05);

/// Extensions.
pub mod cap {
    pub const USER_MEMORY: u32 = 3;
    pub const SET_TSS_ADDR: u32 = 4;
    pub const EXT_CPUID: u32 = 7;
    pub const NR_VCPUS: u32 = 9;
    pub const NR_MEMSLOTS: u32 = 10;
    pub const SYNC_MMU: u32 = 16;
    pub const DESTROY_MEMORY_REGION_WORKS: u32 = 21;
    pub const USER_NMI: u32 = 22;
    pub const JOIN_MEMORY_REGIONS_WORKS: u32 = 30;
    pub const SET_IDENTITY_MAP_ADDR: u32 = 37;
    pub const INTERNAL_ERROR_DATA: u32 = 40;
    pub const MAX_VCPUS: u32 = 66;
    pub const READONLY_MEM: u32 = 81;
    pub const ENABLE_CAP_VM: u32 = 98;
    pub const CHECK_EXTENSION_VM: u32 = 105;
    pub const MAX_VCPU_ID: u32 = 128;
    pub const IMMEDIATE_EXIT: u32 = 136;
    pub const MANUAL_DIRTY_LOG_PROTECT2: u32 = 168;
}

/// Flags of [`MemoryRegion`].
pub const MEM_LOG_DIRTY_PAGES: u32 = 1 << 0;
pub const MEM_READONLY: u32 = 1 << 1;

/// Arguments of [`cap::MANUAL_DIRTY_LOG_PROTECT2`].
pub const DIRTY_LOG_MANUAL_PROTECT: u64 = 1 << 0;
pub const DIRTY_LOG_INITIALLY_SET: u64 = 1 << 1;

/// Exit reasons.
pub mod exit {
    pub const IO: u32 = 2;
    pub const HLT: u32 = 5;
    pub const MMIO: u32 = 6;
    pub const IRQ_WINDOW_OPEN: u32 = 7;
    pub const SHUTDOWN: u32 = 8;
    pub const FAIL_ENTRY: u32 = 9;
    pub const INTR: u32 = 10;
    pub const INTERNAL_ERROR: u32 = 17;
}

/// Of [`exit::INTERNAL_ERROR`]: an instruction that cannot be carried out for the guest; an event whose delivery finds no memory; an exit that nobody expects.
pub const ERROR_EMULATION: u32 = 1;
pub const ERROR_DELIVERY: u32 = 3;
pub const ERROR_UNEXPECTED_EXIT: u32 = 4;

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRegion {
    pub slot: u32,
    pub flags: u32,
    pub guest_phys_addr: u64,
    pub memory_size: u64,
    pub userspace_addr: u64,
}

/// `struct kvm_dirty_log`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DirtyLog {
    pub slot: u32,
    pub padding: u32,
    pub bitmap: u64,
}

/// `struct kvm_clear_dirty_log`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ClearDirtyLog {
    pub slot: u32,
    pub num_pages: u32,
    pub first_page: u64,
    pub bitmap: u64,
}

/// `struct kvm_enable_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnableCap {
    pub cap: u32,
    pub flags: u32,
    pub args: [u64; 4],
    pub pad: [u64; 8],
}

/// `struct kvm_regs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Regs {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// `struct kvm_segment`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment {
    pub base: u64,
    pub limit: u32,
    pub selector: u16,
    pub kind: u8,
    pub present: u8,
    pub dpl: u8,
    pub db: u8,
    pub s: u8,
    pub l: u8,
    pub g: u8,
    pub avl: u8,
    pub unusable: u8,
    pub padding: u8,
}

/// `struct kvm_dtable`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    pub base: u64,
    pub limit: u16,
    pub padding: [u16; 3],
}

/// `struct kvm_sregs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Sregs {
    pub cs: Segment,
    pub ds: Segment,
    pub es: Segment,
    pub fs: Segment,
    pub gs: Segment,
    pub ss: Segment,
    pub tr: Segment,
    pub ldt: Segment,
    pub gdt: Table,
    pub idt: Table,
    pub cr0: u64,
    pub cr2: u64,
    pub cr3: u64,
    pub cr4: u64,
    pub cr8: u64,
    pub efer: u64,
    pub apic_base: u64,
    pub interrupt_bitmap: [u64; 4],
}

/// `struct kvm_interrupt`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Interrupt {
    pub vector: u32,
}

/// `struct kvm_cpuid2`, which so many [`CpuidEntry`]s follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuidHeader {
    pub entries: u32,
    pub padding: u32,
}

/// `struct kvm_cpuid_entry2`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuidEntry {
    pub function: u32,
    pub index: u32,
    pub flags: u32,
    pub eax: u32,
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
    pub padding: [u32; 3],
}

/// Flag of [`CpuidEntry`]: the index counts.
pub const CPUID_SIGNIFICANT_INDEX: u32 = 1 << 0;

macro_rules! pod {
    ($($plain:ty),* $(,)?) => {
        // SAFETY: 1. `repr(C)` structures of integers. 2. without padding that is not a field.
        $(unsafe impl Pod for $plain {})*
    };
}

pod!(
    MemoryRegion,
    DirtyLog,
    ClearDirtyLog,
    EnableCap,
    Regs,
    Sregs,
    Interrupt,
    CpuidHeader,
    CpuidEntry,
);

/// Offsets in `struct kvm_run`.
pub mod run {
    /// In: RUN returns as soon as the guest takes an interrupt.
    pub const REQUEST_INTERRUPT_WINDOW: usize = 0;
    /// In: RUN returns at once.
    pub const IMMEDIATE_EXIT: usize = 1;
    pub const EXIT_REASON: usize = 8;
    pub const READY_FOR_INTERRUPT: usize = 12;
    pub const IF_FLAG: usize = 13;
    pub const CR8: usize = 16;
    pub const APIC_BASE: usize = 24;
    /// What belongs to the reason.
    pub const DETAILS: usize = 32;
    /// Where the bytes of an access to a port are: behind the structure, whose largest version is shorter.
    pub const IO_DATA: usize = 0xc00;
}
