//! Which page faults of the kernel are tried again, and how often.

use shootdown_kernel_tests::addr::PhysAddr;
use shootdown_kernel_tests::arch::spurious::{Fault, MOST_RETRIES, Retries};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const NX: u64 = 1 << 63;
/// Bits that say nothing about rights: accessed, dirty, global, not cached, for the system's use.
const OTHERS: u64 = 1 << 5 | 1 << 6 | 1 << 8 | 1 << 4 | 1 << 9 | 1 << 58;
/// A leaf of the kernel's, and a table.
const DATA: u64 = PRESENT | WRITE | NX | OTHERS;
const CODE: u64 = PRESENT | OTHERS;
const TABLE: u64 = PRESENT | WRITE | OTHERS & !LARGE;

/// Error codes.
const WRITES: u64 = 1 << 1;
const FETCHES: u64 = 1 << 4;

/// In the kernel's half; each level has another index.
const ADDRESS: usize = 0xffff_8000_0000_0000 | 3 << 39 | 5 << 30 | 7 << 21 | 9 << 12 | 0x123;
const INDEXES: [usize; 4] = [256 + 3, 5, 7, 9];
const ROOT: u64 = 0x10_0000;

/// The tables on the way to an address, whose entries these are, from the top on; what is behind the last is not looked at.
fn is_spurious_at(address: usize, indexes: &[usize; 4], entries: &[u64], code: u64) -> bool {
    let fault = Fault { address, code };
    fault.is_spurious(PhysAddr::new(ROOT), |table, index| {
        let level = (table.as_u64() - ROOT) as usize >> 12;
        assert_eq!(index, indexes[level], "level {level}");
        // The next table is the next frame.
        entries[level] | (ROOT + (level as u64 + 1) * 0x1000)
    })
}

fn is_spurious(entries: &[u64], code: u64) -> bool {
    is_spurious_at(ADDRESS, &INDEXES, entries, code)
}

const PAGE: [u64; 4] = [TABLE, TABLE, TABLE, DATA];

/// The same entries, but for those bits at that level.
fn without(mut entries: [u64; 4], level: usize, bits: u64) -> [u64; 4] {
    entries[level] &= !bits;
    entries
}

fn with(mut entries: [u64; 4], level: usize, bits: u64) -> [u64; 4] {
    entries[level] |= bits;
    entries
}

/// Whether the translation that was used was not there or had no right: the code says which.
#[test]
fn an_access_that_the_entries_permit_is_tried_again() {
    const PROGRAM: [u64; 4] = [TABLE, TABLE, TABLE, CODE];
    for present in [0, 1] {
        assert!(is_spurious(&PAGE, present));
        assert!(is_spurious(&PAGE, present | WRITES));
        assert!(!is_spurious(&PAGE, present | FETCHES));
        assert!(is_spurious(&PROGRAM, present));
        assert!(!is_spurious(&PROGRAM, present | WRITES));
        assert!(is_spurious(&PROGRAM, present | FETCHES));
    }
}

#[test]
fn each_level_counts() {
    for level in 0..4 {
        for code in [0, 1, WRITES, 1 | WRITES] {
            assert!(!is_spurious(&without(PAGE, level, PRESENT), code));
        }
        let read_only = without(PAGE, level, WRITE);
        assert!(is_spurious(&read_only, 1) && !is_spurious(&read_only, 1 | WRITES));
        let program = with(without(PAGE, 3, NX), level, NX);
        assert!(is_spurious(&program, 1) && !is_spurious(&program, 1 | FETCHES));
    }
}

/// Pages of 2 MiB and 1 GiB end the walk; an entry of the top table that says so is none that a processor takes.
#[test]
fn large_pages_have_no_table_below() {
    for level in 1..3 {
        let mut entries = PAGE;
        entries[level] = DATA | LARGE;
        assert!(is_spurious(&entries[..=level], 1 | WRITES));
        let read_only = without(entries, level, WRITE);
        assert!(!is_spurious(&read_only[..=level], 1 | WRITES));
    }
    assert!(!is_spurious(&with(PAGE, 0, LARGE), 1 | WRITES));
    // There the bit is another one.
    assert!(is_spurious(&with(PAGE, 3, LARGE), 1 | WRITES));
}

/// SMAP and SMEP refuse a page of user mode as often as it is tried: one with the right at each level.
#[test]
fn pages_of_user_mode_are_not_the_kernels() {
    let mut entries = PAGE.map(|entry| entry | USER);
    assert!(!is_spurious(&entries, 1 | WRITES));
    for level in 0..4 {
        assert!(is_spurious(&without(entries, level, USER), 1 | WRITES));
    }
    entries[2] |= LARGE;
    assert!(!is_spurious(&entries[..3], 1 | WRITES));
}

/// Addresses of user mode are handled elsewhere, whatever is there.
#[test]
fn user_addresses_are_left_alone() {
    for address in [0, 0x1000, 0x4000_0000, 0x7fff_ffff_ffff] {
        let indexes = [39, 30, 21, 12].map(|shift| address >> shift & 511);
        for code in [0, 1, 1 | WRITES, 1 | FETCHES] {
            assert!(!is_spurious_at(address, &indexes, &PAGE, code));
        }
    }
    let last = [511; 4];
    assert!(is_spurious_at(usize::MAX, &last, &PAGE, 1 | WRITES));
    let first = [256, 0, 0, 0];
    assert!(is_spurious_at(0xffff_8000_0000_0000, &first, &PAGE, 1));
}

/// By user mode, a reserved bit, a protection key, a shadow stack, an enclave: rights have nothing to do with it.
#[test]
fn other_reasons_are_none_of_rights() {
    for bit in (0..64).filter(|bit| ![0, 1, 4].contains(bit)) {
        for code in [0, 1, 1 | WRITES] {
            assert!(!is_spurious(&PAGE, code | 1 << bit), "bit {bit}");
        }
    }
}

/// A CPU that is refused what the walk permits does not hang.
#[test]
fn retries_in_a_row_have_an_end() {
    let retries = Retries::none();
    let most = u64::from(MOST_RETRIES);
    for _ in 0..MOST_RETRIES {
        assert!(retries.allow(ADDRESS, 7));
    }
    for _ in 0..3 {
        assert!(!retries.allow(ADDRESS ^ 0x8, 7), "the same page");
    }
    assert_eq!(retries.total(), most);
    // At the next tick, and at another page, it begins anew.
    assert!(retries.allow(ADDRESS, 8) && retries.allow(ADDRESS ^ 0x1000, 8));
    for _ in 1..MOST_RETRIES {
        assert!(retries.allow(ADDRESS ^ 0x1000, 8));
    }
    assert!(!retries.allow(ADDRESS ^ 0x1000, 8));
    assert_eq!(retries.total(), 2 * most + 1);
}
