//! The state in which a virtual CPU begins: 64-bit mode, addresses that are their own translation.

use kvm_bindings::{kvm_regs, kvm_segment, kvm_sregs};

use super::guest::{CODE_PAGE, Registers};
use super::vm::SYSTEM_PAGES;
use crate::region::{PAGE_BYTES, Region};
use std::sync::atomic::Ordering::Relaxed;

/// The page tables, from the root down.
const ROOT_PAGE: usize = 1;
const MIDDLE_PAGE: usize = 2;
const LEAF_PAGE: usize = 3;
const _: () = assert!(LEAF_PAGE < SYSTEM_PAGES);

/// What a guest's page tables reach: one table of pages of 2 MiB.
pub const REACH_BYTES: usize = 1 << 30;

const PRESENT_WRITABLE: u64 = 0b11;
const ACCESSED_DIRTY: u64 = 0b110_0000;
const LARGE: u64 = 1 << 7;
const LARGE_BYTES: usize = 2 << 20;

const CR0_PE_ET_NE_WP_PG: u64 = 1 | 1 << 4 | 1 << 5 | 1 << 16 | 1 << 31;
const CR4_PAE: u64 = 1 << 5;
const EFER_LME_LMA: u64 = 1 << 8 | 1 << 10;
/// Bit 1 of RFLAGS is always set; interrupts are off.
pub const RFLAGS: u64 = 0b10;

/// Segments' types: code that may be read, data that may be written, both accessed.
pub const CODE: u8 = 0xb;
/// The other of them.
pub const DATA: u8 = 0x3;

/// Writes page tables that map all of the memory at its own addresses.
pub fn write_tables(memory: &Region) {
    let table = |page: usize| (page * PAGE_BYTES) as u64 | PRESENT_WRITABLE | ACCESSED_DIRTY;
    memory.word(ROOT_PAGE, 0).store(table(MIDDLE_PAGE), Relaxed);
    memory.word(MIDDLE_PAGE, 0).store(table(LEAF_PAGE), Relaxed);
    let leaves = (memory.pages() * PAGE_BYTES).div_ceil(LARGE_BYTES);
    for leaf in 0..leaves {
        let entry = (leaf * LARGE_BYTES) as u64 | PRESENT_WRITABLE | ACCESSED_DIRTY | LARGE;
        memory.word(LEAF_PAGE, leaf).store(entry, Relaxed);
    }
}

/// A segment of 32 bits from 0 on, without an end.
pub fn flat(selector: u16, kind: u8) -> kvm_segment {
    kvm_segment {
        selector,
        type_: kind,
        limit: u32::MAX,
        present: 1,
        s: 1,
        g: 1,
        db: 1,
        ..kvm_segment::default()
    }
}

/// Changes the special registers of a virtual CPU as it was made; the rest, such as its APIC, stays.
pub fn enter_long_mode(special: &mut kvm_sregs) {
    special.cs = kvm_segment {
        l: 1,
        db: 0,
        ..flat(0x08, CODE)
    };
    let data = flat(0x10, DATA);
    (special.ds, special.es, special.ss) = (data, data, data);
    (special.fs, special.gs) = (data, data);
    special.cr0 = CR0_PE_ET_NE_WP_PG;
    special.cr3 = (ROOT_PAGE * PAGE_BYTES) as u64;
    special.cr4 = CR4_PAE;
    special.efer = EFER_LME_LMA;
}

/// The general registers.
pub fn general(registers: Registers) -> kvm_regs {
    kvm_regs {
        rip: (CODE_PAGE * PAGE_BYTES) as u64,
        rflags: RFLAGS,
        rdi: registers.base,
        rsi: registers.mask,
        r8: registers.pages,
        r9: registers.multiplier,
        r10: registers.visits,
        r11: registers.increment,
        ..kvm_regs::default()
    }
}
