//! Hardware tags: which translations a CPU may keep when it loads another space (T4).
//!
//! A space has no tag of its own. Each CPU remembers, one [`AsidSlot`] a tag, which space used the tag last and
//! which generation its translations have; nobody else looks there. While a tag is not loaded nobody flushes
//! it: its generation falls behind, and the next load of its space finds that out and drops what the tag holds (I3). So a
//! flush never walks tags or CPUs that do not have the space loaded.
//!
//! A hypervisor uses the same for its guests: the root is that of the nested tables, the tag a VPID or a guest's ASID.
//!
//! A space may have its tag in few slots only, which share a cache line: looking for it costs one line however many
//! tags there are. Inside them the next to go is chosen round robin.

use core::ops::Range;

use crate::policy::{Policy, Tags};
use crate::sync::OwnWord;
use crate::tlb::{SpaceId, TlbGen, UserSide};

/// A hardware tag of translations (x86: PCID or VPID; AMD: ASID of a guest; Arm: ASID).
///
/// Tag 0 is [`UNTAGGED`](Self::UNTAGGED); tag `n` belongs to the slot with index `n - 1` of its CPU.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Asid(u16);

impl Asid {
    /// For roots without a tag of their own: the kernel's, and every root where tags are not used.
    pub const UNTAGGED: Self = Self(0);

    /// Tag `number`.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    const fn of_slot(index: usize) -> Self {
        Self(index as u16 + 1)
    }

    fn slot(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// Most slots that a CPU can use: as many as there are tags besides [`Asid::UNTAGGED`].
const MOST_SLOTS: usize = u16::MAX as usize;
/// The slots that a space may use under [`Tags::All`]: a cache line of them.
const WAYS: usize = 4;
/// The slots under [`Tags::Six`]. Linux: `TLB_NR_DYN_ASIDS` in `arch/x86/include/asm/tlbflush.h`.
const SIX: usize = 6;

/// What happens, when a root is loaded, to what its tag has cached.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TagEntries {
    /// It may be used.
    Keep,
    /// It is dropped, cached page-table entries included.
    Drop,
}

/// What one CPU knows of one tag: the space that used it last, and a generation that none of its translations
/// is older than.
///
/// A host with tags gives each CPU a slice of them ([`Platform::asid_slots`](crate::Platform::asid_slots)),
/// usually from a `static`; only the engine looks inside.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct AsidSlot {
    /// [`SpaceId::KERNEL`] when void.
    space: OwnWord,
    /// The generation, twice; plus one when the [user side](crate::Shootdown::enter_user) is older.
    generation: OwnWord,
}

impl AsidSlot {
    /// Remembers nothing.
    pub const fn new() -> Self {
        Self {
            space: OwnWord::new(),
            generation: OwnWord::new(),
        }
    }

    fn space(&self) -> SpaceId {
        SpaceId::from_raw(self.space.get())
    }

    fn generation(&self) -> TlbGen {
        TlbGen::from_raw(self.generation.get() >> 1)
    }

    fn user_side(&self) -> UserSide {
        match self.generation.get() & 1 {
            0 => UserSide::Current,
            _ => UserSide::Due,
        }
    }

    fn is_void(&self) -> bool {
        self.space() == SpaceId::KERNEL
    }

    fn set(&self, space: SpaceId, generation: TlbGen, user: UserSide) {
        self.space.set(space.as_u64());
        // Half of all generations is enough: one a nanosecond lasts for centuries.
        self.generation
            .set(generation.as_u64() << 1 | u64::from(user == UserSide::Due));
    }

    fn void(&self) {
        self.space.set(SpaceId::KERNEL.as_u64());
    }
}

impl Default for AsidSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// How a tag was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) asid: Asid,
    pub(crate) entries: TagEntries,
    pub(crate) user: UserSide,
    pub(crate) why: Why,
}

/// For the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    /// The space's tag is up to date.
    Current,
    /// The space has a tag, but it missed a flush.
    Behind,
    /// The tag was another space's, or nobody's.
    Taken,
    /// No tags.
    Untagged,
}

/// The slots of one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots<'a>(&'a [AsidSlot]);

