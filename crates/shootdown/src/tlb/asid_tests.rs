//! Which tag a space gets.

use super::*;

const GENERATION: TlbGen = TlbGen::from_raw(7);

fn space(raw: u64) -> SpaceId {
    SpaceId(raw)
}

/// Loads the spaces in turn, each leaving its tag at generation 7; tells why each tag was chosen.
fn loads(slots: &[AsidSlot], policy: Policy, spaces: impl Iterator<Item = u64>) -> Vec<Why> {
    let (slots, turn) = (Slots::new(slots, GlobalTags::NONE), OwnWord::new());
    spaces
        .map(|raw| {
            let choice = slots.choose(policy, space(raw), GENERATION, &turn);
            slots.leave(choice.asid, space(raw), GENERATION, false);
            choice.why
        })
        .collect()
}

extern crate std;
use std::vec::Vec;

fn some<const COUNT: usize>() -> [AsidSlot; COUNT] {
    [const { AsidSlot::new() }; COUNT]
}

#[test]
fn six_slots_hold_six_spaces_and_fall_off_at_seven() {
    let six = Policy::BEST.with_tags(Tags::Six);
    for (spaces, kept) in [(6, 12), (7, 0)] {
        let whys = loads(&some::<64>(), six, (0..3 * spaces).map(|i| 1 + i % spaces));
        let current = whys.iter().filter(|why| **why == Why::Current).count();
        assert_eq!(current, kept, "{spaces} spaces");
    }
}

#[test]
fn a_host_may_have_fewer_than_six_slots() {
    let six = Policy::BEST.with_tags(Tags::Six);
    let whys = loads(&some::<3>(), six, (0..6).map(|i| 1 + i % 3));
    assert_eq!(whys[3..], [Why::Current; 3]);
}

#[test]
fn all_slots_hold_as_many_spaces_in_sequence() {
    for spaces in [12, 64] {
        let whys = loads(
            &some::<64>(),
            Policy::BEST,
            (0..2 * spaces).map(|i| 90 + i % spaces),
        );
        assert!(
            whys[spaces as usize..]
                .iter()
                .all(|why| *why == Why::Current),
            "{spaces} spaces"
        );
    }
}

#[test]
fn the_candidates_of_a_space_lie_in_one_cache_line() {
    let slots = some::<70>();
    let slots = Slots::new(&slots, GlobalTags::NONE);
    for raw in 0..200 {
        let range = slots.candidates(Tags::All, space(raw));
        assert_eq!((range.len(), range.start % WAYS), (WAYS, 0));
        assert!(range.end <= 68);
    }
}

#[test]
fn a_tag_that_missed_a_flush_is_dropped() {
    let slots = some::<4>();
    let (slots, turn) = (Slots::new(&slots, GlobalTags::NONE), OwnWord::new());
    let first = slots.choose(Policy::BEST, space(1), GENERATION, &turn);
    slots.leave(first.asid, space(1), GENERATION, false);
    let newer = TlbGen::from_raw(8);
    let second = slots.choose(Policy::BEST, space(1), newer, &turn);
    assert_eq!((second.asid, second.why), (first.asid, Why::Behind));
    assert_eq!(second.entries, TagEntries::Drop);
}

#[test]
fn no_slots_and_no_tags_are_the_same() {
    let turn = OwnWord::new();
    for (slots, policy) in [
        (Slots::new(&[], GlobalTags::NONE), Policy::BEST),
        (
            Slots::new(&some::<8>(), GlobalTags::NONE),
            Policy::BEST.with_tags(Tags::None),
        ),
    ] {
        let choice = slots.choose(policy, space(1), GENERATION, &turn);
        assert_eq!(
            (choice.asid, choice.entries),
            (Asid::UNTAGGED, TagEntries::Drop)
        );
    }
}

#[test]
fn fewer_slots_than_ways_are_all_used() {
    let whys = loads(&some::<2>(), Policy::BEST, [1, 2, 1, 2, 3, 2].into_iter());
    assert_eq!(
        whys,
        [
            Why::Taken,
            Why::Taken,
            Why::Current,
            Why::Current,
            Why::Taken,
            Why::Current
        ]
    );
}

#[test]
fn voiding_spares_the_loaded_tag() {
    let slots = some::<4>();
    let (slots, turn) = (Slots::new(&slots, GlobalTags::NONE), OwnWord::new());
    let kept = slots.choose(Policy::BEST, space(1), GENERATION, &turn).asid;
    slots.leave(kept, space(1), GENERATION, false);
    let other = slots.choose(Policy::BEST, space(2), GENERATION, &turn).asid;
    slots.leave(other, space(2), GENERATION, false);
    slots.void_all_but(kept);
    let why = |raw| {
        slots
            .choose(Policy::BEST, space(raw), GENERATION, &turn)
            .why
    };
    assert_eq!((why(1), why(2)), (Why::Current, Why::Taken));
}
