//! Invalidation and loads against a recorder: which instructions, in which order.

use std::cell::{Cell, RefCell};

use shootdown_riscv::tlb::{
    Access, Asid, AsidBits, CEILING, Depth, Fence, Mode, Port, TagEntries, Tlb, detect_asid_bits,
};
use shootdown_riscv::{Features, Processor};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Sfence(Fence),
    WInval,
    Sinval(usize),
    InvalIr,
    Satp(u64),
}

use Fence::{All, Page, Tag};
use Op::{Satp, Sfence};

const ROOT: u64 = 0x8020_0000;
/// What the recorder has in `satp`.
const LOADED: Asid = Asid::new(5);

const SOUND: Processor = Processor {
    vendor: 0,
    architecture: 0,
    implementation: 0,
};
const CIP_1200: Processor = Processor {
    vendor: 0x489,
    architecture: 0x8000_0000_0000_0007,
    implementation: 0x20_0630,
};

#[derive(Debug)]
struct Recorder {
    ops: RefCell<Vec<Op>>,
    satp: Cell<u64>,
    mask: u64,
}

impl Recorder {
    fn new(bits: AsidBits) -> Self {
        let mask = !((0xffff & !(bits.tags() as u64)) << 44);
        Self {
            ops: RefCell::default(),
            satp: Cell::new(Mode::Sv48.satp(ROOT, LOADED) & mask),
            mask,
        }
    }

    fn push(&self, op: Op) {
        self.ops.borrow_mut().push(op);
    }
}

impl Port for &Recorder {
    fn sfence_vma(&self, what: Fence) {
        self.push(Sfence(what));
    }
    unsafe fn sfence_w_inval(&self) {
        self.push(Op::WInval);
    }
    unsafe fn sinval_vma(&self, address: usize) {
        self.push(Op::Sinval(address));
    }
    unsafe fn sfence_inval_ir(&self) {
        self.push(Op::InvalIr);
    }
    fn read_satp(&self) -> u64 {
        self.satp.get()
    }
    unsafe fn write_satp(&self, value: u64) {
        self.push(Satp(value));
        self.satp.set(value & self.mask);
    }
}

type Kind = (u8, Features, Processor);
const PLAIN: Kind = (16, Features::NONE, SOUND);
const SVINVAL: Kind = (16, Features::SVINVAL, SOUND);
const BROKEN: Kind = (16, Features::SVINVAL, CIP_1200);
const UNTAGGED: Kind = (0, Features::NONE, SOUND);

fn ops((bits, features, processor): Kind, act: impl FnOnce(Tlb<&Recorder>)) -> Vec<Op> {
    let bits = AsidBits::new(bits).unwrap();
    let recorder = Recorder::new(bits);
    // SAFETY: the recorder takes everything.
    act(unsafe { Tlb::new(&recorder, Mode::Sv48, bits, features, processor) });
    recorder.ops.into_inner()
}

fn pages(kind: Kind, stride: usize, count: usize, depth: Depth) -> Vec<Op> {
    ops(kind, |tlb| {
        tlb.flush_pages(0x4000_0000, stride, count, depth)
    })
}

#[test]
fn pages_are_dropped_under_every_tag_at_their_stride() {
    let found = pages(PLAIN, 0x20_0000, 3, Depth::Leaf);
    assert_eq!(
        found,
        [0x4000_0000, 0x4020_0000, 0x4040_0000].map(|at| Sfence(Page(at)))
    );
    assert_eq!(
        ops(PLAIN, |tlb| tlb.flush_page(0x1234)),
        [Sfence(Page(0x1234))]
    );
    assert_eq!(pages(PLAIN, 4096, 0, Depth::Leaf), []);
}

#[test]
fn svinval_is_one_sequence_around_several_pages() {
    let found = pages(SVINVAL, 4096, 2, Depth::Leaf);
    let inner = [Op::Sinval(0x4000_0000), Op::Sinval(0x4000_1000)];
    assert_eq!(found, [&[Op::WInval][..], &inner, &[Op::InvalIr]].concat());
    assert_eq!(
        pages(SVINVAL, 4096, 1, Depth::Leaf),
        [Sfence(Page(0x4000_0000))]
    );
}

#[test]
fn freed_tables_take_a_fence_without_an_address() {
    for kind in [PLAIN, SVINVAL, BROKEN, UNTAGGED] {
        assert_eq!(pages(kind, 4096, 1, Depth::Tables), [Sfence(All)]);
    }
}

#[test]
fn above_the_ceiling_everything_is_dropped() {
    assert_eq!(pages(PLAIN, 4096, CEILING, Depth::Leaf).len(), CEILING);
    assert_eq!(pages(PLAIN, 4096, CEILING + 1, Depth::Leaf), [Sfence(All)]);
    assert_eq!(pages(PLAIN, 65536, usize::MAX, Depth::Leaf), [Sfence(All)]);
    let none = ops(PLAIN, |tlb| {
        tlb.with_ceiling(0).flush_pages(0, 4096, 1, Depth::Leaf)
    });
    assert_eq!(none, [Sfence(All)]);
}

