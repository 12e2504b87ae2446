//! Exact sequences, against a recorder.

use std::cell::{Cell, RefCell};

use shootdown_arm64::tlb::{
    CEILING_OPERATIONS, Depth, Dsb, Granule, Pages, Port, Reach, TagEntries, Tlbi,
};
use shootdown_arm64::{Asid, AsidBits, Errata, Features, IdRegisters, Tlb};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Dsb(Dsb),
    Isb,
    /// With the register.
    Tlbi(Reach, Tlbi, u64),
    Ttbr0(u64),
    Tcr(u64),
}

const FULL: Op = Op::Dsb(Dsb::Full);
const OWN: Op = Op::Dsb(Dsb::Own);
const EMPTY: u64 = 0x4000_0000;
const ROOT: u64 = 0x8_7654_3000;
const TAG: Asid = Asid::new(0x1234);
const TAG_BITS: u64 = 0x1234 << 48;
const OTHER: Asid = Asid::new(7);
const TCR: u64 = 1 << 22 | 0x19;
/// Cortex-A72, which needs no repeat.
const A72: u64 = 0x410f_d083;

#[derive(Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
    ttbr0: Cell<u64>,
    tcr: Cell<u64>,
}

impl Recorder {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn dsb(&self, kind: Dsb) {
        self.push(Op::Dsb(kind));
    }
    fn isb(&self) {
        self.push(Op::Isb);
    }
    unsafe fn tlbi(&self, reach: Reach, operation: Tlbi) {
        self.push(Op::Tlbi(reach, operation, operation.operand()));
    }
    fn read_ttbr0(&self) -> u64 {
        self.ttbr0.get()
    }
    unsafe fn write_ttbr0(&self, value: u64) {
        self.ttbr0.set(value);
        self.push(Op::Ttbr0(value));
    }
    fn read_tcr(&self) -> u64 {
        self.tcr.get()
    }
    unsafe fn write_tcr(&self, value: u64) {
        self.tcr.set(value);
        self.push(Op::Tcr(value));
    }
}

fn ops_on(registers: IdRegisters, granule: Granule, act: impl FnOnce(&Tlb<&Recorder>)) -> Vec<Op> {
    let recorder = Recorder {
        ops: RefCell::default(),
        ttbr0: Cell::new(ROOT | TAG_BITS),
        tcr: Cell::new(TCR),
    };
    let features = Features::of(registers);
    // SAFETY: the recorder takes everything.
    act(&unsafe { Tlb::new(&recorder, &features, Errata::of(&features), granule, EMPTY) });
    recorder.ops.into_inner()
}

fn registers(ranges: bool) -> IdRegisters {
    IdRegisters {
        midr: A72,
        isar0: if ranges { 2 << 56 } else { 1 << 56 },
        // Pages of all three sizes.
        mmfr0: 2 << 4 | 1 << 20,
        ..IdRegisters::default()
    }
}

fn ops(act: impl FnOnce(&Tlb<&Recorder>)) -> Vec<Op> {
    ops_on(registers(false), Granule::Kib4, act)
}

fn own(operation: Tlbi, operand: u64) -> [Op; 4] {
    [FULL, Op::Tlbi(Reach::Own, operation, operand), OWN, Op::Isb]
}

fn pages(start: usize, stride_bytes: usize, count: usize) -> Pages {
    Pages {
        start,
        stride_bytes,
        count,
    }
}

#[test]
fn a_page_goes_under_every_tag_and_its_tables_if_asked() {
    let address = 0xffff_8000_0040_3000;
    let operand = 0xff8_0000_0403;
    for depth in [Depth::Leaf, Depth::Tables] {
        let got = ops(|tlb| tlb.flush_pages(pages(address, 4096, 1), depth));
        assert_eq!(got, own(Tlbi::Page(None, address, depth), operand));
    }
}

#[test]
fn pages_are_dropped_at_their_stride() {
    let got = ops(|tlb| tlb.flush_pages(pages(0x40_0000, 0x20_0000, 3), Depth::Leaf));
    let page = |address: usize| {
        let operation = Tlbi::Page(None, address, Depth::Leaf);
        Op::Tlbi(Reach::Own, operation, address as u64 >> 12)
    };
    let pages = [0x40_0000, 0x60_0000, 0x80_0000].map(page);
    assert_eq!(got, [&[FULL], &pages[..], &[OWN, Op::Isb]].concat());
}

#[test]
fn tables_below_a_large_page_go_with_everything() {
    let got = ops(|tlb| tlb.flush_pages(pages(0x40_0000, 0x20_0000, 1), Depth::Tables));
    assert_eq!(got, own(Tlbi::All, 0));
}

