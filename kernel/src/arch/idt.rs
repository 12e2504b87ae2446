//! The interrupt descriptor table: one for all CPUs, as all entries are the same everywhere.

use core::arch::asm;

use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

use super::descriptors::{IST_DOUBLE_FAULT, IST_MACHINE_CHECK, IST_NMI, KERNEL_CS};
use super::trap::vectors;

const ENTRIES: usize = 256;
/// Distance between the stubs in `entry.s`.
const STUB_BYTES: usize = 16;

/// An interrupt gate (SDM vol. 3A, "64-Bit Mode IDT").
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
struct Gate {
    offset_low: u16,
    selector: u16,
    /// Bits 0..3: interrupt stack table entry. Bits 8..16: type, privilege, present.
    options: u16,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

/// Present, 64-bit interrupt gate: interrupts are off on entry.
const INTERRUPT_GATE: u16 = 0x8e00;
/// The privilege that INT n needs for the gate.
const RING3: u16 = 3 << 13;

impl Gate {
    fn new(handler: usize, ist: u8, privilege: u16) -> Self {
        Self {
            offset_low: handler as u16,
            selector: KERNEL_CS,
            options: INTERRUPT_GATE | privilege | u16::from(ist),
            offset_middle: (handler >> 16) as u16,
            offset_high: (handler >> 32) as u32,
            reserved: 0,
        }
    }

    fn for_vector(vector: usize) -> Self {
        let ist = match vector {
            vectors::DOUBLE_FAULT => IST_DOUBLE_FAULT,
            vectors::NMI => IST_NMI,
            vectors::MACHINE_CHECK => IST_MACHINE_CHECK,
            _ => 0,
        };
        // Programs may use INT3 and INTO; INT n with another vector is #GP.
        let privilege = match vector {
            vectors::BREAKPOINT | vectors::OVERFLOW => RING3,
            _ => 0,
        };
        Self::new(
            (&raw const trap_stubs).addr() + vector * STUB_BYTES,
            ist,
            privilege,
        )
    }
}

unsafe extern "C" {
    /// In `traps/entry.s`.
    static trap_stubs: u8;
}

/// With isolation a page, which user roots map.
#[cfg_attr(feature = "isolation", repr(align(4096)))]
struct Table([Gate; ENTRIES]);

static IDT: Once<Table> = Once::new();

fn table() -> &'static [Gate; ENTRIES] {
    &IDT.call_once(|| Table(core::array::from_fn(Gate::for_vector)))
        .0
}

/// The page with the table.
#[cfg(feature = "isolation")]
pub fn page() -> usize {
    table().as_ptr().addr()
}

/// Loads the table on this CPU. Interrupts off.
pub fn install() {
    let table = table();
    let pointer = DescriptorTablePointer {
        limit: (size_of_val(table) - 1) as u16,
        base: VirtAddr::from_ptr(table),
    };
    // SAFETY: a static whose gates all lead to the stubs.
    unsafe { lidt(&pointer) };
}

/// Makes every further exception a reset of the machine: the last way to end it.
pub fn break_on_purpose() -> ! {
    let pointer = DescriptorTablePointer {
        limit: 0,
        base: VirtAddr::zero(),
    };
    // SAFETY: nothing runs after this but the exception below, which then is a triple fault.
    unsafe { lidt(&pointer) };
    // SAFETY: ends the machine.
    unsafe { asm!("ud2", options(noreturn)) };
}
