//! Bits of registers and of page-table entries.

use shootdown_loongarch::Features;
use shootdown_loongarch::entry::{EMPTY_GLOBAL, Fault, is_global_pair};
use shootdown_loongarch::features::TlbShape;
use shootdown_loongarch::tlb::PageSize;
use shootdown_loongarch::walk::{Levels, Walk};

/// Made up by the manual's table, for a processor with the features of a 3A5000.
const LA464: [u32; 4] = [0x14_c010, 0x3f2_f2fe, 0x60_c3cf, 0x0cff];

#[test]
fn features_are_read_from_their_words() {
    let features = Features::from_words(LA464);
    assert_eq!(features.identity(), 0x14_c010);
    assert!(features.is_la64() && features.has_page_mapping() && features.has_iocsr());
    assert_eq!(
        (features.physical_bits(), features.virtual_bits()),
        (48, 48)
    );
    assert!(features.has_no_read() && features.has_no_execute());
    assert!(features.has_huge_pages() && features.halves_huge_pages());
    assert!(features.has_walk_instructions() && !features.has_hardware_walk());
    assert!(features.keeps_fetch_tlb() && features.keeps_fetch_cache());
    assert_eq!(features.walk_levels(), 4);
    assert!(!features.has_weaker_barriers() && !features.has_guests());
}

/// Each question against words in which no other bit is set.
#[test]
fn each_feature_is_a_bit_of_its_own() {
    type Question = fn(&Features) -> bool;
    let questions: [(usize, u32, Question); 14] = [
        (1, 1, Features::is_la64),
        (1, 2, Features::has_page_mapping),
        (1, 3, Features::has_iocsr),
        (1, 21, Features::has_no_read),
        (1, 22, Features::has_no_execute),
        (1, 24, Features::has_huge_pages),
        (2, 10, Features::has_guests),
        (2, 21, Features::has_walk_instructions),
        (2, 24, Features::has_hardware_walk),
        (3, 6, Features::keeps_fetch_tlb),
        (3, 7, Features::keeps_fetch_cache),
        (3, 11, Features::halves_huge_pages),
        (3, 17, Features::has_weaker_barriers),
        (3, 8, |features| features.walk_levels() == 1),
    ];
    for (word, bit, has) in questions {
        let mut words = [0; 4];
        assert!(!has(&Features::from_words(words)), "{word}.{bit}");
        words[word] = 1 << bit;
        assert!(has(&Features::from_words(words)), "{word}.{bit}");
    }
}

#[test]
fn cpus_have_in_common_the_smaller_numbers() {
    let mut other = LA464;
    // 40 bits of physical addresses; 3 levels; no IOCSRs; a walker.
    other[1] = LA464[1] & !0xff8 | 39 << 4;
    other[2] |= 1 << 24;
    other[3] = LA464[3] & !0x700 | 3 << 8;
    for (one, two) in [(LA464, other), (other, LA464)] {
        let common = Features::from_words(one).common(&Features::from_words(two));
        assert_eq!((common.physical_bits(), common.virtual_bits()), (40, 48));
        assert_eq!(common.walk_levels(), 3);
        assert!(common.is_la64() && !common.has_iocsr() && !common.has_hardware_walk());
    }
}

#[test]
fn the_tlb_is_as_large_as_the_register_says() {
    let shape = TlbShape::of_prcfg3(2 | 63 << 4 | 7 << 12 | 8 << 20).unwrap();
    let sizes = (shape.mtlb_entries, shape.stlb_ways, shape.stlb_sets);
    assert_eq!(sizes, (64, 8, 256));
    let shape = TlbShape::of_prcfg3(1 | 31 << 4).unwrap();
    assert_eq!((shape.mtlb_entries, shape.stlb_ways), (32, 0));
    assert_eq!(TlbShape::of_prcfg3(0).unwrap().mtlb_entries, 0);
    assert_eq!(TlbShape::of_prcfg3(3), None);
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

#[test]
fn a_pair_is_global_if_both_are() {
    let page = V | EMPTY_GLOBAL;
    assert!(is_global_pair(page, EMPTY_GLOBAL) && is_global_pair(EMPTY_GLOBAL, page));
    assert!(!is_global_pair(page, 0) && !is_global_pair(0, page));
}
