//! Bits of registers and of page-table entries.

use shootdown_loongarch::Features;
use shootdown_loongarch::entry::{EMPTY_GLOBAL, Fault};
use shootdown_loongarch::features::has_refill_count;
use shootdown_loongarch::tlb::PageSize;
use shootdown_loongarch::walk::{Levels, Walk};

/// Made up by the manual's table, for a processor with the features of a 3A5000.
const LA464: [u32; 2] = [0x3f2_f2fe, 0x60_c3cf];

#[test]
fn features_are_read_from_their_words() {
    let features = Features::from_words(LA464);
    assert!(features.is_la64() && features.has_page_mapping() && features.has_iocsr());
    assert_eq!(features.virtual_bits(), 48);
    assert!(features.has_walk_instructions() && !features.has_hardware_walk());
}

/// Each question against words in which no other bit is set.
#[test]
fn each_feature_is_a_bit_of_its_own() {
    type Question = fn(&Features) -> bool;
    let questions: [(usize, u32, Question); 6] = [
        (1, 1, Features::is_la64),
        (1, 2, Features::has_page_mapping),
        (1, 3, Features::has_iocsr),
        (1, 12, |features| features.virtual_bits() == 2),
        (2, 21, Features::has_walk_instructions),
        (2, 24, Features::has_hardware_walk),
    ];
    for (word, bit, has) in questions {
        let mut words = [0; 2];
        assert!(!has(&Features::from_words(words)), "{word}.{bit}");
        words[word - 1] = 1 << bit;
        assert!(has(&Features::from_words(words)), "{word}.{bit}");
    }
}

#[test]
fn refills_are_counted_where_there_are_eight_registers() {
    let has = [7, 8, 9, 0x10, 0x18].map(has_refill_count);
    assert_eq!(has, [false, true, true, false, true]);
}

#[test]
fn walks_are_told_as_linux_tells_them() {
    let walk = Walk::new(PageSize::SIZE_4K, Levels::Four).unwrap();
    assert_eq!(
        walk.pwcl(),
        12 | 9 << 5 | 21 << 10 | 9 << 15 | 30 << 20 | 9 << 25
    );
    assert_eq!(walk.pwch(false), 39 | 9 << 6);
    assert_eq!(walk.address_bits(), 48);
    let walk = Walk::new(PageSize::SIZE_16K, Levels::Three).unwrap();
    assert_eq!(walk.pwcl(), 14 | 11 << 5 | 25 << 10 | 11 << 15);
    assert_eq!(walk.pwch(true), 36 | 11 << 6 | 1 << 24);
    assert_eq!(walk.address_bits(), 47);
    assert_eq!(walk.base(), PageSize::SIZE_16K);
    // Dir2 would begin at bit 36.
    assert_eq!(Walk::new(PageSize::SIZE_16K, Levels::Four), None);
    let large = PageSize::from_shift(20).unwrap();
    assert_eq!(Walk::new(large, Levels::Three), None);
}

const V: u64 = 1;
const D: u64 = 2;
const USER: u64 = 3 << 2;
const NR: u64 = 1 << 61;
const NX: u64 = 1 << 62;
const RPLV: u64 = 1 << 63;

#[test]
fn a_fault_is_spurious_if_the_entry_allows_it_now() {
    let all = [Fault::Load, Fault::Store, Fault::Fetch, Fault::Privilege];
    let cases = [
        (V | D | USER, 3, [true; 4]),
        (V | D | USER, 0, [true; 4]),
        (D | USER, 3, [false; 4]),
        (V | D, 3, [false; 4]),
        (V | D, 0, [true; 4]),
        (V | USER, 3, [true, false, true, true]),
        (V | D | USER | NR, 3, [false, true, true, true]),
        (V | D | USER | NX, 3, [true, true, false, true]),
        (V | D | USER | RPLV, 3, [true; 4]),
        (V | D | USER | RPLV, 0, [false; 4]),
        (EMPTY_GLOBAL, 0, [false; 4]),
    ];
    for (entry, plv, expected) in cases {
        let is_spurious = all.map(|fault| fault.is_spurious(entry, plv));
        assert_eq!(is_spurious, expected, "{entry:#x} at {plv}");
    }
}

#[test]
fn faults_by_their_numbers() {
    let kinds = [
        (1, Some(Fault::Load)),
        (2, Some(Fault::Store)),
        (3, Some(Fault::Fetch)),
        (4, Some(Fault::Store)),
        (5, Some(Fault::Load)),
        (6, Some(Fault::Fetch)),
        (7, Some(Fault::Privilege)),
        (0, None),
        (8, None),
    ];
    for (number, kind) in kinds {
        assert_eq!(Fault::of_estat(number << 16 | 1 << 12), kind, "{number}");
    }
}
