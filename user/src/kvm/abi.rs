//! Numbers and structures of `linux/kvm.h`, written down a second time: what the kernel has of them may be wrong.
#![allow(missing_docs, reason = "the names are Linux's")]

pub const GET_API_VERSION: u32 = 0xae00;
pub const CREATE_VM: u32 = 0xae01;
pub const CHECK_EXTENSION: u32 = 0xae03;
pub const GET_VCPU_MMAP_SIZE: u32 = 0xae04;
pub const GET_SUPPORTED_CPUID: u32 = 0xc008_ae05;
pub const CREATE_VCPU: u32 = 0xae41;
pub const GET_DIRTY_LOG: u32 = 0x4010_ae42;
pub const SET_USER_MEMORY_REGION: u32 = 0x4020_ae46;
pub const RUN: u32 = 0xae80;
pub const GET_REGS: u32 = 0x8090_ae81;
pub const SET_REGS: u32 = 0x4090_ae82;
pub const GET_SREGS: u32 = 0x8138_ae83;
pub const SET_SREGS: u32 = 0x4138_ae84;
pub const INTERRUPT: u32 = 0x4004_ae86;
pub const NMI: u32 = 0xae9a;
pub const SET_CPUID2: u32 = 0x4008_ae90;
pub const ENABLE_CAP: u32 = 0x4068_aea3;
pub const CLEAR_DIRTY_LOG: u32 = 0xc018_aec0;

pub const CAP_USER_MEMORY: usize = 3;
pub const CAP_SYNC_MMU: usize = 16;
pub const CAP_IMMEDIATE_EXIT: usize = 136;
pub const CAP_MANUAL_DIRTY_LOG_PROTECT2: usize = 168;

pub const MEM_LOG_DIRTY_PAGES: u32 = 1;
pub const MEM_READONLY: u32 = 2;

pub const EXIT_IO: u32 = 2;
pub const EXIT_HLT: u32 = 5;
pub const EXIT_MMIO: u32 = 6;
pub const EXIT_IRQ_WINDOW_OPEN: u32 = 7;
pub const EXIT_SHUTDOWN: u32 = 8;
pub const EXIT_FAIL_ENTRY: u32 = 9;
pub const EXIT_INTR: u32 = 10;
pub const EXIT_INTERNAL_ERROR: u32 = 17;

/// Offsets in `struct kvm_run`.
pub const RUN_REQUEST_INTERRUPT_WINDOW: usize = 0;
pub const RUN_IMMEDIATE_EXIT: usize = 1;
pub const RUN_EXIT_REASON: usize = 8;
pub const RUN_READY_FOR_INTERRUPT: usize = 12;
pub const RUN_IF_FLAG: usize = 13;
pub const RUN_DETAILS: usize = 32;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRegion {
    pub slot: u32,
    pub flags: u32,
    pub guest_phys_addr: u64,
    pub memory_size: u64,
    pub userspace_addr: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct DirtyLog {
    pub slot: u32,
    pub padding: u32,
    pub bitmap: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ClearDirtyLog {
    pub slot: u32,
    pub num_pages: u32,
    pub first_page: u64,
    pub bitmap: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EnableCap {
    pub cap: u32,
    pub flags: u32,
    pub args: [u64; 4],
    pub pad: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Table {
    pub base: u64,
    pub limit: u16,
    pub padding: [u16; 3],
}

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

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Interrupt {
    pub irq: u32,
}

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

/// `struct kvm_cpuid2` with so many entries.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cpuid<const N: usize> {
    pub entries: u32,
    pub padding: u32,
    pub entry: [CpuidEntry; N],
}
