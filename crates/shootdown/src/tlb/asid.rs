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
use crate::tlb::{GlobalTags, SpaceId, TlbGen};

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
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub struct AsidSlot {
    /// Names only its engine when void; nothing while no engine has the CPU online.
    space: OwnWord,
    /// The generation, twice; plus one when the [user side](crate::user_memory::UserMemory::enter_user) is older.
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
        SpaceId(self.space.get())
    }

    fn void(&self) {
        let nobody = SpaceId::of_engine(self.space().engine(), 0);
        self.space.set(nobody.0);
    }

    /// A load chooses this tag, which `is_its` if the space had it last. What the tag holds is kept if its generation `is_current`.
    fn choose(&self, asid: Asid, is_its: bool, is_current: impl Fn(TlbGen) -> bool) -> Choice {
        if !is_its {
            // From here on the tag is not the old space's; its entries go with this load.
            self.void();
            return Choice::dropping(asid, Why::Taken);
        }
        // Only what missed nothing is good enough: whatever the tag missed was not kept (I3, I10).
        let generation = self.generation.get();
        if !is_current(TlbGen::from_raw(generation >> 1)) {
            return Choice::dropping(asid, Why::Behind);
        }
        Choice {
            asid,
            entries: TagEntries::Keep,
            user_side_due: generation & 1 != 0,
            why: Why::Current,
        }
    }
}

/// How a tag was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) asid: Asid,
    pub(crate) entries: TagEntries,
    /// The user side must be dropped before it is loaded.
    pub(crate) user_side_due: bool,
    pub(crate) why: Why,
}

impl Choice {
    /// A tag of which nothing may be kept.
    fn dropping(asid: Asid, why: Why) -> Self {
        Self {
            asid,
            entries: TagEntries::Drop,
            user_side_due: true,
            why,
        }
    }
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
pub(crate) struct Slots<'a> {
    all: &'a [AsidSlot],
    /// How many of them belong to tags of this CPU's own.
    own: usize,
}

impl<'a> Slots<'a> {
    pub(crate) fn new(slots: &'a [AsidSlot], global: GlobalTags) -> Self {
        let all = &slots[..slots.len().min(MOST_SLOTS)];
        let first_global = global.first.slot().filter(|_| !global.is_none());
        let own = all.len().min(first_global.unwrap_or(MOST_SLOTS));
        Self { all, own }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.all.is_empty()
    }

    /// A tag for `space`, whose generation is `generation` now: its own, or the first that is void, or the next in turn, which `turn` counts.
    pub(crate) fn choose(
        self,
        policy: Policy,
        space: SpaceId,
        generation: TlbGen,
        turn: &OwnWord,
    ) -> Choice {
        let range = self.candidates(policy.tags(), space);
        let candidates = self.all.get(range.clone()).unwrap_or_default();
        if candidates.is_empty() {
            return Choice::dropping(Asid::UNTAGGED, Why::Untagged);
        }
        let found = candidates.iter().position(|slot| slot.space() == space);
        let is_void = |slot: &AsidSlot| slot.space().as_u64() == 0;
        let void = || candidates.iter().position(is_void);
        let index = found.or_else(void).unwrap_or_else(|| {
            let turns = turn.get();
            turn.set(turns.wrapping_add(1));
            turns as usize % candidates.len()
        });
        let asid = Asid::of_slot(range.start + index);
        candidates[index].choose(asid, found.is_some(), |known| known == generation)
    }

    /// The global tag of `space`; what it holds is kept if it is as old as one that `is_current`.
    pub(crate) fn choose_global(
        self,
        policy: Policy,
        asid: Asid,
        space: SpaceId,
        is_current: impl Fn(TlbGen) -> bool,
    ) -> Choice {
        let is_current = |known| policy.tags() != Tags::None && is_current(known);
        match self.slot(asid) {
            Some(slot) => slot.choose(asid, slot.space() == space, is_current),
            None => Choice::dropping(asid, Why::Taken),
        }
    }

    /// Where `space` may have its tag.
    fn candidates(self, tags: Tags, space: SpaceId) -> Range<usize> {
        let len = self.own;
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
    pub(crate) fn leave(self, asid: Asid, space: SpaceId, generation: TlbGen, user_side_due: bool) {
        if let Some(slot) = self.slot(asid) {
            slot.space.set(space.0);
            // Half of all generations is enough: one a nanosecond lasts for centuries.
            let doubled = generation.as_u64() << 1;
            slot.generation.set(doubled | u64::from(user_side_due));
        }
    }

    /// What the tag holds is not used again.
    pub(crate) fn forget(self, asid: Asid) {
        if let Some(slot) = self.slot(asid) {
            slot.void();
        }
    }

    /// The same of all tags that `space` had last.
    pub(crate) fn forget_name(self, space: SpaceId) {
        let has_it = |slot: &&AsidSlot| slot.space() == space;
        self.all.iter().filter(has_it).for_each(AsidSlot::void);
    }

    fn slot(self, asid: Asid) -> Option<&'a AsidSlot> {
        asid.slot().and_then(|index| self.all.get(index))
    }

    /// The tags belong to the engine with this number, from now on or already, and hold nothing. False if they are another's: each would believe what it
    /// wrote of a tag under which the other has loaded a root since.
    #[must_use]
    pub(crate) fn claim(self, engine: u64) -> bool {
        let is_free = |slot: &AsidSlot| [0, engine].contains(&slot.space().engine());
        let are_free = self.all.iter().all(is_free);
        if are_free {
            let void = SpaceId::of_engine(engine, 0);
            self.all.iter().for_each(|slot| slot.space.set(void.0));
        }
        are_free
    }

    /// The tags are no engine's any more.
    pub(crate) fn give_up(self) {
        self.all.iter().for_each(|slot| slot.space.set(0));
    }

    /// No tag but `kept` may be used again without dropping what it holds.
    pub(crate) fn void_all_but(self, kept: Asid) {
        for (index, slot) in self.all.iter().enumerate() {
            if kept.slot() != Some(index) {
                slot.void();
            }
        }
    }
}

#[cfg(test)]
#[path = "asid_tests.rs"]
mod tests;
