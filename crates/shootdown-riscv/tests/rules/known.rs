//! Cases by hand; and sequences that must fail, which show that the emulated hart has the rule.

use shootdown_riscv::tlb::{Fence, Port, TagEntries, detect_asid_bits};
use shootdown_riscv::{Asid, Features};

use super::hart::{Cached, Hart, MODE, SOUND};
use super::memory::{Entry, KERNEL, Memory, Page, Place, all_pages};

fn hart(asid_bits: u8) -> Hart {
    Hart::new(asid_bits, Features::SVINVAL, SOUND, Memory::new(3))
}

fn load(hart: &Hart, root: usize, tag: u16) {
    // SAFETY: emulated.
    unsafe { (&hart).write_satp(MODE.satp(Memory::root_address(root), Asid::new(tag))) };
}

/// The user page at 0, and what is usable there that is not what root `root` says.
const PAGE: Page = Page {
    region: 0,
    index: 0,
};

fn stale(hart: &Hart, root: usize) -> Vec<Entry> {
    let truth = hart.memory.borrow().truth(root, PAGE);
    hart.usable(PAGE)
        .into_iter()
        .filter(|&entry| entry != truth)
        .collect()
}

fn unmap(hart: &Hart, root: usize, page: Page) {
    let mut memory = hart.memory.borrow_mut();
    let place = memory.leaf_place(root, page).unwrap();
    memory.store(place, Entry::Invalid);
}

/// The table of the page's region under the root is unlinked; its number.
fn unlink(hart: &Hart, root: usize, region: usize) -> usize {
    let mut memory = hart.memory.borrow_mut();
    let Entry::Table(table) = memory.get(Place::Top(root, region)) else {
        unreachable!()
    };
    memory.store(Place::Top(root, region), Entry::Invalid);
    table
}

#[test]
fn a_write_of_satp_drops_nothing() {
    let hart = hart(0);
    assert_eq!(stale(&hart, 0), []);
    load(&hart, 1, 0);
    assert_ne!(stale(&hart, 1), []);
    (&hart).sfence_vma(Fence::Tag(Asid::UNTAGGED));
    assert_eq!(stale(&hart, 1), []);
}

#[test]
fn what_is_dropped_under_the_loaded_tag_comes_back() {
    let hart = hart(16);
    load(&hart, 1, 7);
    (&hart).sfence_vma(Fence::Tag(Asid::new(7)));
    load(&hart, 2, 7);
    assert_ne!(stale(&hart, 2), []);
}

#[test]
fn a_tag_that_is_dropped_after_its_load_has_walked_freed_tables() {
    let late = hart(16);
    let good = hart(16);
    for hart in [&late, &good] {
        load(hart, 1, 1);
        assert_eq!(stale(hart, 1), []);
        load(hart, 2, 2);
        let table = unlink(hart, 1, 0);
        hart.memory.borrow_mut().free(table);
    }
    load(&late, 1, 1);
    (&&late).sfence_vma(Fence::Tag(Asid::new(1)));
    assert_ne!(late.walked_freed.get(), 0);
    let root = Memory::root_address(1);
    // SAFETY: emulated.
    unsafe {
        good.tlb()
            .load_tagged_root(root, Asid::new(1), TagEntries::Drop)
    };
    assert_eq!((good.walked_freed.get(), stale(&good, 1)), (0, vec![]));
}

#[test]
fn an_address_orders_leaves_only() {
    let hart = hart(16);
    let table = unlink(&hart, 0, 0);
    all_pages().for_each(|page| (&hart).sfence_vma(Fence::Page(page.address())));
    assert_ne!(stale(&hart, 0), []);
    (&hart).sfence_vma(Fence::Tag(Asid::UNTAGGED));
    hart.memory.borrow_mut().free(table);
    assert_eq!((stale(&hart, 0), hart.walked_freed.get()), (vec![], 0));
}

#[test]
fn a_tag_leaves_what_is_global() {
    let page = Page {
        region: KERNEL,
        index: 1,
    };
    let hart = hart(16);
    unmap(&hart, 0, page);
    (&hart).sfence_vma(Fence::Tag(Asid::UNTAGGED));
    (&hart).sfence_vma(Fence::PageOfTag(page.address(), Asid::UNTAGGED));
    assert_eq!(hart.usable(page).len(), 2);
    (&hart).sfence_vma(Fence::Page(page.address()));
    assert_eq!(hart.usable(page).len(), 1);
}

#[test]
fn each_part_of_svinval_is_needed() {
    let parts = [
        (true, true, true),
        (true, true, false),
        (false, true, true),
        (true, false, true),
    ];
    for (before, middle, behind) in parts {
        let hart = hart(16);
        assert_eq!(stale(&hart, 0), []);
        unmap(&hart, 0, PAGE);
        let port = &hart;
        if before {
            // SAFETY: emulated, and there.
            unsafe { (&port).sfence_w_inval() };
        }
        if middle {
            // SAFETY: as above.
            unsafe { (&port).sinval_vma(PAGE.address()) };
        }
        if behind {
            // SAFETY: as above.
            unsafe { (&port).sfence_inval_ir() };
        }
        assert_eq!(stale(&hart, 0).is_empty(), before && middle && behind);
    }
}

#[test]
fn bits_are_detected_and_nothing_stays_of_the_tag_that_was_borrowed() {
    for bits in [0, 1, 9, 16] {
        let hart = hart(bits);
        let tag = u16::from(bits > 0);
        load(&hart, 1, tag);
        // SAFETY: emulated.
        let found = unsafe { detect_asid_bits(&&hart) };
        assert_eq!(found, hart.tlb().asid_bits());
        assert_eq!((hart.loaded_root(), hart.loaded_tag()), (1, tag));
        let borrowed = |other: Option<u16>| other.is_some_and(|other| other != tag);
        let pages = hart.cached_pages();
        assert!(
            !pages
                .iter()
                .any(|cached: &Cached<Page>| borrowed(cached.tag))
        );
        assert!(
            !hart
                .cached_tables()
                .iter()
                .any(|cached| borrowed(cached.tag))
        );
    }
}

#[test]
#[should_panic(expected = "no root is loaded")]
fn bits_are_not_detected_where_the_field_is_reserved() {
    #[derive(Debug)]
    struct Bare;
    impl Port for Bare {
        fn sfence_vma(&self, _: Fence) {}
        unsafe fn sfence_w_inval(&self) {}
        unsafe fn sinval_vma(&self, _: usize) {}
        unsafe fn sfence_inval_ir(&self) {}
        fn read_satp(&self) -> u64 {
            0
        }
        unsafe fn write_satp(&self, _: u64) {}
    }
    // SAFETY: emulated.
    unsafe { detect_asid_bits(&Bare) };
}
