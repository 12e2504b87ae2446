//! The exact operations of each function, against a recorder.

use std::cell::{Cell, RefCell};

use shootdown_loongarch::tlb::{Invtlb, PageSize, Pages, Port, TagEntries};
use shootdown_loongarch::{Asid, AsidWidth, IrqState, Tlb};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Dbar,
    Invtlb(Invtlb),
    WriteAsid(u16),
    WritePgdl(u64),
    IrqSave,
    IrqRestore,
}

/// What the recorder has loaded: a tag, beside a width of 10.
const ROOT: u64 = 0x1234_5000;
const TAG: u16 = 0x17;
const RESERVED: u16 = 0x3ff;

#[derive(Default, Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
    are_irqs_off: Cell<bool>,
}

impl Recorder {
    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn dbar(&self) {
        self.push(Op::Dbar);
    }
    fn invtlb(&self, operation: Invtlb) {
        self.push(Op::Invtlb(operation));
    }
    fn read_asid(&self) -> u32 {
        assert!(self.are_irqs_off.get(), "the tag may change at once");
        10 << 16 | u32::from(TAG)
    }
    unsafe fn write_asid(&self, asid: Asid) {
        self.push(Op::WriteAsid(asid.as_u16()));
    }
    fn read_pgdl(&self) -> u64 {
        ROOT
    }
    unsafe fn write_pgdl(&self, root: u64) {
        self.push(Op::WritePgdl(root));
    }
    fn irq_save(&self) -> IrqState {
        self.are_irqs_off.set(true);
        self.push(Op::IrqSave);
        IrqState::Enabled
    }
    unsafe fn irq_restore(&self, before: IrqState) {
        assert!(before.is_enabled());
        self.are_irqs_off.set(false);
        self.push(Op::IrqRestore);
    }
}

fn ops_with(width: u32, base: PageSize, act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    let recorder = Recorder::default();
    // SAFETY: the recorder takes everything.
    act(unsafe { Tlb::with_port(&recorder, base, AsidWidth::new(width)) });
    assert!(!recorder.are_irqs_off.get(), "interrupts were left off");
    recorder.ops.into_inner()
}

fn ops(act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    ops_with(10, PageSize::SIZE_4K, act)
}

fn asid(number: u16) -> Asid {
    Asid::new(number).unwrap()
}

/// The addresses that a flush of pages under the loaded tag names.
fn addresses(base: PageSize, pages: Pages) -> Vec<usize> {
    let ops = ops_with(10, base, |tlb| tlb.flush_pages(pages));
    let (first, last) = (&ops[..2], &ops[ops.len() - 1..]);
    assert_eq!(
        (first, last),
        (&[Op::IrqSave, Op::Dbar][..], &[Op::IrqRestore][..])
    );
    let address = |op: &Op| match *op {
        Op::Invtlb(Invtlb::Page(tag, address)) if tag == asid(TAG) => address,
        _ => panic!("{op:?} among the pages"),
    };
    ops[2..ops.len() - 1].iter().map(address).collect()
}

#[test]
fn pages_are_dropped_by_pairs() {
    let (small, large) = (PageSize::SIZE_4K, PageSize::SIZE_16K);
    let of = |base, first, count| addresses(base, Pages::new(first, base, count));
    assert_eq!(of(small, 0x4000, 1), [0x4000]);
    assert_eq!(of(small, 0x5008, 1), [0x4000]);
    assert_eq!(of(small, 0x5000, 2), [0x4000, 0x6000]);
    assert_eq!(of(small, 0x4000, 4), [0x4000, 0x6000]);
    assert_eq!(of(small, 0x4000, 5), [0x4000, 0x6000, 0x8000]);
    assert_eq!(of(large, 0xc000, 2), [0x8000, 0x1_0000]);
    assert_eq!(of(small, 0x4000, 0), [0; 0]);
}

