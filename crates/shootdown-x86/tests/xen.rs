//! Xen's operations against a fake hypervisor that reads list and masks from memory as `do_mmuext_op` does, drops from the TLBs of fake
//! vCPUs what Xen drops at least, fails, and stops in the middle of lists.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::*;
use shootdown_x86::pv::xen::{
    Flushed, Hypercall, Operation, Outcome, Refused, VcpuMask, Vcpus, flush,
};
use shootdown_x86::tlb::Depth;

const PAGE: usize = 4096;
/// What a page table of the lowest level maps.
const TABLE: usize = 512 * PAGE;
const EINVAL: isize = -22;
/// More than a kernel has that this project tests with, so that the mask has several words.
const VCPUS: u32 = 150;

/// What a vCPU has cached: a translation of a page, or an entry that leads to a page table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Entry {
    Page(usize),
    Table(usize),
}

impl Entry {
    fn leads_to(self, address: usize) -> bool {
        match self {
            Self::Page(start) => start / PAGE == address / PAGE,
            Self::Table(start) => start / TABLE == address / TABLE,
        }
    }
}

type Tlb = BTreeSet<Entry>;

struct Fake {
    tlbs: RefCell<Vec<Tlb>>,
    calls: Cell<u32>,
    /// From this operation on nothing is done, and this is said.
    stops: Option<(usize, isize)>,
}

impl Fake {
    fn new(cached: &[Entry], stops: Option<(usize, isize)>) -> Self {
        let tlb: Tlb = cached.iter().copied().collect();
        let tlbs = RefCell::new(vec![tlb; VCPUS as usize]);
        Self {
            tlbs,
            calls: Cell::new(0),
            stops,
        }
    }

    /// One `struct mmuext_op`.
    fn execute(&self, command: u32, address: usize, vcpus: *const u64) {
        let is_named = |vcpu: usize| match command {
            // SAFETY: the library points to a mask that is long enough; Xen would read up to the last vCPU.
            8 | 9 => unsafe { *vcpus.wrapping_add(vcpu / 64) >> (vcpu % 64) & 1 != 0 },
            10 | 11 => {
                assert!(vcpus.is_null());
                true
            }
            _ => panic!("another operation: {command}"),
        };
        for (vcpu, tlb) in self.tlbs.borrow_mut().iter_mut().enumerate() {
            match command {
                _ if !is_named(vcpu) => {}
                8 | 10 => tlb.clear(),
                _ => tlb.retain(|entry| !entry.leads_to(address)),
            }
        }
    }
}

