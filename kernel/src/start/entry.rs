//! Assembles `entry.s` and `trampoline.s`.

use core::arch::global_asm;

use super::{boot_cpu, others};
use crate::arch::exit::BOOT_ERROR;
use crate::arch::stacks::{CPU_STACKS, CpuStacks, MAIN_STACK_END};
use crate::cpus::MAX_CPUS;

global_asm!(
    include_str!("entry.s"),
    include_str!("trampoline.s"),
    boot_error = const BOOT_ERROR,
    stacks = sym CPU_STACKS,
    stacks_stride = const size_of::<CpuStacks>(),
    main_stack_end = const MAIN_STACK_END,
    max_cpus = const MAX_CPUS,
    apic_ids = sym others::APIC_IDS,
    boot_main = sym boot_cpu::boot_main,
    ap_main = sym others::ap_main,
    options(att_syntax),
);
