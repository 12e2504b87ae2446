//! Invalidation against a recorder.

use std::cell::{Cell, RefCell};

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::tlb::{Depth, InvpcidKind, Pcid, PcidPair, Port, TagEntries, UserSide};
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
/// Set where a test says so: addresses have 57 bits.
const LA57: u64 = 1 << 12;

/// CR3 is loaded with itself.
const RELOAD: [Op; 3] = [Op::IrqSave, Op::WriteCr3(LOADED), Op::IrqRestore];

#[derive(Default, Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
    is_wide: Cell<bool>,
    are_irqs_off: Cell<bool>,
}

impl Recorder {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn invlpg(&self, address: usize) {
        self.push(Op::Invlpg(address));
    }
    unsafe fn invpcid(&self, kind: InvpcidKind) {
        self.push(Op::Invpcid(kind));
    }
    fn read_cr3(&self) -> u64 {
        LOADED
    }
    unsafe fn write_cr3(&self, value: u64) {
        self.push(Op::WriteCr3(value));
    }
    fn read_cr4(&self) -> u64 {
        CR4 | if self.is_wide.get() { LA57 } else { 0 }
    }
    unsafe fn write_cr4(&self, value: u64) {
        self.push(Op::WriteCr4(value));
    }
    // Only what changes something is recorded.
    fn irq_save(&self) -> IrqState {
        if self.are_irqs_off.replace(true) {
            return IrqState::Disabled;
        }
        self.push(Op::IrqSave);
        IrqState::Enabled
    }
    unsafe fn irq_restore(&self, before: IrqState) {
        if before.is_enabled() {
            self.are_irqs_off.set(false);
            self.push(Op::IrqRestore);
        }
    }
}

fn ops_with(flags: FeatureFlags, act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    let recorder = Recorder::default();
    // SAFETY: the recorder takes everything.
    act(unsafe { Tlb::with_port(&recorder, &Features::with_flags(flags)) });
    assert!(!recorder.are_irqs_off.get(), "interrupts were left off");
    recorder.ops.into_inner()
}

#[test]
fn pages_are_dropped_at_their_stride() {
    let ops = ops_with(FeatureFlags::empty(), |tlb| {
        tlb.flush_pages(0x40_0000, 0x20_0000, 3, Depth::Tables)
    });
    assert_eq!(ops, [0x40_0000, 0x60_0000, 0x80_0000].map(Op::Invlpg));
}

#[test]
fn long_ranges_are_dropped_to_their_end() {
    const PAGES: usize = 5000;
    let ops = ops_with(FeatureFlags::empty(), |tlb| {
        tlb.flush_pages(0x1000, 4096, PAGES, Depth::Leaf)
    });
    assert_eq!(ops.len(), PAGES);
    assert_eq!(ops[PAGES - 1], Op::Invlpg(PAGES * 4096));
}

#[test]
fn no_pages_drop_nothing() {
    let ops = ops_with(FeatureFlags::empty(), |tlb| {
        tlb.flush_pages(0x1000, 4096, 0, Depth::Leaf)
    });
    assert_eq!(ops, []);
}

#[test]
fn the_last_page_of_the_address_space_does_not_wrap() {
    let last = usize::MAX - 4095;
    let flush = |tlb: Tlb<&Recorder>, depth| tlb.flush_pages(last, 4096, 2, depth);
    let ops = ops_with(FeatureFlags::all(), |tlb| flush(tlb, Depth::Leaf));
    assert_eq!(ops, [Op::Invlpg(last)]);
    let ops = ops_with(FeatureFlags::all(), |tlb| flush(tlb, Depth::Tables));
    assert_eq!(ops, [&[Op::Invlpg(last)], &RELOAD[..]].concat());
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
    assert_eq!(ops, RELOAD);
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
    assert_eq!(all(FeatureFlags::empty()), RELOAD);
}

