//! Cases by hand, and counts.

use shootdown_x86::guest::{GuestEntries, GuestEntry, GuestTags};
use shootdown_x86::svm::{SvmFlags, SvmLacks, SvmTags, TlbControl, VmcbControl};
use shootdown_x86::vmx::EptVpidCap;

use super::super::tables::{Page, Tables};
use super::hypervisor::{Kind, Seen};
use super::processor::Memory;
use super::story::{Step, play, svm};
use super::svm::{Processor as SvmProcessor, SLOTS, SvmKind};
use super::vmx::{Processor as VmxProcessor, VmxKind};

pub const BY_ASID: SvmFlags = SvmFlags::FLUSH_BY_ASID.union(SvmFlags::VMCB_CLEAN);
pub const ALL_ONLY: SvmFlags = SvmFlags::VMCB_CLEAN;
pub const PAGE: Page = Page {
    region: 0,
    index: 1,
};
const CHANGE: Step = Step::Change(0, PAGE, Some(42));

pub fn enter(vcpu: usize) -> Step {
    Step::Enter(0, vcpu, false)
}

/// An entry of guest 0.
pub fn entry(tag: u16, entries: GuestEntries) -> GuestEntry {
    let root = Tables::root_address(0);
    GuestEntry { root, tag, entries }
}

/// What a guest has cached by the time it exits: two tables of its own and the shared one, nine pages, three virtual ones.
const ONE: usize = 3 + 9 + 3;

#[test]
fn with_flush_by_asid_nobody_pays_for_anothers_flush() {
    let steps = [enter(0), enter(2), CHANGE, enter(0), enter(2), enter(0)];
    let seen = play::<SvmKind>(svm(16, BY_ASID), false, &steps);
    let expected = Seen {
        kept: 2,
        dropped: 3,
        // The host's each time, and the other's from the second entry on.
        stayed: 5 + ONE + ONE + 2 * 2 * ONE,
        ..Seen::default()
    };
    assert_eq!(seen, expected);
}

#[test]
fn without_it_everything_goes_once_for_all_asids() {
    // The first entry, and each time that the four are used up.
    for (drops, alls) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)] {
        let steps: Vec<Step> = (0..drops).flat_map(|_| [CHANGE, enter(0)]).collect();
        let seen = play::<SvmKind>(svm(5, ALL_ONLY), false, &steps);
        assert_eq!((seen.dropped, seen.others), (drops, alls));
    }
}

#[test]
fn one_asid_is_enough() {
    let steps = [enter(0), enter(2), CHANGE, enter(0), enter(1)];
    let seen = play::<SvmKind>(svm(2, ALL_ONLY), false, &steps);
    assert_eq!((seen.dropped, seen.others), (4, 4));
    let seen = play::<SvmKind>(svm(2, BY_ASID), false, &steps);
    assert_eq!((seen.dropped, seen.others, seen.stayed), (4, 0, 4));
}

#[test]
fn there_are_as_many_slots_as_asids_allow() {
    for (asids, by_asid, all_only) in [
        (2, 0, 0),
        (3, 1, 1),
        (5, 3, 2),
        (8, SLOTS, 3),
        (99, SLOTS, SLOTS),
    ] {
        let slots = |flags| SvmTags::<SLOTS>::new(&svm(asids, flags)).unwrap().slots();
        assert_eq!(
            (slots(BY_ASID), slots(ALL_ONLY)),
            (by_asid, all_only),
            "{asids}"
        );
    }
    for asids in [0, 1] {
        assert_eq!(
            SvmTags::<SLOTS>::new(&svm(asids, BY_ASID)).err(),
            Some(SvmLacks::Asids)
        );
    }
    let mut bare = svm(16, BY_ASID);
    bare.flags -= SvmFlags::NESTED_PAGING;
    assert_eq!(
        SvmTags::<SLOTS>::new(&bare).err(),
        Some(SvmLacks::NestedPaging)
    );
}

#[test]
fn everything_is_dropped_by_the_first_guest_that_runs_not_by_one_that_was_to() {
    let mut tags = SvmTags::<SLOTS>::new(&svm(5, ALL_ONLY)).unwrap();
    let mut control = VmcbControl::new();
    let mut enter = |tag, ran| {
        tags.enter(entry(tag, GuestEntries::Drop), &mut control)
            .unwrap();
        if ran {
            tags.ran();
        }
        (control.guest_asid(), control.tlb_control())
    };
    assert_eq!(enter(1, false), (1, TlbControl::All as u8));
    assert_eq!(enter(2, false), (2, TlbControl::All as u8));
    assert_eq!(enter(1, true), (3, TlbControl::All as u8));
    assert_eq!(enter(2, true), (4, TlbControl::Nothing as u8));
    assert_eq!(enter(2, true), (1, TlbControl::All as u8));
    assert_eq!(enter(1, true), (2, TlbControl::Nothing as u8));
}