#[test]
fn the_ceiling_is_where_it_is_said_to_be() {
    let count = |pages: usize| {
        let range = self::pages(0x1000, 4096, pages);
        let got = ops(|tlb| tlb.flush_pages(range, Depth::Leaf));
        (got.len(), got[1])
    };
    let (len, _) = count(CEILING_OPERATIONS);
    assert_eq!(len, CEILING_OPERATIONS + 3);
    assert_eq!(
        count(CEILING_OPERATIONS + 1),
        (4, Op::Tlbi(Reach::Own, Tlbi::All, 0))
    );
    // A range of them has more pages, and fewer instructions.
    let far = 600 * (32 << 16);
    let range = self::pages(0x1000, 4096, far);
    let got = ops_on(registers(true), Granule::Kib4, |tlb| {
        tlb.flush_pages(range, Depth::Leaf)
    });
    assert_eq!(got, own(Tlbi::All, 0));
}

#[test]
fn the_end_of_the_address_space_does_not_wrap() {
    let last = usize::MAX - 4095;
    for ranges in [false, true] {
        let got = ops_on(registers(ranges), Granule::Kib4, |tlb| {
            tlb.flush_pages(pages(last, 4096, 2), Depth::Leaf);
        });
        let page = Tlbi::Page(None, last, Depth::Leaf);
        assert_eq!(got, own(page, 0xfff_ffff_ffff));
        let none = ops(|tlb| tlb.flush_pages(pages(last, 4096, 0), Depth::Leaf));
        assert_eq!(none, [FULL, OWN, Op::Isb]);
    }
}

/// What range instructions named: start and pages; and single pages.
fn named(granule: Granule, start: usize, count: usize) -> Vec<(usize, usize, u64)> {
    let range = pages(start, granule.bytes(), count);
    let got = ops_on(registers(true), granule, |tlb| {
        tlb.flush_pages(range, Depth::Leaf)
    });
    let named = got.into_iter().filter_map(|op| match op {
        Op::Tlbi(_, Tlbi::Range(None, range, Depth::Leaf), bits) => {
            Some((range.start(), range.pages(), bits))
        }
        Op::Tlbi(_, Tlbi::Page(None, address, Depth::Leaf), bits) => Some((address, 1, bits)),
        _ => None,
    });
    named.collect()
}

#[test]
fn ranges_cover_each_page_once_and_no_other() {
    for granule in [Granule::Kib4, Granule::Kib16, Granule::Kib64] {
        for count in (1..3000).chain([0x1_0000, 0x1f_ffff, 0x20_0000, 0x20_0001, 0x50_1234]) {
            let start = 0x1234 * granule.bytes();
            let named = named(granule, start, count);
            let mut next = start;
            for &(at, pages, _) in &named {
                assert_eq!(at, next, "{count}");
                next += pages * granule.bytes();
            }
            assert_eq!(next, start + count * granule.bytes(), "{count}");
            assert!(named.len() <= 5 + count / 0x20_0000, "{count}: {named:x?}");
        }
    }
}

/// By hand from DDI 0487, C5.5, "TLBI RVAALE1".
#[test]
fn the_fields_of_a_range() {
    // 2 pages: SCALE 0, NUM 0, TG 1.
    assert_eq!(
        named(Granule::Kib4, 0x40_0000, 2),
        [(0x40_0000, 2, 0x4000_0000_0000 | 0x400)]
    );
    // 4 pages: NUM 1. 64 pages: SCALE 0, NUM 31 would do, and SCALE 1, NUM 0 is what is taken.
    let four = 0x4000_0000_0000 | 1 << 39 | 0x400;
    assert_eq!(named(Granule::Kib4, 0x40_0000, 4), [(0x40_0000, 4, four)]);
    let sixty_four = 0x4000_0000_0000 | 1 << 44 | 0x400;
    assert_eq!(
        named(Granule::Kib4, 0x40_0000, 64),
        [(0x40_0000, 64, sixty_four)]
    );
    // 2 pages of 16 KiB and of 64 KiB, in units of these, and TG 2 and 3.
    assert_eq!(
        named(Granule::Kib16, 0x40_0000, 2)[0].2,
        0x8000_0000_0000 | 0x100
    );
    assert_eq!(
        named(Granule::Kib64, 0x40_0000, 2)[0].2,
        0xc000_0000_0000 | 0x40
    );
    // The kernel's half: 37 bits.
    let kernel = named(Granule::Kib4, 0xffff_8000_0000_0000, 2)[0].2;
    assert_eq!(kernel, 0x4000_0000_0000 | 0x18_0000_0000);
}

