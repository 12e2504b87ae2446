//! Invalidation against a recorder.

use std::cell::RefCell;

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::tlb::{InvpcidKind, Pcid, Port};
use shootdown_x86::{Features, IrqState, Tlb};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Invlpg(usize),
    Invpcid(InvpcidKind),
    WriteCr3(u64),
    ToggleGlobal,
    IrqSave,
    IrqRestore,
}

/// The value that the recorder has in CR3.
const ROOT: u64 = 0x1234_5000;

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
        ROOT
    }
    unsafe fn write_cr3(&self, root: u64) {
        self.push(Op::WriteCr3(root));
    }
    fn toggle_global_pages(&self) {
        self.push(Op::ToggleGlobal);
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

#[test]
fn a_space_is_dropped_by_loading_its_own_root() {
    let ops = ops_with(FeatureFlags::all(), |tlb| tlb.flush_non_global());
    assert_eq!(ops, [Op::WriteCr3(ROOT)]);
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
        [Op::IrqSave, Op::ToggleGlobal, Op::IrqRestore]
    );
    assert_eq!(all(FeatureFlags::empty()), [Op::WriteCr3(ROOT)]);
}

#[test]
fn invpcid_passes_through_where_it_exists() {
    let kind = InvpcidKind::Context(Pcid::new(5).unwrap());
    assert_eq!(
        ops_with(FeatureFlags::INVPCID, |tlb| tlb.invpcid(kind)),
        [Op::Invpcid(kind)]
    );
}

#[test]
#[should_panic(expected = "no INVPCID")]
fn invpcid_panics_where_it_does_not() {
    ops_with(FeatureFlags::PGE, |tlb| tlb.invpcid(InvpcidKind::All));
}
