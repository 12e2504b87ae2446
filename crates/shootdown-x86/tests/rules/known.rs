//! Cases by hand, and mistakes that the emulated processor must punish: a test that could not fail would
//! prove nothing.

use shootdown_x86::features::FeatureFlags;
use shootdown_x86::processor::{Microcode, Processor as Model, Vendor};
use shootdown_x86::tlb::{Depth, InvpcidKind, Pcid, Port, TagEntries};
use shootdown_x86::{PcidSupport, Tlb};

use super::contract::{Op, Seen, check, not_started, start};
use super::processor::{CR4_PAE, CR4_PCIDE, CR4_PGE, Processor};
use super::story::{Kernel, Step};
use super::tables::{KERNEL, Page, Tables};

const NEW: FeatureFlags = FeatureFlags::all();
/// Sandy Bridge: PCIDs, but not INVPCID.
const OLD: FeatureFlags = FeatureFlags::all().difference(FeatureFlags::INVPCID);
const USER_PAGE: Page = Page {
    region: 0,
    index: 1,
};
const KERNEL_PAGE: Page = Page {
    region: KERNEL,
    index: 1,
};

fn processor(flags: FeatureFlags) -> Processor {
    Processor::new(flags, Tables::new(5))
}

fn pcid(number: u16) -> Pcid {
    Pcid::new(number).unwrap()
}

/// Loads root 1 under tag 1, then root 2 under tag 2, and counts what `op` leaves of all that.
fn after_two_loads(flags: FeatureFlags, op: Op) -> Seen {
    let processor = processor(flags);
    let tlb = start(&processor);
    for number in [1, 2] {
        let load = Op::Load(number.into(), pcid(number), TagEntries::Drop);
        check(&processor, &tlb, load, &mut Seen::default());
    }
    let mut seen = Seen::default();
    check(&processor, &tlb, op, &mut seen);
    seen
}

#[test]
fn switching_back_keeps_everything_and_without_tags_global_pages_only() {
    let back = Op::Load(1, pcid(1), TagEntries::Keep);
    // Tags 0, 1 and 2, each with 6 user pages and 3 tables; 3 global pages.
    let all = 3 * (6 + 3) + 3;
    let kept = |stayed| Seen {
        stayed,
        gone: all - stayed,
    };
    assert_eq!(after_two_loads(NEW, back), kept(all));
    let drop = Op::Load(1, pcid(1), TagEntries::Drop);
    assert_eq!(after_two_loads(NEW, drop), kept(all - 9));
    let untagged = after_two_loads(NEW - FeatureFlags::PCID, back);
    assert_eq!(untagged, Seen { stayed: 3, gone: 9 });
}

#[test]
fn another_tag_costs_everything_only_where_invpcid_is_missing() {
    let other = Op::Tagged(InvpcidKind::Context(pcid(1)));
    assert_eq!(after_two_loads(NEW, other).gone, 9);
    assert_eq!(after_two_loads(OLD, other).stayed, 0);
    let loaded = Op::Tagged(InvpcidKind::Context(pcid(2)));
    assert_eq!(after_two_loads(OLD, loaded).gone, 9);
}

#[test]
fn stopping_drops_all_tags_and_can_be_undone() {
    let processor = processor(NEW);
    let mut kernel = Kernel::new(&processor);
    for step in [Step::Switch(1), Step::Switch(2), Step::Restart] {
        kernel.take(step);
    }
    assert!(processor.has_pcids_on());
    let tags: Vec<_> = processor.caches().tables.keys().map(|t| t.tag).collect();
    assert!(tags.iter().all(|&tag| tag == 0), "{tags:?}");
}

#[test]
#[should_panic(expected = "#GP: PCIDE with CR3 bits 11:0 set")]
fn turning_tags_on_under_a_tag_faults() {
    let processor = processor(NEW);
    let port = &processor;
    // SAFETY: emulated.
    unsafe { port.write_cr3(port.read_cr3() | 8) };
    let _ = port.irq_save();
    // SAFETY: emulated.
    unsafe { port.write_cr4(port.read_cr4() | CR4_PCIDE) };
}

#[test]
#[should_panic(expected = "#GP: CR3 bit 63 without PCIDE")]
fn keeping_on_a_cpu_that_was_not_started_faults() {
    let processor = processor(NEW);
    let tlb = not_started(&processor);
    // SAFETY: emulated.
    unsafe { tlb.load_tagged_root(Tables::root_address(1), pcid(1), TagEntries::Keep) };
}

#[test]
#[should_panic(expected = "#GP: a tag without PCIDE")]
fn invpcid_of_a_tag_without_tags_faults() {
    // SAFETY: emulated, and the point.
    unsafe { (&processor(NEW)).invpcid(InvpcidKind::Context(pcid(1))) };
}