#[test]
fn regions_of_svnapot_are_dropped_in_base_pages() {
    let found = pages(PLAIN, 65536, 2, Depth::Leaf);
    let expected = (0..32).map(|page| Sfence(Page(0x4000_0000 + page * 4096)));
    assert!(found.into_iter().eq(expected));
}

#[test]
fn the_last_page_of_the_address_space_does_not_wrap() {
    let last = usize::MAX - 4095;
    let found = ops(PLAIN, |tlb| tlb.flush_pages(last, 4096, 2, Depth::Leaf));
    assert_eq!(found, [Sfence(Page(last))]);
}

#[test]
fn a_tag_goes_without_what_is_global() {
    assert_eq!(
        ops(PLAIN, |tlb| tlb.flush_loaded_tag()),
        [Sfence(Tag(LOADED))]
    );
    let untagged = ops(UNTAGGED, |tlb| tlb.flush_loaded_tag());
    assert_eq!(untagged, [Sfence(Tag(Asid::UNTAGGED))]);
    assert_eq!(ops(PLAIN, |tlb| tlb.flush_all()), [Sfence(All)]);
}

#[test]
#[should_panic(expected = "Asid(2) with AsidBits(1)")]
fn a_root_under_a_tag_that_no_hart_has_is_a_mistake() {
    load((1, Features::NONE, SOUND), Asid::new(2), TagEntries::Keep);
}

#[test]
fn with_the_erratum_every_fence_is_of_everything() {
    let acts: [fn(Tlb<&Recorder>); 3] = [
        |tlb| tlb.flush_page(0x1000),
        |tlb| tlb.flush_pages(0x1000, 4096, 3, Depth::Leaf),
        |tlb| tlb.flush_loaded_tag(),
    ];
    for act in acts {
        assert_eq!(ops(BROKEN, act), [Sfence(All)]);
    }
    assert_eq!(load(BROKEN, Asid::new(6), TagEntries::Drop)[0], Sfence(All));
}

fn load(kind: Kind, asid: Asid, entries: TagEntries) -> Vec<Op> {
    ops(kind, |tlb| {
        // SAFETY: the recorder takes everything.
        unsafe { tlb.load_tagged_root(0x9000_0000, asid, entries) };
    })
}

#[test]
fn roots_are_loaded_with_their_tag_and_what_becomes_of_it() {
    let other = Asid::new(6);
    let satp = |asid| Satp(Mode::Sv48.satp(0x9000_0000, asid));
    assert_eq!(load(PLAIN, other, TagEntries::Keep), [satp(other)]);
    assert_eq!(load(PLAIN, LOADED, TagEntries::Keep), [satp(LOADED)]);
    assert_eq!(
        load(PLAIN, other, TagEntries::Drop),
        [Sfence(Tag(other)), satp(other)]
    );
    let fence = Sfence(Tag(LOADED));
    assert_eq!(
        load(PLAIN, LOADED, TagEntries::Drop),
        [fence, satp(LOADED), fence]
    );
    let fence = Sfence(Tag(Asid::UNTAGGED));
    for entries in [TagEntries::Keep, TagEntries::Drop] {
        let found = load(UNTAGGED, other, entries);
        assert_eq!(found, [fence, satp(Asid::UNTAGGED), fence]);
    }
    // SAFETY: the recorder takes everything.
    let root = ops(PLAIN, |tlb| unsafe { tlb.load_root(0x9000_0000) });
    assert_eq!(root, [fence, satp(Asid::UNTAGGED)]);
}

#[test]
fn a_host_finds_what_it_has_said() {
    ops(PLAIN, |tlb| {
        assert_eq!((tlb.mode(), tlb.asid_bits().tags()), (Mode::Sv48, 65535));
    });
}

#[test]
fn bits_are_found_by_writing_ones() {
    for bits in 0..=16 {
        let recorder = Recorder::new(AsidBits::new(bits).unwrap());
        let before = recorder.satp.get();
        // SAFETY: the recorder takes everything.
        let found = unsafe { detect_asid_bits(&&recorder) };
        assert_eq!(found, AsidBits::new(bits).unwrap());
        let ones = before | 0xffff << 44;
        assert_eq!(
            recorder.ops.into_inner(),
            [Sfence(All), Satp(ones), Satp(before), Sfence(All)]
        );
    }
    assert_eq!(AsidBits::new(17), None);
}

#[test]
fn a_fault_is_retried_if_the_tables_allow_it() {
    let (valid, readable) = (1 << 0 | 1 << 1 | 1 << 6, Access::Read);
    let retried = ops(PLAIN, |tlb| assert!(tlb.retry(valid, readable)));
    assert_eq!(retried, [Sfence(All)]);
    let refused = ops(PLAIN, |tlb| assert!(!tlb.retry(valid, Access::Write)));
    assert_eq!(refused, []);
    let svadu = (16, Features::SVADU, SOUND);
    let unmarked = ops(svadu, |tlb| assert!(tlb.retry(0b11, readable)));
    assert_eq!(unmarked, [Sfence(All)]);
}
