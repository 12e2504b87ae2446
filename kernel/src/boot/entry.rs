//! Assembles `entry.s` and `trampoline.s`.

use core::arch::global_asm;

use super::{smp, start};
use crate::arch::exit::BOOT_ERROR;
use crate::arch::stacks::{CPU_STACKS, CpuStacks, MAIN_STACK_END};
use crate::platform::MAX_CPUS;

global_asm!(
    include_str!("entry.s"),
    boot_error = const BOOT_ERROR,
    stacks = sym CPU_STACKS,
    stacks_stride = const size_of::<CpuStacks>(),
    main_stack_end = const MAIN_STACK_END,
    max_cpus = const MAX_CPUS,
    apic_ids = sym smp::APIC_IDS,
    boot_main = sym start::boot_main,
    ap_main = sym smp::ap_main,
    options(att_syntax),
);

global_asm!(include_str!("trampoline.s"), options(att_syntax));