#[test]
#[should_panic(expected = "dropped Cached")]
fn dropping_more_than_needed_is_noticed() {
    let processor = processor(NEW);
    let tlb = start(&processor);
    let mut seen = Seen::default();
    check(
        &processor,
        &tlb,
        Op::Load(1, pcid(1), TagEntries::Drop),
        &mut seen,
    );
    // A second value that knows nothing of tags loads CR3 as it always did.
    // SAFETY: emulated, and the point.
    let plain = unsafe { Tlb::with_port(&processor, processor.features()) };
    let keep = Op::Load(1, pcid(0), TagEntries::Keep);
    check(&processor, &plain, keep, &mut seen);
}

/// Changes a page of the kernel while a space is loaded.
const KERNEL_CHANGE: [Step; 2] = [Step::Switch(1), Step::Change(1, KERNEL_PAGE, Some(77))];

#[test]
#[should_panic(expected = "stale Cached")]
fn invlpg_that_misses_global_pages_is_noticed() {
    let processor = processor(NEW).with_invlpg_misses();
    let mut kernel = Kernel::new(&processor);
    KERNEL_CHANGE.into_iter().for_each(|step| kernel.take(step));
}

#[test]
fn invlpg_that_misses_global_pages_is_avoided_by_the_list() {
    let raptor_lake = Model {
        vendor: Vendor::Intel,
        family: 6,
        model: 0xb7,
        stepping: 1,
    };
    let processor = processor(NEW).with_invlpg_misses();
    let features = processor.features().with_processor(raptor_lake);
    assert!(!PcidSupport::judge(&features, || Microcode(0x100)).is_usable());
    // So tags stay off, and INVLPG reaches global pages.
    // SAFETY: they are the processor's.
    let tlb = unsafe { Tlb::with_port(&processor, &features) };
    let map = Op::Map(0, KERNEL_PAGE, 77);
    for op in [map, Op::Page(KERNEL_PAGE)] {
        check(&processor, &tlb, op, &mut Seen::default());
    }
    let mut usable = processor.usable().into_iter();
    assert!(usable.all(|cached| cached.page != KERNEL_PAGE || cached.leaf.frame == 77));
}

/// Frees the tables of two regions by one flush while their space is loaded.
const DIRECTORY: [Step; 2] = [Step::Switch(1), Step::Directory(1)];

#[test]
fn freed_tables_go_whatever_efer_tce_says() {
    for processor in [
        processor(NEW),
        processor(NEW).with_tce_clear(),
        processor(NEW - FeatureFlags::TCE),
        processor(OLD),
        processor(NEW - FeatureFlags::PCID),
    ] {
        let mut kernel = Kernel::new(&processor);
        DIRECTORY.into_iter().for_each(|step| kernel.take(step));
    }
}

/// What `with_tce_clear` is for: no more goes than INVLPG drops.
#[test]
fn a_cpu_with_efer_tce_clear_keeps_other_pages() {
    let processor = processor(NEW).with_tce_clear();
    // SAFETY: it is.
    let tlb = unsafe { start(&processor).with_tce_clear() };
    let mut kernel = Kernel::with(&processor, tlb);
    DIRECTORY.into_iter().for_each(|step| kernel.take(step));
    kernel.take(Step::Switch(2));
    let mut seen = Seen::default();
    check(
        &processor,
        &tlb,
        Op::Pages(USER_PAGE, Depth::Tables),
        &mut seen,
    );
    // The page, and the tables of its tag.
    assert_eq!(seen.gone, 1 + 3);
}

#[test]
#[should_panic(expected = "stale Cached")]
fn efer_tce_that_is_said_to_be_clear_and_is_not_is_noticed() {
    let processor = processor(NEW);
    // SAFETY: emulated, and the point.
    let tlb = unsafe { start(&processor).with_tce_clear() };
    let mut kernel = Kernel::with(&processor, tlb);
    DIRECTORY.into_iter().for_each(|step| kernel.take(step));
}

#[test]
fn changes_under_a_tag_that_is_not_loaded_are_seen_when_it_is() {
    for flags in [NEW, OLD, NEW - FeatureFlags::PCID, NEW - FeatureFlags::PGE] {
        let processor = processor(flags);
        let mut kernel = Kernel::new(&processor);
        for step in [
            Step::Switch(1),
            Step::Switch(2),
            Step::Change(1, USER_PAGE, Some(9)),
            Step::Table(1, 1),
            Step::Switch(1),
            Step::Change(1, KERNEL_PAGE, Some(8)),
            Step::Switch(2),
        ] {
            kernel.take(step);
        }
    }
}

#[test]
fn global_pages_are_off_and_on_again_around_a_flush_of_everything() {
    let processor = processor(OLD);
    let tlb = start(&processor);
    tlb.flush_all();
    let port = &processor;
    assert_eq!(port.read_cr4(), CR4_PAE | CR4_PGE | CR4_PCIDE);
}
