//! Who gets which tag.

extern crate std;

use super::{GlobalTags, TagSet};
use crate::tlb::{Asid, SpaceId};

fn space(number: u64) -> SpaceId {
    SpaceId::of_engine(3, number)
}

#[test]
fn a_space_has_one_tag_until_it_is_taken_back() {
    static SETS: [TagSet; 2] = [const { TagSet::new() }; 2];
    let tags = GlobalTags::new(Asid::new(7), &SETS);
    let set = |number| &tags.sets[tags.index(space(number))];
    let asid = |number| tags.of(space(number)).map(|tag| tag.asid.as_u16());
    assert_eq!(asid(4), None);
    set(4).give(space(4));
    set(5).give(space(5));
    set(6).give(space(6));
    assert_eq!([4, 5, 6].map(asid), [Some(7), Some(15), Some(8)]);
    tags.of(space(4)).unwrap().owner.settle(space(4));
    assert!(tags.of(space(4)).unwrap().is_settled);
    assert!(!tags.of(space(6)).unwrap().is_settled);
    set(4).take_back(space(4));
    set(8).give(space(8));
    assert_eq!([4, 5, 6, 8].map(asid), [None, Some(15), Some(8), Some(7)]);
    assert!(!tags.of(space(8)).unwrap().is_settled);
}

#[test]
fn a_full_set_gives_nothing() {
    static SETS: [TagSet; 1] = [TagSet::new()];
    let tags = GlobalTags::new(Asid::new(1), &SETS);
    (1..=TagSet::TAGS as u64 + 1).for_each(|number| tags.sets[0].give(space(number)));
    assert!(tags.of(space(TagSet::TAGS as u64)).is_some());
    assert!(tags.of(space(TagSet::TAGS as u64 + 1)).is_none());
    assert!(GlobalTags::NONE.of(space(1)).is_none());
}

#[test]
fn there_are_no_more_tags_than_a_tag_has_numbers() {
    static SETS: [TagSet; 1] = [TagSet::new()];
    let _ = GlobalTags::new(Asid::new(65528), &SETS);
    let refuses = |first| std::panic::catch_unwind(|| GlobalTags::new(first, &SETS)).is_err();
    assert!(refuses(Asid::UNTAGGED) && refuses(Asid::new(65529)));
}
