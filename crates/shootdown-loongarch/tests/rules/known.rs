//! Cases by hand, and mistakes that the emulated processor must punish: a test that could not fail would prove nothing.

use shootdown_loongarch::Tlb;
use shootdown_loongarch::tlb::{Asid, AsidWidth, Invtlb, Pages, Port, TagEntries};

use super::others::Others;
use super::processor::{Processor, Span};
use super::story::{Config, Kernel, Step};
use super::tables::{BASE, Directory, KERNEL, Leaf, Page, Tables};

const TAGS: Config = Config {
    bits: 10,
    slots: 2,
    is_global: true,
};
const USER_PAGE: Page = Page {
    region: 0,
    index: 0,
};
const BUDDY: Page = Page {
    region: 0,
    index: 1,
};
const KERNEL_PAGE: Page = Page {
    region: KERNEL,
    index: 2,
};

fn asid(number: u16) -> Asid {
    Asid::new(number).unwrap()
}

fn tlb(processor: &Processor) -> Tlb<&Processor> {
    // SAFETY: the width is the processor's.
    unsafe { Tlb::with_port(processor, BASE, Tlb::detect_width(&processor)) }
}

/// How many entries of a page an access may use.
fn usable(processor: &Processor, page: Page) -> Vec<Option<u32>> {
    let entries = processor.usable();
    let pages = entries.iter().flat_map(|cached| cached.pages());
    let of_page = pages.filter(|&(other, _)| other == page);
    of_page.map(|(_, leaf)| leaf.frame).collect()
}

#[test]
fn the_width_is_what_reads_back_and_what_the_register_says() {
    for (bits, said, found) in [(0, 0, 0), (4, 4, 4), (10, 10, 10), (10, 6, 6), (6, 10, 6)] {
        let processor = Processor::new(bits, said, Tables::new(1, true));
        let before = (&processor).read_asid();
        assert_eq!(Tlb::detect_width(&&processor), AsidWidth::new(found));
        assert_eq!((&processor).read_asid(), before);
        assert!(processor.has_interrupts_on());
    }
}

#[test]
fn the_tag_that_was_tried_keeps_nothing() {
    let processor = TAGS.processor();
    Tlb::detect_width(&&processor);
    processor.memory.borrow_mut().set(0, USER_PAGE, Some(9));
    (&processor).dbar();
    let irqs = (&processor).irq_save();
    (&processor).invtlb(Invtlb::Tag(asid(1)));
    // SAFETY: emulated.
    unsafe { (&processor).write_asid(asid(0x3ff)) };
    // SAFETY: emulated; of the `irq_save` above.
    unsafe { (&processor).irq_restore(irqs) };
    assert_eq!(usable(&processor, USER_PAGE), [Some(9)]);
}

#[test]
fn what_firmware_has_left_is_gone_at_the_start() {
    for stale_tag in [0, 1] {
        let processor = TAGS.processor();
        let irqs = (&processor).irq_save();
        // SAFETY: emulated: the firmware's.
        unsafe { (&processor).write_asid(asid(stale_tag)) };
        // SAFETY: emulated; of the `irq_save` above.
        unsafe { (&processor).irq_restore(irqs) };
        processor.walk();
        processor.memory.borrow_mut().set(0, USER_PAGE, Some(9));
        processor.memory.borrow_mut().set(0, KERNEL_PAGE, Some(8));
        // SAFETY: the width is the processor's.
        let tlb = unsafe { Tlb::with_port(&processor, BASE, AsidWidth::new(10)) };
        let irqs = (&processor).irq_save();
        // SAFETY: emulated.
        unsafe { tlb.start() };
        // SAFETY: emulated; of the `irq_save` above.
        unsafe { (&processor).irq_restore(irqs) };
        assert_eq!(tlb.loaded_asid(), Asid::UNTAGGED);
        assert_eq!(usable(&processor, USER_PAGE), [Some(9)]);
        assert_eq!(usable(&processor, KERNEL_PAGE), [Some(8)]);
    }
}

#[test]
fn a_tag_keeps_what_it_has_while_another_is_loaded() {
    let processor = TAGS.processor();
    let tlb = tlb(&processor);
    let load = |root: u64, number, entries| {
        // SAFETY: emulated.
        unsafe { tlb.load_tagged_root(root << 12, asid(number), entries) };
    };
    load(2, 1, TagEntries::Drop);
    processor.walk();
    load(3, 2, TagEntries::Drop);
    // Nobody says so: a mistake that shows what was kept.
    processor.memory.borrow_mut().set(1, USER_PAGE, Some(9));
    load(2, 1, TagEntries::Keep);
    let mut frames = usable(&processor, USER_PAGE);
    frames.sort();
    assert_eq!(frames, [Some(9), Some(200)]);
}

#[test]
fn a_flush_of_a_page_takes_its_buddy() {
    let processor = TAGS.processor();
    let tlb = tlb(&processor);
    processor.walk();
    processor.memory.borrow_mut().set(0, USER_PAGE, Some(9));
    tlb.flush_pages(Pages::one(BUDDY.address(), BASE));
    assert_eq!(usable(&processor, USER_PAGE), [Some(9)]);
}