#[test]
fn a_huge_page_is_one_pair() {
    let base = PageSize::SIZE_4K;
    let huge = base.huge();
    assert_eq!(huge.bytes(), 2 << 20);
    assert_eq!(PageSize::SIZE_16K.huge().bytes(), 32 << 20);
    let pages = Pages::new((6 << 20) + 5, huge, 2);
    assert_eq!(addresses(base, pages), [6 << 20, 8 << 20]);
    // Small pages named by themselves where the base size is larger.
    let small = Pages::new(0x5000, base, 4);
    assert_eq!(addresses(PageSize::SIZE_16K, small), [0, 0x8000]);
}

#[test]
fn the_last_page_of_the_address_space_does_not_wrap() {
    let last = usize::MAX - 4095;
    let base = PageSize::SIZE_4K;
    assert_eq!(addresses(base, Pages::new(last, base, 3)), [last - 4096]);
    let all = Pages::new(0, base, usize::MAX);
    assert_eq!(all.entry_count(base), 1 << 51);
}

#[test]
fn each_flush_is_its_own_operation_behind_a_barrier() {
    let one = |operation| [Op::Dbar, Op::Invtlb(operation)];
    assert_eq!(ops(|tlb| tlb.flush_all()), one(Invtlb::All));
    let space = [
        &[Op::IrqSave][..],
        &one(Invtlb::Tag(asid(TAG))),
        &[Op::IrqRestore],
    ]
    .concat();
    assert_eq!(ops(|tlb| tlb.flush_space()), space);
}

#[test]
fn a_root_is_loaded_by_way_of_the_reserved_tag() {
    let load = |entries| {
        // SAFETY: recorded only.
        ops(|tlb| unsafe { tlb.load_tagged_root(0x9000, asid(5), entries) })
    };
    let begin = [
        Op::IrqSave,
        Op::Dbar,
        Op::Invtlb(Invtlb::Tag(asid(RESERVED))),
        Op::WriteAsid(RESERVED),
        Op::WritePgdl(0x9000),
    ];
    let end = [Op::WriteAsid(5), Op::IrqRestore];
    assert_eq!(load(TagEntries::Keep), [&begin[..], &end].concat());
    let drop = [Op::Invtlb(Invtlb::Tag(asid(5)))];
    assert_eq!(load(TagEntries::Drop), [&begin[..], &drop, &end].concat());
}

#[test]
fn without_tags_everything_goes_behind_the_load() {
    // SAFETY: recorded only.
    let ops = ops_with(0, PageSize::SIZE_4K, |tlb| unsafe { tlb.load_root(0x9000) });
    let expected = [
        Op::IrqSave,
        Op::Dbar,
        Op::WritePgdl(0x9000),
        Op::Invtlb(Invtlb::NonGlobal),
        Op::IrqRestore,
    ];
    assert_eq!(ops, expected);
}

#[test]
fn coming_online_drops_everything_before_the_tag_is_loaded() {
    let expected = [Op::Dbar, Op::Invtlb(Invtlb::All), Op::WriteAsid(0)];
    // SAFETY: recorded only.
    assert_eq!(ops(|tlb| unsafe { tlb.start() }), expected);
}

#[test]
fn spaces_have_the_tags_between_zero_and_the_reserved_one() {
    for (bits, reserved, slots) in [
        (0, None, 0),
        (1, Some(1), 0),
        (2, Some(3), 2),
        (10, Some(1023), 1022),
    ] {
        let width = AsidWidth::new(bits);
        assert_eq!(width.bits(), bits);
        assert_eq!(width.reserved().map(Asid::as_u16), reserved);
        assert_eq!(width.slots(), slots);
    }
    assert_eq!(AsidWidth::new(16), AsidWidth::new(10));
    assert_eq!(Asid::new(1024), None);
}

#[test]
fn page_sizes_are_those_of_the_register() {
    let prcfg2 = 1 << 12 | 1 << 14 | 1 << 21;
    assert!(PageSize::SIZE_4K.is_supported(prcfg2));
    assert!(!PageSize::SIZE_64K.is_supported(prcfg2));
    assert_eq!(PageSize::from_shift(14), Some(PageSize::SIZE_16K));
    assert_eq!(PageSize::from_shift(11), None);
    assert_eq!(PageSize::from_shift(61), None);
}