impl Hypercall for Fake {
    fn mmuext_op(&self, operations: &[Operation<'_>]) -> Outcome {
        self.calls.set(self.calls.get() + 1);
        assert!(!operations.is_empty());
        let list: *const u8 = operations.as_ptr().cast();
        for index in 0..operations.len() {
            match self.stops {
                Some((at, result)) if at == index => {
                    let done = index as u32;
                    return Outcome { result, done };
                }
                _ => {}
            }
            // Xen reads 24 bytes an operation: the command, 4 unused ones, an address, a pointer.
            let at = list.wrapping_add(24 * index);
            // SAFETY: the command of an operation in the list.
            let command = unsafe { at.cast::<u32>().read() };
            // SAFETY: its address.
            let address = unsafe { at.wrapping_add(8).cast::<usize>().read() };
            // SAFETY: its pointer.
            let vcpus = unsafe { at.wrapping_add(16).cast::<*const u64>().read() };
            self.execute(command, address, vcpus);
        }
        let done = operations.len() as u32;
        Outcome { result: 0, done }
    }
}

fn entries() -> impl Strategy<Value = Entry> {
    let base = prop_oneof![Just(0), Just(0xffff_9000_0000_0000)];
    (
        base,
        prop_oneof![0..8usize, 508..516usize, 0..1100usize],
        any::<bool>(),
    )
        .prop_map(|(base, page, is_table)| match is_table {
            true => Entry::Table(base + page / 512 * TABLE),
            false => Entry::Page(base + page * PAGE),
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// Where it says that it is done, those who were named have nothing left of what was named; others have lost nothing, and few pages
    /// cost nobody anything else.
    #[test]
    fn the_named_lose_what_was_named(
        cached in proptest::collection::vec(entries(), 1..30),
        which in proptest::collection::vec((0..30usize, 0..4usize, 0..PAGE), 0..12),
        named in proptest::option::of(proptest::collection::btree_set(0..VCPUS, 0..6)),
        are_tables_freed in any::<bool>(),
        stops in proptest::option::of((0..9usize, prop_oneof![Just(EINVAL), Just(0)])),
    ) {
        let ranges: Vec<_> = which.iter().map(|(which, pages, offset)| match cached[which % cached.len()] {
            Entry::Page(start) | Entry::Table(start) => (start + offset, *pages),
        }).collect();
        let (fake, mut mask) = (Fake::new(&cached, stops), VcpuMask::new());
        let depth = if are_tables_freed { Depth::Tables } else { Depth::Leaf };
        let flushed = Flushed::Ranges(&ranges, depth);
        let vcpus = match &named {
            Some(named) => Vcpus::Some(named.iter().copied()),
            None => Vcpus::All,
        };
        let outcome = flush(&fake, &mut mask, vcpus, flushed);
        let before: Tlb = cached.iter().copied().collect();
        let is_in_range = |entry: &Entry| ranges.iter().any(|(start, pages)| {
            (0..*pages).any(|page| entry.leads_to(start + page * PAGE))
        });
        let is_few = !are_tables_freed && ranges.iter().all(|(_, pages)| *pages <= 1)
            && ranges.iter().filter(|(_, pages)| *pages == 1).count() <= 8;
        for (vcpu, left) in fake.tlbs.borrow().iter().enumerate() {
            if !named.as_ref().is_none_or(|named| named.contains(&(vcpu as u32))) {
                prop_assert_eq!(left, &before, "vCPU {} was not named", vcpu);
            } else if outcome.is_ok() {
                let must_go = |entry: &Entry| are_tables_freed || is_in_range(entry);
                prop_assert!(!left.iter().any(must_go), "vCPU {} keeps {:x?}", vcpu, left);
            }
            let is_spared = |entry: &Entry| is_few && !is_in_range(entry);
            prop_assert!(before.iter().all(|entry| !is_spared(entry) || left.contains(entry)));
        }
        let is_nothing = !are_tables_freed && ranges.iter().all(|(_, pages)| *pages == 0);
        if is_nothing || named.as_ref().is_some_and(BTreeSet::is_empty) {
            prop_assert_eq!((outcome, fake.calls.get()), (Ok(()), 0));
        }
        prop_assert!(outcome.is_ok() || stops.is_some());
    }
}

fn asked(
    fake: &Fake,
    mask: &mut VcpuMask,
    vcpus: &[u32],
    flushed: Flushed<'_>,
) -> Result<(), Refused> {
    flush(fake, mask, Vcpus::Some(vcpus.iter().copied()), flushed)
}

/// Whoever was in the mask before is not in it now.
#[test]
fn a_mask_forgets() {
    let cached = [Entry::Page(PAGE)];
    let mut mask = VcpuMask::new();
    let first = Fake::new(&cached, None);
    assert_eq!(asked(&first, &mut mask, &[3, 149], Flushed::All), Ok(()));
    let second = Fake::new(&cached, None);
    assert_eq!(asked(&second, &mut mask, &[70], Flushed::All), Ok(()));
    let empty = |fake: &Fake| -> Vec<usize> {
        let tlbs = fake.tlbs.borrow();
        let tlbs = tlbs.iter().enumerate();
        tlbs.filter_map(|(vcpu, tlb)| tlb.is_empty().then_some(vcpu))
            .collect()
    };
    assert_eq!((empty(&first), empty(&second)), (vec![3, 149], vec![70]));
    assert_eq!(mask.words()[1], 1 << 6);
}

/// An error, and a hypervisor that says success of a list that it did not end, both with what it did.
#[test]
fn a_part_is_a_failure() {
    let ranges = [(PAGE, 1), (5 * PAGE, 1), (9 * PAGE, 1)];
    for result in [EINVAL, 0] {
        let fake = Fake::new(&[Entry::Page(9 * PAGE)], Some((2, result)));
        let outcome = Some(Outcome { result, done: 2 });
        let flushed = Flushed::Ranges(&ranges, Depth::Leaf);
        assert_eq!(
            asked(&fake, &mut VcpuMask::new(), &[1], flushed),
            Err(Refused { outcome })
        );
        assert!(!fake.tlbs.borrow()[1].is_empty() && fake.calls.get() == 1);
    }
}

/// An error counts even if all operations are said to be done.
#[test]
fn an_error_is_a_failure_whatever_is_done() {
    struct Liar;
    impl Hypercall for Liar {
        fn mmuext_op(&self, operations: &[Operation<'_>]) -> Outcome {
            let done = operations.len() as u32;
            Outcome { result: -38, done }
        }
    }
    let nobody = Vcpus::<core::iter::Empty<u32>>::All;
    let outcome = flush(&Liar, &mut VcpuMask::new(), nobody, Flushed::All);
    assert!(outcome.is_err());
}

#[test]
fn whom_it_cannot_name_it_refuses() {
    let (fake, mut mask) = (Fake::new(&[], None), VcpuMask::new());
    let refused = Err(Refused { outcome: None });
    assert_eq!(asked(&fake, &mut mask, &[1, 8192], Flushed::All), refused);
    assert_eq!(fake.calls.get(), 0);
    assert_eq!(asked(&fake, &mut mask, &[8191], Flushed::All), Ok(()));
}

/// More pages than go one by one, and a range of two.
#[test]
fn the_last_page_goes_too() {
    let ninth: Vec<_> = (1..10).map(|page| (page * PAGE, 1)).collect();
    for (ranges, last) in [(&ninth[..], 9), (&[(PAGE, 2)][..], 2)] {
        let fake = Fake::new(&[Entry::Page(last * PAGE)], None);
        let flushed = Flushed::Ranges(ranges, Depth::Leaf);
        assert_eq!(asked(&fake, &mut VcpuMask::new(), &[0], flushed), Ok(()));
        assert!(fake.tlbs.borrow()[0].is_empty(), "{last} is left");
    }
}