#[test]
fn tags_are_turned_on_and_off_while_none_is_loaded() {
    // SAFETY: the recorder takes everything.
    let start = tagged_ops_with(FeatureFlags::all(), |tlb| unsafe { tlb.start() });
    // SAFETY: as above.
    let stop = tagged_ops_with(FeatureFlags::all(), |tlb| unsafe { tlb.stop() });
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
    let by_invlpg = [Op::IrqSave, Op::Invlpg(0x7000), Op::IrqRestore];
    assert_eq!(ops(FeatureFlags::PGE, page), by_invlpg);
    let context = InvpcidKind::Context(pcid(TAG));
    assert_eq!(ops(FeatureFlags::PGE, context), RELOAD);
}

/// INVPCID of a page is asked for on a processor with addresses of this width.
fn is_given_to_invpcid(address: usize, is_wide: bool) -> bool {
    let recorder = Recorder::default();
    recorder.is_wide.set(is_wide);
    let features = Features::with_flags(FeatureFlags::all());
    // SAFETY: the recorder takes everything.
    let tlb = unsafe { Tlb::with_port(&recorder, &features) };
    // SAFETY: as above.
    let tlb = unsafe { tlb.with_pcids() };
    let kind = InvpcidKind::Page(pcid(5), address);
    tlb.flush_tagged(kind);
    let ops = recorder.ops.into_inner();
    assert!(ops.is_empty() || ops == [Op::Invpcid(kind)]);
    !ops.is_empty()
}

#[test]
fn invpcid_gets_canonical_addresses_only() {
    // The last and the first of each kind: 48 bits, 57 bits, none.
    for (address, narrow, wide) in [
        (0x0000_7fff_ffff_ffff, true, true),
        (0x0000_8000_0000_0000, false, true),
        (0x00ff_ffff_ffff_ffff, false, true),
        (0x0100_0000_0000_0000, false, false),
        (0xfeff_ffff_ffff_ffff, false, false),
        (0xff00_0000_0000_0000, false, true),
        (0xffff_7fff_ffff_ffff, false, true),
        (0xffff_8000_0000_0000, true, true),
    ] {
        assert_eq!(is_given_to_invpcid(address, false), narrow, "{address:#x}");
        assert_eq!(is_given_to_invpcid(address, true), wide, "{address:#x}");
    }
}

#[test]
#[should_panic(expected = "drops nothing: PCIDs are off")]
fn a_flush_of_a_tag_that_cannot_be_loaded_is_a_mistake() {
    let kind = InvpcidKind::Context(pcid(5));
    ops_with(FeatureFlags::all(), |tlb| tlb.flush_tagged(kind));
}

#[test]
fn the_user_side_of_a_pair_is_flushed_or_owed() {
    let pair = PcidPair::new(pcid(TAG)).unwrap();
    let last = usize::MAX - 4095;
    let flush = |depth, expected| {
        move |tlb: Tlb<&Recorder>| {
            let side = tlb.flush_user_side(pair, (last - 4096, 4096, 3), depth);
            assert_eq!(side, expected);
        }
    };
    let (new, old) = (FeatureFlags::all(), FeatureFlags::PGE);
    let ops = tagged_ops_with(new, flush(Depth::Leaf, UserSide::Dropped));
    let page = |address| Op::Invpcid(InvpcidKind::Page(pair.user(), address));
    assert_eq!(ops, [page(last - 4096), page(last)]);
    let whole = Op::Invpcid(InvpcidKind::Context(pair.user()));
    let ops = tagged_ops_with(new, flush(Depth::Tables, UserSide::Dropped));
    assert_eq!(ops, [whole]);
    for depth in [Depth::Leaf, Depth::Tables] {
        let owed = tagged_ops_with(old, flush(depth, UserSide::Owed));
        let without = ops_with(old, flush(depth, UserSide::Dropped));
        assert_eq!((owed, without), (vec![], vec![]));
    }

    let ops = tagged_ops_with(new, |tlb| {
        assert_eq!(tlb.flush_pair(pair), UserSide::Dropped);
    });
    assert_eq!(ops, [&RELOAD[..], &[whole]].concat());
}