#[test]
fn ranges_are_left_out_where_they_are_missing_or_not_wanted_or_of_larger_pages() {
    let range = pages(0x40_0000, 4096, 2);
    let has_range = |ops: Vec<Op>| {
        ops.iter()
            .any(|op| matches!(op, Op::Tlbi(_, Tlbi::Range(..), _)))
    };
    let with = |flag, range: Pages, without: bool| {
        has_range(ops_on(registers(flag), Granule::Kib4, |tlb| {
            let tlb = if without { tlb.without_ranges() } else { *tlb };
            tlb.flush_pages(range, Depth::Leaf);
        }))
    };
    assert!(with(true, range, false));
    assert!(!with(false, range, false));
    assert!(!with(true, range, true));
    assert!(!with(true, pages(0x40_0000, 2 << 20, 2), false));
}

#[test]
fn single_pages_have_no_bits_below_the_granule() {
    let got = ops_on(registers(false), Granule::Kib64, |tlb| {
        tlb.flush_pages(pages(0x12_3456, 65536, 1), Depth::Leaf);
    });
    assert_eq!(got, own(Tlbi::Page(None, 0x12_0000, Depth::Leaf), 0x120));
}

#[test]
fn a_space_is_the_loaded_tag_and_everything_is_everything() {
    assert_eq!(ops(|tlb| tlb.flush_space()), own(Tlbi::Tag(TAG), TAG_BITS));
    assert_eq!(
        ops(|tlb| tlb.flush_tag(OTHER)),
        own(Tlbi::Tag(OTHER), 7 << 48)
    );
    assert_eq!(ops(|tlb| tlb.flush_all()), own(Tlbi::All, 0));
    assert_eq!(ops(|tlb| tlb.publish()), [Op::Dsb(Dsb::Stores), Op::Isb]);
}

#[test]
fn roots_are_loaded_in_order() {
    let new = 0x9_0000_0000;
    let load = |tag, entries| {
        // SAFETY: recorded.
        ops(|tlb| unsafe { tlb.load_tagged_root(new, tag, entries) })
    };
    let kept = [FULL, Op::Ttbr0(new | 7 << 48), Op::Isb];
    assert_eq!(load(OTHER, TagEntries::Keep), kept);
    let other = Op::Tlbi(Reach::Own, Tlbi::Tag(OTHER), 7 << 48);
    let dropped = [FULL, other, OWN, Op::Ttbr0(new | 7 << 48), Op::Isb];
    assert_eq!(load(OTHER, TagEntries::Drop), dropped);
    let loaded = [
        FULL,
        Op::Ttbr0(EMPTY | TAG_BITS),
        Op::Isb,
        Op::Tlbi(Reach::Own, Tlbi::Tag(TAG), TAG_BITS),
        OWN,
        Op::Ttbr0(new | TAG_BITS),
        Op::Isb,
    ];
    assert_eq!(load(TAG, TagEntries::Drop), loaded);
    // SAFETY: recorded.
    let untagged = ops(|tlb| unsafe { tlb.load_root(new) });
    let tag = Op::Tlbi(Reach::Own, Tlbi::Tag(Asid::UNTAGGED), 0);
    assert_eq!(untagged, [FULL, tag, OWN, Op::Ttbr0(new), Op::Isb]);
}

#[test]
fn a_cpu_is_started_with_its_tags_in_ttbr0() {
    for (asid_bits, field, bits) in [(0, 0, AsidBits::Eight), (2, 1 << 36, AsidBits::Sixteen)] {
        let registers = IdRegisters {
            mmfr0: asid_bits << 4,
            ..registers(false)
        };
        let got = ops_on(registers, Granule::Kib4, |tlb| {
            // SAFETY: recorded.
            assert_eq!(unsafe { tlb.start() }, bits);
        });
        let before = [Op::Tcr(0x19 | field), Op::Ttbr0(EMPTY), Op::Isb];
        assert_eq!(got, [&before[..], &own(Tlbi::All, 0)].concat());
    }
}

