//! The CPUs of the machine and how interrupts may be addressed to them, from the ACPI tables: RSDP, RSDT or XSDT, MADT, FADT.
//!
//! ACPI Specification 6.5, sections "Root System Description Pointer", "Multiple APIC Description
//! Table (MADT)", "Fixed ACPI Description Table (FADT)". Firmware data: lengths and checksums are checked before use.

use arrayvec::ArrayVec;
use shootdown_x86::{ApicId, FadtFlags};

use super::fail::boot_fail;
use super::physical;

/// Most CPUs that are looked at; more are counted only.
pub const MAX_LISTED: usize = 256;

/// Who made the root pointer.
const MAKER: core::ops::Range<usize> = 9..15;
const HEADER_BYTES: usize = 36;
const MADT_ENTRIES: usize = 44;
const FADT_FLAGS: usize = 112;
/// Largest table believed.
const TABLE_LIMIT: usize = 1 << 20;
/// MADT entry types: local APIC, local x2APIC. (Type 5 moves the register page; IA32_APIC_BASE
/// says the same and is what counts.)
const LOCAL_APIC: u8 = 0;
const LOCAL_X2APIC: u8 = 9;
const ENABLED: u32 = 1;

/// APIC ids of the enabled CPUs, in the order of the table.
pub fn cpus(rsdp: u64) -> ArrayVec<ApicId, MAX_LISTED> {
    let Some(madt) = find_table(rsdp, b"APIC") else {
        boot_fail!("no ACPI table of CPUs (MADT); do not disable ACPI (-machine acpi=on)");
    };
    let mut found = ArrayVec::new();
    let mut rest = &madt[MADT_ENTRIES.min(madt.len())..];
    while let [kind, len, ..] = *rest {
        let len = usize::from(len);
        if len < 2 || len > rest.len() {
            boot_fail!("the ACPI table of CPUs is damaged; report the firmware's version");
        }
        let (entry, after) = rest.split_at(len);
        rest = after;
        let cpu = match kind {
            LOCAL_APIC if len >= 8 => Some((u32::from(entry[3]), word(entry, 4))),
            LOCAL_X2APIC if len >= 16 => Some((word(entry, 4), word(entry, 8))),
            _ => None,
        };
        if let Some((id, flags)) = cpu
            && flags & ENABLED != 0
            && !found.contains(&ApicId(id))
            && found.try_push(ApicId(id)).is_err()
        {
            break;
        }
    }
    found
}

/// What the firmware says of destinations; nothing without a FADT, or one of ACPI's first days that ends before.
pub fn firmware_flags(rsdp: u64) -> FadtFlags {
    let fadt = find_table(rsdp, b"FACP").filter(|fadt| fadt.len() >= FADT_FLAGS + 4);
    fadt.map_or(FadtFlags::empty(), |fadt| {
        FadtFlags::from_bits_retain(word(fadt, FADT_FLAGS))
    })
}

/// Whether the firmware is that of an emulator: Bochs's own, or SeaBIOS, which has kept its name.
pub fn is_of_emulator(rsdp: u64) -> bool {
    find_root_pointer(rsdp).is_some_and(|pointer| pointer[MAKER].starts_with(b"BOCHS"))
}

fn find_root_pointer(rsdp: u64) -> Option<&'static [u8]> {
    match rsdp {
        0 => scan_for_root_pointer(),
        at => root_pointer(at),
    }
}

fn find_table(rsdp: u64, signature: &[u8; 4]) -> Option<&'static [u8]> {
    let pointer = find_root_pointer(rsdp)?;
    // Revision 2 and up have a 64-bit table.
    let xsdt = (pointer.len() >= 36).then(|| quad(pointer, 24));
    let (root, width) = match xsdt {
        None | Some(0) => (table(u64::from(word(pointer, 16)))?, 4),
        Some(xsdt) => (table(xsdt)?, 8),
    };
    root[HEADER_BYTES..].chunks_exact(width).find_map(|entry| {
        let at = match width {
            8 => quad(entry, 0),
            _ => u64::from(word(entry, 0)),
        };
        table(at).filter(|table| table.starts_with(signature))
    })
}

/// The root pointer at `at`, 20 bytes of revision 0 or 36 of later ones.
fn root_pointer(at: u64) -> Option<&'static [u8]> {
    let short = physical::bytes(at, 20)?;
    if !short.starts_with(b"RSD PTR ") || !sums_to_zero(short) {
        return None;
    }
    if short[15] < 2 {
        return Some(short);
    }
    physical::bytes(at, 36).filter(|long| sums_to_zero(long))
}

/// BIOS machines keep it on a 16-byte boundary in the last 128 KiB below 1 MiB, or in the first KiB of
/// the extended BIOS data area, whose segment is at 0x40e.
fn scan_for_root_pointer() -> Option<&'static [u8]> {
    const SEGMENT_AT: u64 = 0x40e;
    let area = u64::from(physical::read::<u16>(SEGMENT_AT)?) << 4;
    let candidates = (area..area + 1024).chain(0xe_0000..0x10_0000);
    candidates.step_by(16).find_map(root_pointer)
}

/// A whole table with a right checksum.
fn table(at: u64) -> Option<&'static [u8]> {
    let len = word(physical::bytes(at, HEADER_BYTES)?, 4) as usize;
    if !(HEADER_BYTES..=TABLE_LIMIT).contains(&len) {
        return None;
    }
    physical::bytes(at, len).filter(|table| sums_to_zero(table))
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}

/// Little-endian 32 bits; the callers checked the length.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn quad(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
