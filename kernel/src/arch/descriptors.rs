//! GDT and TSS of each CPU.
//!
//! The order of the selectors is what SYSCALL and SYSRET want (SDM vol. 2B, "SYSCALL", "SYSRET"):
//! kernel data follows kernel code, user code follows user data.

use core::cell::UnsafeCell;

use x86_64::PrivilegeLevel;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::registers::segmentation::SegmentSelector;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::tss::TaskStateSegment;

use super::stacks::Stacks;
use crate::cpus::MAX_CPUS;

const KERNEL_CODE: SegmentSelector = SegmentSelector::new(1, PrivilegeLevel::Ring0);
const KERNEL_DATA: SegmentSelector = SegmentSelector::new(2, PrivilegeLevel::Ring0);
const USER_DATA: SegmentSelector = SegmentSelector::new(3, PrivilegeLevel::Ring3);
const USER_CODE: SegmentSelector = SegmentSelector::new(4, PrivilegeLevel::Ring3);
const TSS: SegmentSelector = SegmentSelector::new(5, PrivilegeLevel::Ring0);

/// CS in the kernel.
pub const KERNEL_CS: u16 = KERNEL_CODE.0;
/// CS in ring 3.
pub const USER_CS: u16 = USER_CODE.0;
/// SS in ring 3.
pub const USER_SS: u16 = USER_DATA.0;

/// Interrupt stack table entries as the IDT counts them, from 1 (0: no switch).
pub const IST_DOUBLE_FAULT: u8 = 1;
/// See [`IST_DOUBLE_FAULT`].
pub const IST_NMI: u8 = 2;
/// See [`IST_DOUBLE_FAULT`].
pub const IST_MACHINE_CHECK: u8 = 3;

/// One CPU's tables. Never moved: the processor holds their addresses. With isolation on a page of their own, which user roots map.
#[cfg_attr(feature = "isolation", repr(align(4096)))]
struct Tables {
    gdt: UnsafeCell<GlobalDescriptorTable>,
    tss: UnsafeCell<TaskStateSegment>,
}

// SAFETY: each is written by its own CPU alone, with interrupts off.
unsafe impl Sync for Tables {}

static TABLES: [Tables; MAX_CPUS] = [const {
    Tables {
        gdt: UnsafeCell::new(GlobalDescriptorTable::new()),
        tss: UnsafeCell::new(TaskStateSegment::new()),
    }
}; MAX_CPUS];

/// The page with the tables of CPU `cpu`.
#[cfg(feature = "isolation")]
pub fn page(cpu: usize) -> usize {
    (&raw const TABLES[cpu]).addr()
}

/// Fills and loads the tables of this CPU. Once after each reset, interrupts off, before
/// [`percpu::install`](super::percpu::install): loading GS clears its base.
pub fn install(cpu: usize) {
    let tss = TABLES[cpu].tss.get();
    // SAFETY: this CPU's own, not loaded yet, and no other reference exists.
    let fill = unsafe { &mut *tss };
    let tops = Stacks::of(cpu).interrupt_tops();
    let mut interrupt_stacks = [VirtAddr::zero(); 7];
    for (entry, top) in interrupt_stacks.iter_mut().zip(tops) {
        *entry = VirtAddr::new(top as u64);
    }
    // The structure is packed: whole arrays are stored, no element is borrowed.
    fill.interrupt_stack_table = interrupt_stacks;

    // SAFETY: as above.
    let gdt = unsafe { &mut *TABLES[cpu].gdt.get() };
    *gdt = GlobalDescriptorTable::new();
    for (descriptor, selector) in [
        (Descriptor::kernel_code_segment(), KERNEL_CODE),
        (Descriptor::kernel_data_segment(), KERNEL_DATA),
        (Descriptor::user_data_segment(), USER_DATA),
        (Descriptor::user_code_segment(), USER_CODE),
    ] {
        assert_eq!(gdt.append(descriptor), selector);
    }
    // SAFETY: the TSS is a static, valid for ever.
    let descriptor = unsafe { Descriptor::tss_segment_unchecked(tss) };
    assert_eq!(gdt.append(descriptor).index(), TSS.index());
    // SAFETY: a static; it is not changed after this.
    unsafe { gdt.load_unsafe() };
    load_segments();
}

fn load_segments() {
    // SAFETY: the kernel's code segment in the table just loaded.
    unsafe { CS::set_reg(KERNEL_CODE) };
    // SAFETY: the kernel's data segment.
    unsafe { SS::set_reg(KERNEL_DATA) };
    // SAFETY: null selectors are allowed there in 64-bit mode.
    unsafe { DS::set_reg(SegmentSelector::NULL) };
    // SAFETY: as for DS.
    unsafe { ES::set_reg(SegmentSelector::NULL) };
    // SAFETY: as for DS; the base is set when a thread runs.
    unsafe { FS::set_reg(SegmentSelector::NULL) };
    // SAFETY: as for DS; `percpu::install` sets the base next.
    unsafe { GS::set_reg(SegmentSelector::NULL) };
    // SAFETY: an available TSS of this CPU's own.
    unsafe { load_tss(TSS) };
}

/// Sets the stack for entries from ring 3. On CPU `cpu` itself, interrupts off.
pub fn set_ring0_stack(cpu: usize, top: usize) {
    let tss = TABLES[cpu].tss.get();
    // SAFETY: in bounds; no reference is made, and the packed field needs no alignment.
    let field = unsafe { &raw mut (*tss).privilege_stack_table[0] };
    // SAFETY: this CPU's own TSS; the processor reads it only on entry from ring 3.
    unsafe { field.write_unaligned(VirtAddr::new(top as u64)) };
}