#[test]
fn root_and_tag_change_in_separate_writes_on_falkor() {
    let (new, falkor) = (0x9_0000_0000, 0x510f_8000);
    let load = |tag, entries| {
        let registers = IdRegisters {
            midr: falkor,
            ..registers(false)
        };
        ops_on(registers, Granule::Kib4, |tlb| {
            // SAFETY: recorded.
            unsafe { tlb.load_tagged_root(new, tag, entries) }
        })
    };
    for (tag, bits) in [(TAG, TAG_BITS), (OTHER, 7 << 48)] {
        let flush = [Op::Tlbi(Reach::Own, Tlbi::Tag(tag), bits), OWN];
        let before = [FULL, Op::Ttbr0(EMPTY | TAG_BITS), Op::Isb];
        let after = [EMPTY, new].map(|root| [Op::Ttbr0(root | bits), Op::Isb]);
        let after = after.concat();
        assert_eq!(load(tag, TagEntries::Keep), [&before[..], &after].concat());
        assert_eq!(
            load(tag, TagEntries::Drop),
            [&before[..], &flush, &after].concat()
        );
    }
}

#[test]
#[should_panic(expected = "no such granule")]
fn a_granule_that_the_processor_lacks_is_refused() {
    ops_on(IdRegisters::default(), Granule::Kib16, |_| ());
}

const INNER: fn(Tlbi, u64) -> Op = |operation, operand| Op::Tlbi(Reach::Inner, operation, operand);

#[test]
fn broadcasts_go_by_address_under_every_tag_or_by_a_global_tag() {
    let ranges = [pages(0x40_0000, 4096, 1), pages(0x60_0000, 4096, 1)];
    let broadcast = |tag, depth| {
        ops(|tlb| {
            let broadcast = tlb.broadcast().unwrap();
            broadcast.begin(tag, ranges, depth);
            broadcast.finish();
        })
    };
    let page = |tag, address: usize, depth, bits| {
        INNER(Tlbi::Page(tag, address, depth), bits | address as u64 >> 12)
    };
    for (tag, bits) in [(None, 0), (Some(OTHER), 7 << 48)] {
        for depth in [Depth::Leaf, Depth::Tables] {
            let pages = [0x40_0000, 0x60_0000].map(|address| page(tag, address, depth, bits));
            assert_eq!(
                broadcast(tag, depth),
                [FULL, pages[0], pages[1], FULL, Op::Isb]
            );
        }
    }
}

#[test]
fn broadcasts_of_a_tag_and_of_everything() {
    let begun = |act: fn(&shootdown_arm64::tlb::Broadcast<'_, &Recorder>)| {
        ops(|tlb| act(&tlb.broadcast().unwrap()))
    };
    let tag = INNER(Tlbi::Tag(OTHER), 7 << 48);
    assert_eq!(begun(|b| b.begin_tag(OTHER)), [FULL, tag]);
    assert_eq!(begun(|b| b.begin_all()), [FULL, INNER(Tlbi::All, 0)]);
    // What is too much, or has tables of unknown number.
    let wide = |b: &shootdown_arm64::tlb::Broadcast<'_, &Recorder>, tag| {
        b.begin(tag, [pages(0x4000_0000, 1 << 30, 1)], Depth::Tables);
    };
    let got = ops(|tlb| wide(&tlb.broadcast().unwrap(), None));
    assert_eq!(got, [FULL, INNER(Tlbi::All, 0)]);
    let got = ops(|tlb| wide(&tlb.broadcast().unwrap(), Some(OTHER)));
    assert_eq!(got, [FULL, tag]);
}

#[test]
fn a_broadcast_is_repeated_unless_the_core_is_known_not_to_need_it() {
    let finish = |midr| {
        let registers = IdRegisters {
            midr,
            ..registers(false)
        };
        ops_on(registers, Granule::Kib4, |tlb| {
            tlb.broadcast().unwrap().finish();
        })
    };
    assert_eq!(finish(A72), [FULL, Op::Isb]);
    let nothing = Tlbi::Page(Some(Asid::UNTAGGED), 0, Depth::Leaf);
    let repeated = [FULL, INNER(nothing, 0), FULL, Op::Isb];
    // Neoverse V2, and a core that nobody knows.
    assert_eq!(finish(0x410f_d4f0), repeated);
    assert_eq!(finish(0), repeated);
}

#[test]
fn no_broadcast_on_c1_pro_with_sme_nor_on_early_thunderx() {
    let has = |midr, sme: u64| {
        let mut has = false;
        let registers = IdRegisters {
            midr,
            pfr1: sme << 24,
            ..registers(false)
        };
        ops_on(registers, Granule::Kib4, |tlb| {
            has = tlb.broadcast().is_some()
        });
        has
    };
    assert!(!has(0x410f_d8b0, 1));
    assert!(has(0x410f_d8b0, 0));
    assert!(has(0x410f_d8c0, 1));
    assert!(!has(0x431f_0a11, 0));
}