impl<'a> Slots<'a> {
    pub(crate) fn new(slots: &'a [AsidSlot]) -> Self {
        Self(&slots[..slots.len().min(MOST_SLOTS)])
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// A tag for `space`, whose generation is `generation` now. `turn` says who goes when all slots are taken.
    pub(crate) fn choose(
        self,
        policy: Policy,
        space: SpaceId,
        generation: TlbGen,
        turn: &OwnWord,
    ) -> Choice {
        let range = self.candidates(policy.tags(), space);
        let Some(candidates) = self.0.get(range.clone()).filter(|slots| !slots.is_empty()) else {
            return Choice {
                asid: Asid::UNTAGGED,
                entries: TagEntries::Drop,
                user: UserSide::Due,
                why: Why::Untagged,
            };
        };
        if let Some(index) = candidates.iter().position(|slot| slot.space() == space) {
            // Only the newest generation is good enough: whatever the tag missed was not kept (I3, I10).
            let is_current = candidates[index].generation() == generation;
            let (entries, user, why) = match is_current {
                true => (
                    TagEntries::Keep,
                    candidates[index].user_side(),
                    Why::Current,
                ),
                false => (TagEntries::Drop, UserSide::Due, Why::Behind),
            };
            return Choice {
                asid: Asid::of_slot(range.start + index),
                entries,
                user,
                why,
            };
        }
        let index = candidates
            .iter()
            .position(AsidSlot::is_void)
            .unwrap_or_else(|| {
                let turns = turn.get();
                turn.set(turns.wrapping_add(1));
                turns as usize % candidates.len()
            });
        // From here on the tag is not the old space's; its entries go with this load.
        candidates[index].void();
        Choice {
            asid: Asid::of_slot(range.start + index),
            entries: TagEntries::Drop,
            user: UserSide::Due,
            why: Why::Taken,
        }
    }

    /// Where `space` may have its tag.
    fn candidates(self, tags: Tags, space: SpaceId) -> Range<usize> {
        let len = self.0.len();
        match tags {
            Tags::None => 0..0,
            Tags::Six => 0..len.min(SIX),
            Tags::All if len < WAYS => 0..len,
            Tags::All => {
                // Names are given out in sequence, so the remainder spreads them evenly.
                let set = (space.as_u64() % (len / WAYS) as u64) as usize;
                set * WAYS..(set + 1) * WAYS
            }
        }
    }

    /// Remembers what the tag holds as it is left.
    pub(crate) fn leave(self, asid: Asid, space: SpaceId, generation: TlbGen, user: UserSide) {
        if let Some(slot) = asid.slot().and_then(|index| self.0.get(index)) {
            slot.set(space, generation, user);
        }
    }

    /// No tag but `kept` may be used again without dropping what it holds.
    pub(crate) fn void_all_but(self, kept: Asid) {
        for (index, slot) in self.0.iter().enumerate() {
            if kept.slot() != Some(index) {
                slot.void();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: TlbGen = TlbGen::from_raw(7);

    fn space(raw: u64) -> SpaceId {
        SpaceId::from_raw(raw)
    }

    /// Loads the spaces in turn, each leaving its tag at generation 7; tells why each tag was chosen.
    fn loads(slots: &[AsidSlot], policy: Policy, spaces: impl Iterator<Item = u64>) -> Vec<Why> {
        let (slots, turn) = (Slots::new(slots), OwnWord::new());
        spaces
            .map(|raw| {
                let choice = slots.choose(policy, space(raw), GENERATION, &turn);
                slots.leave(choice.asid, space(raw), GENERATION, UserSide::Current);
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
        let slots = Slots::new(&slots);
        for raw in 0..200 {
            let range = slots.candidates(Tags::All, space(raw));
            assert_eq!((range.len(), range.start % WAYS), (WAYS, 0));
            assert!(range.end <= 68);
        }
    }

    #[test]
    fn a_tag_that_missed_a_flush_is_dropped() {
        let slots = some::<4>();
        let (slots, turn) = (Slots::new(&slots), OwnWord::new());
        let first = slots.choose(Policy::BEST, space(1), GENERATION, &turn);
        slots.leave(first.asid, space(1), GENERATION, UserSide::Current);
        let newer = TlbGen::from_raw(8);
        let second = slots.choose(Policy::BEST, space(1), newer, &turn);
        assert_eq!((second.asid, second.why), (first.asid, Why::Behind));
        assert_eq!(second.entries, TagEntries::Drop);
    }

    #[test]
    fn no_slots_and_no_tags_are_the_same() {
        let turn = OwnWord::new();
        for (slots, policy) in [
            (Slots::new(&[]), Policy::BEST),
            (Slots::new(&some::<8>()), Policy::BEST.with_tags(Tags::None)),
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
        let (slots, turn) = (Slots::new(&slots), OwnWord::new());
        let kept = slots.choose(Policy::BEST, space(1), GENERATION, &turn).asid;
        slots.leave(kept, space(1), GENERATION, UserSide::Current);
        let other = slots.choose(Policy::BEST, space(2), GENERATION, &turn).asid;
        slots.leave(other, space(2), GENERATION, UserSide::Current);
        slots.void_all_but(kept);
        let why = |raw| {
            slots
                .choose(Policy::BEST, space(raw), GENERATION, &turn)
                .why
        };
        assert_eq!((why(1), why(2)), (Why::Current, Why::Taken));
    }
}
