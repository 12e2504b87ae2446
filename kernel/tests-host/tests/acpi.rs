//! ACPI tables as firmware leaves them: what they say of CPUs and of interrupts to them, and tables that are damaged.

use shootdown_kernel_tests::boot::acpi;
use shootdown_kernel_tests::boot::physical::MEMORY;
use shootdown_x86::{ApicId, FadtFlags};

const ROOT_POINTER: usize = 0x1000;
const ROOT: usize = 0x2000;
const MADT: usize = 0x3000;
const FADT: usize = 0x4000;
const END: usize = 0x5000;

/// A table with this signature and content behind its header.
fn table(signature: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend((36 + content.len() as u32).to_le_bytes());
    table.resize(36, 0);
    table.extend(content);
    with_sum(table, 9)
}

/// The same, with a byte that makes the sum 0.
fn with_sum(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] = 0;
    bytes[at] = bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_sub(byte));
    bytes
}

/// CPUs 1 (disabled) and 5, by local APICs.
fn madt() -> Vec<u8> {
    let mut content = vec![0; 8];
    content.extend([0, 8, 0, 1, 0, 0, 0, 0]);
    content.extend([0, 8, 1, 5, 1, 0, 0, 0]);
    table(b"APIC", &content)
}

/// A FADT of so many bytes, all set between header and flags and behind them.
fn fadt(flags: u32, len: usize) -> Vec<u8> {
    let mut content = vec![0xff; 240];
    content[112 - 36..116 - 36].copy_from_slice(&flags.to_le_bytes());
    table(b"FACP", &content[..len - 36])
}

/// Lays them out below an RSDT, or an XSDT, with the FADT before the MADT.
fn lay_out(fadt: &[u8], is_wide: bool) {
    let mut memory = vec![0; END];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    let pointers = [FADT, MADT].map(|at| (at as u64).to_le_bytes());
    let width = if is_wide { 8 } else { 4 };
    let pointers = pointers.map(|pointer| pointer[..width].to_vec()).concat();
    put(
        ROOT,
        &table(if is_wide { b"XSDT" } else { b"RSDT" }, &pointers),
    );
    put(MADT, &madt());
    put(FADT, fadt);
    let mut pointer = b"RSD PTR \0MAKER \x02".to_vec();
    pointer.resize(36, 0);
    let at = if is_wide { 24 } else { 16 };
    pointer[at..at + 4].copy_from_slice(&(ROOT as u32).to_le_bytes());
    pointer.splice(..20, with_sum(pointer[..20].to_vec(), 8));
    put(ROOT_POINTER, &with_sum(pointer, 32));
    MEMORY.set(Vec::leak(memory));
}

#[test]
fn what_the_firmware_says_of_destinations_is_read() {
    for is_wide in [false, true] {
        for (bit, flag) in [
            (18, FadtFlags::FORCE_CLUSTER),
            (19, FadtFlags::FORCE_PHYSICAL),
        ] {
            // 116 bytes in ACPI 1.0, more later.
            for len in [116, 244, 276] {
                lay_out(&fadt(1 << bit, len), is_wide);
                assert_eq!(acpi::firmware_flags(ROOT_POINTER as u64), flag);
                assert_eq!(acpi::cpus(ROOT_POINTER as u64)[..], [ApicId(5)]);
            }
        }
    }
}

/// One that ends before the flags, one whose sum is wrong, another table, and none.
#[test]
fn a_fadt_that_is_not_to_be_believed_says_nothing() {
    let good = fadt(!0, 116);
    let mut damaged = good.clone();
    damaged[60] ^= 1;
    for fadt in [fadt(!0, 115), damaged, table(b"FACS", &good[36..]), vec![]] {
        lay_out(&fadt, false);
        assert_eq!(
            acpi::firmware_flags(ROOT_POINTER as u64),
            FadtFlags::empty()
        );
    }
    lay_out(&good, false);
    assert_eq!(acpi::firmware_flags(ROOT_POINTER as u64).bits(), !0);
}
