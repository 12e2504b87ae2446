//! Cases by hand; and sequences that must fail, which show that the emulated hart has the rule.

use shootdown_riscv::tlb::{Access, Depth, Fence, Port, TagEntries, detect_asid_bits};
use shootdown_riscv::{Asid, Features};

use super::hart::{Cached, Hart, MODE, SOUND};
use super::memory::{Entry, KERNEL, Memory, Page, Place, REGION_BYTES, all_pages};

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
fn a_megapage_goes_with_any_of_its_addresses_and_its_neighbour_stays() {
    let root = 0;
    let (first, next) = (
        PAGE,
        Page {
            region: 1,
            index: 0,
        },
    );
    let hart = hart(16);
    let map = |first| {
        for page in [PAGE, next] {
            let place = Place::Top(root, page.region);
            let entry = Entry::Frame(first + 100 * page.region as u32);
            hart.memory.borrow_mut().store(place, entry);
        }
    };
    map(5000);
    (&hart).sfence_vma(Fence::All);
    assert_eq!(hart.usable(next), [Entry::Frame(5100)].into());
    map(6000);
    (&hart).sfence_vma(Fence::Page(REGION_BYTES - 4096));
    assert_eq!(hart.usable(first), [Entry::Frame(6000)].into());
    assert_eq!(hart.usable(next).len(), 2);
    map(7000);
    hart.tlb().flush_pages(0, REGION_BYTES, 2, Depth::Leaf);
    let last = Page {
        region: 1,
        index: 2,
    };
    assert_eq!(hart.usable(first), [Entry::Frame(7000)].into());
    assert_eq!(hart.usable(last), [Entry::Frame(7102)].into());
}

#[test]
fn a_fence_orders_no_store_of_another_hart_before_it_was_seen() {
    let hart = hart(16);
    let place = hart.memory.borrow().leaf_place(0, PAGE).unwrap();
    let store = |entry| hart.memory.borrow_mut().store_unseen(place, entry);
    store(Entry::Invalid);
    let fences = [
        Fence::All,
        Fence::Tag(Asid::UNTAGGED),
        Fence::Page(PAGE.address()),
    ];
    for fence in fences {
        (&hart).sfence_vma(fence);
        assert_ne!(stale(&hart, 0), []);
    }
    for (frame, fence) in fences.into_iter().enumerate() {
        hart.memory.borrow_mut().see_all();
        (&hart).sfence_vma(fence);
        assert_eq!(stale(&hart, 0), []);
        store(Entry::Frame(7000 + frame as u32));
        assert_ne!(stale(&hart, 0), []);
    }
    // Svinval: what was seen before its first part.
    let port = &hart;
    // SAFETY: emulated, and there.
    unsafe { (&port).sfence_w_inval() };
    hart.memory.borrow_mut().see_all();
    // SAFETY: as above.
    unsafe { (&port).sinval_vma(PAGE.address()) };
    // SAFETY: as above.
    unsafe { (&port).sfence_inval_ir() };
    assert_ne!(stale(&hart, 0), []);
}

#[test]
fn a_page_that_was_not_accessed_yet_is_retried_where_the_walker_marks_it() {
    for (features, is_retried) in [(Features::SVADU, true), (Features::NONE, false)] {
        let hart = Hart::new(16, features, SOUND, Memory::new(1));
        let place = hart.memory.borrow().leaf_place(0, PAGE).unwrap();
        hart.memory.borrow_mut().store(place, Entry::Invalid);
        (&hart).sfence_vma(Fence::All);
        assert_eq!(hart.usable(PAGE), [Entry::Invalid].into());
        hart.memory.borrow_mut().store(place, Entry::Frame(1));
        // V, R, W.
        assert_eq!(hart.tlb().retry(0b111, Access::Write), is_retried);
        assert_eq!(stale(&hart, 0).is_empty(), is_retried);
    }
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
        let (tag, ones) = (u16::from(bits > 1), u16::MAX);
        // Somebody before has used the tag, and freed his tables.
        load(&hart, 2, ones);
        if bits > 0 {
            load(&hart, 1, tag);
            let table = unlink(&hart, 2, 0);
            hart.memory.borrow_mut().free(table);
        }
        load(&hart, 1, tag);
        // SAFETY: emulated.
        let found = unsafe { detect_asid_bits(&&hart) };
        assert_eq!(
            (found, hart.walked_freed.get()),
            (hart.tlb().asid_bits(), 0)
        );
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
                .cached_regions()
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
