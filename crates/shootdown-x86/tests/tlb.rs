//! Invalidation against a recorder.

use std::cell::RefCell;

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::tlb::{InvpcidKind, Pcid, PcidPair, Port, TagEntries, UserSide};
use shootdown_x86::{Features, IrqState, Tlb};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Invlpg(usize),
    Invpcid(InvpcidKind),
    WriteCr3(u64),
    WriteCr4(u64),
    IrqSave,
    IrqRestore,
}

/// The root and the tag that the recorder has in CR3.
const ROOT: u64 = 0x1234_5000;
const TAG: u16 = 0x17;
const LOADED: u64 = ROOT | TAG as u64;
/// What the recorder has in CR4: PAE, PGE and PCIDE.
const CR4: u64 = 1 << 5 | PGE | PCIDE;
const PGE: u64 = 1 << 7;
const PCIDE: u64 = 1 << 17;

#[derive(Default, Debug)]
struct Recorder(RefCell<Vec<Op>>);

impl Recorder {
    fn push(&self, op: Op) {
        self.0.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn invlpg(&self, address: usize) {
        self.push(Op::Invlpg(address));
    }
    fn invpcid(&self, kind: InvpcidKind) {
        self.push(Op::Invpcid(kind));
    }
    fn read_cr3(&self) -> u64 {
        LOADED
    }
    unsafe fn write_cr3(&self, value: u64) {
        self.push(Op::WriteCr3(value));
    }
    fn read_cr4(&self) -> u64 {
        CR4
    }
    unsafe fn write_cr4(&self, value: u64) {
        self.push(Op::WriteCr4(value));
    }
    fn irq_save(&self) -> IrqState {
        self.push(Op::IrqSave);
        IrqState::Enabled
    }
    fn irq_restore(&self, before: IrqState) {
        assert_eq!(before, IrqState::Enabled);
        self.push(Op::IrqRestore);
    }
}

fn ops_with(flags: FeatureFlags, act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    let recorder = Recorder::default();
    act(Tlb::with_port(&recorder, &Features::with_flags(flags)));
    recorder.0.into_inner()
}

#[test]
fn pages_are_dropped_at_their_stride() {
    let ops = ops_with(FeatureFlags::empty(), |tlb| {
        tlb.flush_pages(0x40_0000, 0x20_0000, 3)
    });
    let expected = [
        Op::Invlpg(0x40_0000),
        Op::Invlpg(0x60_0000),
        Op::Invlpg(0x80_0000),
    ];
    assert_eq!(ops, expected);
}

#[test]
fn no_pages_drop_nothing() {
    assert_eq!(
        ops_with(FeatureFlags::empty(), |tlb| tlb
            .flush_pages(0x1000, 4096, 0)),
        []
    );
}

#[test]
fn the_last_page_of_the_address_space_does_not_wrap() {
    let last = usize::MAX - 4095;
    let ops = ops_with(FeatureFlags::empty(), |tlb| tlb.flush_pages(last, 4096, 2));
    assert_eq!(ops, [Op::Invlpg(last)]);
}

/// As [`ops_with`], PCIDs on.
fn tagged_ops_with(flags: FeatureFlags, act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    // SAFETY: the recorder takes everything.
    ops_with(flags, |tlb| act(unsafe { tlb.with_pcids() }))
}

fn pcid(number: u16) -> Pcid {
    Pcid::new(number).unwrap()
}

#[test]
fn a_space_is_dropped_by_loading_its_own_root_and_tag() {
    let ops = ops_with(FeatureFlags::all(), |tlb| tlb.flush_non_global());
    assert_eq!(ops, [Op::WriteCr3(LOADED)]);
}

#[test]
fn everything_goes_by_the_best_means_there_is() {
    let all = |flags| ops_with(flags, |tlb| tlb.flush_all());
    assert_eq!(
        all(FeatureFlags::INVPCID | FeatureFlags::PGE),
        [Op::Invpcid(InvpcidKind::All)]
    );
    assert_eq!(
        all(FeatureFlags::PGE),
        [
            Op::IrqSave,
            Op::WriteCr4(CR4 & !PGE),
            Op::WriteCr4(CR4),
            Op::IrqRestore
        ]
    );
    assert_eq!(all(FeatureFlags::empty()), [Op::WriteCr3(LOADED)]);
}

#[test]
fn tags_are_turned_on_and_off_while_none_is_loaded() {
    // SAFETY: the recorder takes everything.
    let start = tagged_ops_with(FeatureFlags::all(), |tlb| unsafe { tlb.start() });
    let stop = tagged_ops_with(FeatureFlags::all(), |tlb| tlb.stop());
    let around = |cr4| {
        [
            Op::IrqSave,
            Op::WriteCr3(ROOT),
            Op::WriteCr4(cr4),
            Op::IrqRestore,
        ]
    };
    assert_eq!(start, around(CR4));
    assert_eq!(stop, around(CR4 & !PCIDE));
    // SAFETY: as above.
    let untagged = ops_with(FeatureFlags::all(), |tlb| unsafe { tlb.start() });
    assert_eq!(untagged, []);
}

#[test]
fn roots_are_loaded_with_their_tag_and_what_becomes_of_it() {
    let load = |entries| {
        move |tlb: Tlb<&Recorder>| {
            // SAFETY: the recorder takes everything.
            unsafe { tlb.load_tagged_root(ROOT, pcid(5), entries) }
        }
    };
    let keep = tagged_ops_with(FeatureFlags::all(), load(TagEntries::Keep));
    assert_eq!(keep, [Op::WriteCr3(1 << 63 | ROOT | 5)]);
    let drop = tagged_ops_with(FeatureFlags::all(), load(TagEntries::Drop));
    assert_eq!(drop, [Op::WriteCr3(ROOT | 5)]);
    let without = ops_with(FeatureFlags::all(), load(TagEntries::Keep));
    assert_eq!(without, [Op::WriteCr3(ROOT)]);
}

#[test]
fn one_tag_goes_by_invpcid_or_what_comes_closest() {
    let ops = |flags, kind| tagged_ops_with(flags, |tlb| tlb.flush_tagged(kind));
    let everything = ops(FeatureFlags::PGE, InvpcidKind::All);
    for kind in [
        InvpcidKind::Page(pcid(5), 0x7000),
        InvpcidKind::Context(pcid(5)),
        InvpcidKind::AllNonGlobal,
        InvpcidKind::All,
    ] {
        assert_eq!(ops(FeatureFlags::INVPCID, kind), [Op::Invpcid(kind)]);
        assert_eq!(ops(FeatureFlags::PGE, kind), everything, "{kind:?}");
    }
    let page = InvpcidKind::Page(pcid(TAG), 0x7000);
    assert_eq!(ops(FeatureFlags::PGE, page), [Op::Invlpg(0x7000)]);
    let context = InvpcidKind::Context(pcid(TAG));
    assert_eq!(ops(FeatureFlags::PGE, context), [Op::WriteCr3(LOADED)]);
}

#[test]
fn tags_that_cannot_be_loaded_need_no_flush() {
    let kind = InvpcidKind::Context(pcid(5));
    let ops = ops_with(FeatureFlags::all(), |tlb| tlb.flush_tagged(kind));
    assert_eq!(ops, []);
}

#[test]
fn the_user_side_of_a_pair_is_flushed_or_owed() {
    let pair = PcidPair::new(pcid(TAG)).unwrap();
    let page = |tlb: Tlb<&Recorder>, side| {
        assert_eq!(tlb.flush_page_of_pair(pair, 0x7000), side);
    };
    let user = InvpcidKind::Page(pair.user(), 0x7000);
    let both = [Op::Invlpg(0x7000), Op::Invpcid(user)];
    let flags = FeatureFlags::all();
    let ops = tagged_ops_with(flags, |tlb| page(tlb, UserSide::Dropped));
    assert_eq!(ops, both);
    let old = FeatureFlags::PGE;
    assert_eq!(
        tagged_ops_with(old, |tlb| page(tlb, UserSide::Owed)),
        both[..1]
    );
    assert_eq!(ops_with(old, |tlb| page(tlb, UserSide::Dropped)), both[..1]);

    let ops = tagged_ops_with(flags, |tlb| {
        assert_eq!(tlb.flush_pair(pair), UserSide::Dropped);
    });
    let user = Op::Invpcid(InvpcidKind::Context(pair.user()));
    assert_eq!(ops, [Op::WriteCr3(LOADED), user]);
}
