//! ACPI tables: the root pointer, the table of tables, and the list of CPUs (ACPI Specification 6.5, "RSDP Structure", "XSDT", "MADT").

/// Where they are. Firmware has this area, and no memory map gives it away.
pub const PLACE: u64 = 0xf_0000;
/// Where local APICs are.
pub const LOCAL_APIC: u32 = 0xfee0_0000;

const XSDT: u64 = PLACE + 64;
const MADT: u64 = PLACE + 128;
const OEM: &[u8; 6] = b"SHTDWN";
const HEADER_BYTES: usize = 36;
/// Of an entry for a local APIC: type, length, and the flag "enabled".
const ENTRY: [u8; 2] = [0, 8];
const ENABLED: u32 = 1;

/// All of them for so many CPUs, as bytes at [`PLACE`].
pub fn all(cpus: u8) -> Vec<u8> {
    let mut bytes = root_pointer();
    bytes.resize((XSDT - PLACE) as usize, 0);
    bytes.extend(table(b"XSDT", &MADT.to_le_bytes()));
    bytes.resize((MADT - PLACE) as usize, 0);
    let mut list = LOCAL_APIC.to_le_bytes().to_vec();
    // No 8259.
    list.extend(0u32.to_le_bytes());
    for cpu in 0..cpus {
        list.extend(ENTRY);
        list.extend([cpu, cpu]);
        list.extend(ENABLED.to_le_bytes());
    }
    bytes.extend(table(b"APIC", &list));
    bytes
}

fn root_pointer() -> Vec<u8> {
    let mut bytes = b"RSD PTR \0".to_vec();
    bytes.extend(OEM);
    // Revision 2, without a table of 32-bit addresses.
    bytes.extend([2, 0, 0, 0, 0]);
    bytes[8] = checksum(&bytes);
    bytes.extend(36u32.to_le_bytes());
    bytes.extend(XSDT.to_le_bytes());
    bytes.extend([0; 4]);
    bytes[32] = checksum(&bytes);
    bytes
}

fn table(signature: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let mut bytes = signature.to_vec();
    bytes.extend(((HEADER_BYTES + contents.len()) as u32).to_le_bytes());
    bytes.extend([1, 0]);
    bytes.extend(OEM);
    bytes.extend(*b"VMM     ");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(*b"SHTD");
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(contents);
    bytes[9] = checksum(&bytes);
    bytes
}

/// What makes the sum 0.
fn checksum(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0u8, |sum, &byte| sum.wrapping_add(byte))
        .wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_sums_to_zero() {
        let bytes = all(3);
        let [xsdt, madt] = [XSDT, MADT].map(|at| (at - PLACE) as usize);
        for part in [
            &bytes[..20],
            &bytes[..36],
            &bytes[xsdt..xsdt + 44],
            &bytes[madt..],
        ] {
            assert_eq!(checksum(part), 0);
        }
        assert_eq!(bytes.len() - madt, HEADER_BYTES + 8 + 3 * 8);
    }
}