#[test]
fn tags_lose_their_asids_when_these_begin_again() {
    let mut tags = SvmTags::<SLOTS>::new(&svm(5, ALL_ONLY)).unwrap();
    let mut control = VmcbControl::new();
    let mut enter = |tag, entries| {
        tags.enter(entry(tag, entries), &mut control).unwrap();
        tags.ran();
        (control.guest_asid(), control.tlb_control())
    };
    assert_eq!(enter(1, GuestEntries::Drop).0, 1);
    for asid in 2..=4 {
        assert_eq!(enter(2, GuestEntries::Drop).0, asid);
    }
    let all = TlbControl::All as u8;
    assert_eq!(enter(2, GuestEntries::Drop), (1, all));
    // Nothing is left to keep, and the old one is the other's.
    let nothing = TlbControl::Nothing as u8;
    assert_eq!(enter(1, GuestEntries::Keep), (2, nothing));
    assert_eq!(enter(2, GuestEntries::Keep), (1, nothing));
}

#[test]
fn what_is_kept_after_a_drop_drops_nothing_again() {
    for (flags, first) in [(BY_ASID, TlbControl::Guest), (ALL_ONLY, TlbControl::All)] {
        let mut tags = SvmTags::<SLOTS>::new(&svm(9, flags)).unwrap();
        let mut control = VmcbControl::new();
        let mut enter = |entries| {
            tags.enter(entry(1, entries), &mut control).unwrap();
            tags.ran();
            (control.guest_asid(), control.tlb_control())
        };
        let (asid, control) = enter(GuestEntries::Drop);
        assert_eq!(control, first as u8);
        assert_eq!(enter(GuestEntries::Keep), (asid, TlbControl::Nothing as u8));
    }
}

/// A guest without a tag shares its ASID, or its VPID, with all others: whoever says that something may be kept is wrong.
#[test]
fn without_a_tag_nothing_is_kept() {
    let steps = [
        (0, GuestEntries::Drop),
        (1, GuestEntries::Keep),
        (0, GuestEntries::Keep),
        (0, GuestEntries::DropLinear),
    ];
    for flags in [BY_ASID, ALL_ONLY] {
        let processor = SvmProcessor::new(svm(9, flags));
        untagged::<SvmKind>(&processor, &steps);
    }
    untagged::<VmxKind>(&VmxProcessor::new(EptVpidCap::all()), &steps);
}

fn untagged<K: Kind>(processor: &K::Processor, steps: &[(usize, GuestEntries)]) {
    let (mut tags, mut control, memory) = (K::tags(processor), K::control(), Memory::new(2, 2));
    for &(guest, entries) in steps {
        K::prepare(processor, guest, &mut control, true);
        let root = K::root(guest);
        let tag = 0;
        let now = K::caches(processor).begin();
        tags.enter(GuestEntry { root, tag, entries }, &mut control)
            .unwrap();
        K::launch(processor, guest, &mut control);
        tags.ran();
        let usable = K::caches(processor).usable(&memory);
        assert!(usable.iter().all(|&(_, born)| born >= now), "{entries:?}");
        K::caches(processor).exit(&memory);
    }
}

#[test]
fn another_root_is_read_again() {
    let processor = SvmProcessor::new(svm(9, BY_ASID));
    let (mut tags, mut control, memory) = (
        SvmKind::tags(&processor),
        VmcbControl::new(),
        Memory::new(2, 1),
    );
    for guest in [0, 1] {
        let root = Tables::root_address(guest);
        let (tag, entries) = (1, GuestEntries::Drop);
        tags.enter(GuestEntry { root, tag, entries }, &mut control)
            .unwrap();
        SvmKind::launch(&processor, 0, &mut control);
        assert_eq!(processor.caches().running().unwrap().root, guest);
        processor.caches().exit(&memory);
    }
}

#[test]
fn vmx_drops_what_it_must_by_the_least_that_it_has() {
    let own = Step::ChangeOwn(0, 1, PAGE);
    let steps = [
        enter(0),
        enter(1),
        enter(2),
        own,
        enter(0),
        CHANGE,
        enter(0),
        enter(2),
    ];
    let left = |cap, is_fine| {
        let seen = play::<VmxKind>(cap, is_fine, &steps);
        (seen.linear, seen.dropped, seen.others)
    };
    assert_eq!(left(EptVpidCap::all(), true), (1, 4, 0));
    assert_eq!(left(EptVpidCap::all(), false), (0, 5, 0));
    let only_all = EptVpidCap::all() - EptVpidCap::INVVPID_CONTEXT - EptVpidCap::INVEPT_CONTEXT;
    assert_eq!(left(only_all, true), (1, 4, 3));
    // INVEPT instead: what nested tables said goes too.
    assert_eq!(
        left(
            EptVpidCap::all() - EptVpidCap::INVVPID_CONTEXT - EptVpidCap::INVVPID_ALL,
            true
        ),
        (1, 4, 1)
    );
    assert_eq!(
        left(EptVpidCap::all() - EptVpidCap::INVVPID, true),
        (1, 4, 1)
    );
}
