//! What OSTD does not offer: the entries of page tables, the page of the local APIC, loads that may fault, the end of the machine.

use core::arch::{asm, global_asm};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use ostd::mm::{KERNEL_VADDR_RANGE, Paddr, Vaddr};

/// QEMU's device isa-debug-exit.
const EXIT_PORT: u16 = 0xf4;
/// QEMU ends with 2v + 1.
const ENDS_WELL: u32 = 16;
const ENDS_BADLY: u32 = 17;

/// Entries of a page table (SDM vol. 3A, "4-Level Paging and 5-Level Paging").
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
/// Where the address is in an entry.
pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const ENTRIES: usize = 512;
const KERNEL_ENTRIES: core::ops::Range<usize> = 256..512;
const INDEX_BITS: usize = 9;
const OFFSET_BITS: usize = 12;
const LEVELS: usize = 4;

global_asm!(
    // rdi: address, rsi: where the word goes; eax: whether there was a translation.
    "shootdown_load:",
    "mov rcx, [rdi]",
    "mov [rsi], rcx",
    "mov eax, 1",
    "ret",
    // rdi: address, rsi: the word.
    "shootdown_store:",
    "mov [rdi], rsi",
    "mov eax, 1",
    "ret",
    "shootdown_fault:",
    "xor eax, eax",
    "ret",
    // Where OSTD goes on after a fault of the first instruction of each.
    ".pushsection .ex_table, \"a\"",
    ".align 8",
    ".quad shootdown_load, shootdown_fault",
    ".quad shootdown_store, shootdown_fault",
    ".popsection",
);

unsafe extern "C" {
    fn shootdown_load(address: Vaddr, word: *mut u64) -> u32;
    fn shootdown_store(address: Vaddr, word: u64) -> u32;
}

/// Ends the machine, and QEMU.
pub fn end(is_good: bool) -> ! {
    let code = if is_good { ENDS_WELL } else { ENDS_BADLY };
    // SAFETY: a port of QEMU's, which ends with the write.
    unsafe { asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") code) };
    ostd::power::poweroff(ostd::power::ExitCode::Failure)
}

/// Waits for an interrupt; interrupts are on.
pub fn halt() {
    // SAFETY: the next interrupt ends it; the timer's comes a thousand times a second.
    unsafe { asm!("hlt", options(nomem, nostack)) };
}

/// The root that this CPU has loaded.
pub fn root() -> Paddr {
    let cr3: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr3", out(reg) cr3, options(nomem, nostack, preserves_flags)) };
    (cr3 & ADDRESS) as Paddr
}

/// The word at an address of the user's part, as this CPU's translations have it, or nothing if it has none.
pub fn load(address: Vaddr) -> Option<u64> {
    assert!(address < KERNEL_VADDR_RANGE.start);
    let mut word = 0;
    // SAFETY: an address of the user's part; if it faults OSTD goes on behind the load.
    let is_there = unsafe { shootdown_load(address, &raw mut word) } != 0;
    is_there.then_some(word)
}

/// Stores a word at an address of the user's part; false if this CPU has no translation for it.
pub fn store(address: Vaddr, word: u64) -> bool {
    assert!(address < KERNEL_VADDR_RANGE.start);
    // SAFETY: an address of the user's part; if it faults OSTD goes on behind the store.
    unsafe { shootdown_store(address, word) != 0 }
}

/// Where OSTD has mapped physical memory: its kernel's part begins with all of it.
fn mapped(address: Paddr) -> usize {
    KERNEL_VADDR_RANGE.start + address
}

/// An entry of the table at `table`.
fn entry(table: Paddr, index: usize) -> &'static AtomicU64 {
    let entry = mapped(table) + index * size_of::<u64>();
    // SAFETY: an entry of a table of this kernel, which processors read and write by atomic accesses, too.
    unsafe { AtomicU64::from_ptr(entry as *mut u64) }
}

/// The last-level entry of a page that is mapped, or was, in the tables at `root`.
pub fn entry_of(root: Paddr, address: Vaddr) -> &'static AtomicU64 {
    let index = |level: usize| address >> (OFFSET_BITS + INDEX_BITS * level) & (ENTRIES - 1);
    let table = (1..LEVELS).rev().fold(root, |table, level| {
        let next = entry(table, index(level)).load(Ordering::Acquire);
        assert!(
            next & PRESENT != 0 && next & LARGE == 0,
            "{address:#x} has no table"
        );
        (next & ADDRESS) as Paddr
    });
    entry(table, index(0))
}

/// Where OSTD has mapped the device page at `physical` in its kernel's part.
pub fn find_device_page(physical: Paddr) -> Option<NonNull<u8>> {
    let found = KERNEL_ENTRIES
        .into_iter()
        .find_map(|top| find_below(root(), top, LEVELS - 1, physical))?;
    // Bit 47 is set in all of the kernel's part: the sign goes on.
    NonNull::new((found | !0 << 47) as *mut u8)
}

/// Below one entry of the table at `table`: the part of the address that its levels look at.
fn find_below(table: Paddr, index: usize, level: usize, physical: Paddr) -> Option<Vaddr> {
    let found = entry(table, index).load(Ordering::Acquire);
    let part = index << (OFFSET_BITS + INDEX_BITS * level);
    let next = (found & ADDRESS) as Paddr;
    match (found & PRESENT != 0, level) {
        (false, _) => None,
        (true, 0) => (next == physical).then_some(part),
        (true, _) if found & LARGE != 0 => None,
        (true, _) => (0..ENTRIES)
            .find_map(|index| find_below(next, index, level - 1, physical))
            .map(|below| part | below),
    }
}