#[test]
fn an_invalid_page_stays_until_it_is_flushed() {
    let processor = TAGS.processor();
    let tlb = tlb(&processor);
    processor.memory.borrow_mut().set(0, BUDDY, None);
    tlb.flush_pages(Pages::one(BUDDY.address(), BASE));
    assert_eq!(usable(&processor, BUDDY), [None]);
    processor.memory.borrow_mut().set(0, BUDDY, Some(9));
    (&processor).dbar();
    assert_eq!(usable(&processor, BUDDY), [None, Some(9)]);
    tlb.flush_faulted(BUDDY.address() + 0xff8);
    assert_eq!(usable(&processor, BUDDY), [Some(9)]);
}

/// The kernel says that its pages are global, but one of each pair is not.
#[test]
#[should_panic(expected = "stale Cached")]
fn pairs_that_are_global_by_half_are_noticed() {
    let processor = Processor::new(10, 10, Tables::new(3, false));
    let mut kernel = Kernel::new(&processor, TAGS);
    for step in [
        Step::Switch(1),
        Step::Switch(2),
        Step::Change(2, KERNEL_PAGE, Some(9)),
        Step::Switch(1),
    ] {
        kernel.take(step);
    }
}

/// A huge page takes the place of nothing, and is flushed as one page.
#[test]
fn small_pages_that_were_nothing_outlive_a_flush_of_the_huge_one() {
    let processor = TAGS.processor();
    let tlb = tlb(&processor);
    processor.memory.borrow_mut().store(0, 0, Directory::EMPTY);
    tlb.flush_space();
    processor.walk();
    let leaf = Leaf {
        frame: Some(9),
        global: false,
    };
    processor
        .memory
        .borrow_mut()
        .store(0, 0, Directory::Huge(leaf));
    tlb.flush_pages(Pages::one(USER_PAGE.address(), BASE.huge()));
    let left = |pair| {
        let small = Span::Pair(pair);
        let usable = processor.usable();
        usable
            .iter()
            .any(|cached| cached.region == 0 && cached.span == small)
    };
    assert!(!left(0) && left(1));
    assert_eq!(processor.mistake(), Some("two hits"));
    tlb.flush_space();
    assert!(!left(1));
}

#[test]
fn a_pair_that_becomes_global_hits_twice() {
    let processor = Processor::new(10, 10, Tables::new(1, false));
    let tlb = tlb(&processor);
    processor.usable();
    assert_eq!(processor.mistake(), None);
    processor.memory.borrow_mut().make_global();
    tlb.flush_pages(Pages::one(0x1000, BASE));
    processor.usable();
    assert_eq!(processor.mistake(), Some("two hits"));
}

#[test]
fn an_entry_that_leads_nowhere_leads_to_physical_page_0() {
    let processor = TAGS.processor();
    let entry = Directory::Nothing;
    processor.memory.borrow_mut().store(0, 0, entry);
    tlb(&processor).flush_all();
    assert_eq!(processor.mistake(), Some("walked physical page 0"));
}

/// Another CPU frees a table before this one has flushed it, and after.
#[test]
fn what_others_free_is_flushed_before() {
    for is_flushed in [false, true] {
        let processor = TAGS.processor();
        let tlb = tlb(&processor);
        let mut others = Others::idle();
        others.unlink(&mut processor.memory.borrow_mut(), 0, 1, false);
        let change = others.next_change().unwrap();
        if is_flushed {
            tlb.flush_space();
        }
        let table = change.what.unwrap_err();
        processor.memory.borrow_mut().free(table);
        processor.walk();
        assert_eq!(processor.mistake().is_none(), is_flushed);
    }
}

/// Linux's order: the root, then the tag. What is filled between has the old tag and the new root.
#[test]
fn the_root_before_the_tag_spoils_the_old_tag() {
    let processor = TAGS.processor();
    let tlb = tlb(&processor);
    // SAFETY: emulated.
    unsafe { tlb.load_tagged_root(2 << 12, asid(1), TagEntries::Drop) };
    let irqs = (&processor).irq_save();
    // SAFETY: emulated.
    unsafe { (&processor).write_pgdl(3 << 12) };
    // SAFETY: emulated.
    unsafe { (&processor).write_asid(asid(2)) };
    // SAFETY: emulated; of the `irq_save` above.
    unsafe { (&processor).irq_restore(irqs) };
    // SAFETY: emulated.
    unsafe { tlb.load_tagged_root(2 << 12, asid(1), TagEntries::Keep) };
    let mut frames = usable(&processor, USER_PAGE);
    frames.sort();
    assert_eq!(frames, [Some(200), Some(300)]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is reserved, or there is no such tag")]
fn the_reserved_tag_is_nobodys() {
    let processor = Processor::new(2, 2, Tables::new(1, true));
    // SAFETY: emulated, and the point.
    unsafe { tlb(&processor).load_tagged_root(1 << 12, asid(3), TagEntries::Drop) };
}
