//! Assembles `entry.s` and `trampoline.s`.

use core::arch::global_asm;

use super::{boot_cpu, others};
use crate::addr::CPU_STACKS;
use crate::arch::exit::BOOT_ERROR;
use crate::arch::stacks::{BOOT_STACKS, MAIN_STACK_END, STRIDE};
use crate::cpus::MAX_CPUS;

global_asm!(
    include_str!("entry.s"),
    include_str!("trampoline.s"),
    boot_error = const BOOT_ERROR,
    boot_stacks = sym BOOT_STACKS,
    other_stacks = const CPU_STACKS,
    stacks_stride = const STRIDE,
    main_stack_end = const MAIN_STACK_END,
    max_cpus = const MAX_CPUS,
    apic_ids = sym others::APIC_IDS,
    root = sym others::ROOT,
    boot_main = sym boot_cpu::boot_main,
    ap_main = sym others::ap_main,
    options(att_syntax),
);
