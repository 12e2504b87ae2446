//! Tags with one meaning everywhere, for processors that flush others by an instruction (x86: INVLPGB; Arm: TLBI).
//!
//! Such an instruction names a tag, and every CPU drops what it holds under it. So a space that many CPUs have loaded gets a tag that is its
//! own on all of them, once, and keeps it until it is dropped. From then on a flush is the instruction, however many CPUs there are, and
//! nobody reads the set of CPUs.
//!
//! 1. **Given.** A flush that has to reach [enough](crate::Policy::global_tags_from) CPUs enters the space's name into a [`TagSet`]. Who loads
//!    the space reads that after the barrier of I2, and loads it under the tag.
//! 2. **In transition**, CPUs may still have it loaded under tags of their own. Flushes interrupt all of them, lazy ones too; each loads the
//!    space again, under the tag, instead of flushing, and says so in its mark.
//! 3. **Settled** it is when an initiator has seen, after a barrier of its own, that every CPU in the space's set has said so. Who joins
//!    later sees the tag (I2).
//!
//! A CPU remembers for each tag which space used it last and how old what it holds is ([`AsidSlot`](crate::tags::AsidSlot)), global or not. So a
//! tag can be given to another space as soon as its owner is dropped: what a CPU has left of the old owner goes when it loads the new one.
//! And a change that was not flushed everywhere is missed by the CPUs that were elsewhere, which they notice as always (I3); those that were
//! are a [run](crate::tlb::TagRun), and what the tag holds may be used again.
//!
//! Private roots ([`WindowRoot`](crate::windows::WindowRoot)) hold more than the space, under tags of their own: a space with residents is flushed by
//! interrupts.

use crate::capacity::Capacity;
use crate::engine::Shootdown;
use crate::memory::{CpuMemory, Here};
use crate::own_set::ones_from;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering, array_of, const_fn, fence};
use crate::tlb::{AddressSpace, Asid, Attention, FlushRequest, SpaceId, TagEntries};

/// Who owns eight tags. A host gives the engine some, in a `static`; only the engine looks inside.
#[derive(Debug)]
#[repr(align(64))]
pub struct TagSet {
    owners: [Owner; Self::TAGS],
}

impl TagSet {
    /// As many as have their owners in one cache line.
    pub const TAGS: usize = 8;

    const_fn! {
        /// Eight tags of nobody.
        #[allow(clippy::new_without_default, reason = "not const under loom")]
        pub fn new() -> Self {
            Self {
                owners: array_of!(Owner(AtomicU64::new(0)); Self::TAGS),
            }
        }
    }

    /// Gives `space` a tag if there is one.
    fn give(&self, space: SpaceId) {
        // Relaxed: the barriers of I2 decide who must see it.
        let order = Ordering::Relaxed;
        let take = |owner: &Owner| owner.0.compare_exchange(0, space.0, order, order).is_ok();
        let _ = self.owners.iter().any(take);
    }

    /// No CPU has `space` loaded, and none will: its tag is nobody's.
    pub(super) fn take_back(&self, space: SpaceId) {
        if let Some(owner) = self.owners.iter().find(|owner| owner.is(space).is_some()) {
            // Relaxed: slots of CPUs that remember the old owner know its name, which no other space ever has.
            owner.0.store(0, Ordering::Relaxed);
        }
    }
}

/// Whose a tag is: the name of a space, and whether it is [settled](GlobalTag::is_settled); zero for nobody.
#[derive(Debug)]
struct Owner(AtomicU64);

impl Owner {
    /// Whether it is `space`, and then whether the tag is settled.
    fn is(&self, space: SpaceId) -> Option<bool> {
        // ORDERING: Acquire: who sees that the tag is settled comes after the look that found it so; pairs with `settle`.
        let owner = self.0.load(Ordering::Acquire);
        (owner & !SpaceId::SPARE_BIT == space.0).then_some(owner != space.0)
    }

    fn settle(&self, space: SpaceId) {
        // ORDERING: Release: see `is`.
        self.0
            .store(space.0 | SpaceId::SPARE_BIT, Ordering::Release);
    }
}

/// The tags that [`Platform::flush_everywhere`] can name. No CPU uses them but for the spaces that own them.
#[derive(Clone, Copy, Debug)]
pub struct GlobalTags {
    pub(super) first: Asid,
    sets: &'static [TagSet],
}

/// The tag that a space has on every CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalTag {
    pub(super) asid: Asid,
    /// Whether all CPUs that have the space loaded have it so.
    pub(super) is_settled: bool,
    owner: &'static Owner,
}

impl GlobalTags {
    /// No such tags.
    pub const NONE: Self = Self {
        first: Asid::UNTAGGED,
        sets: &[],
    };

    /// Eight tags for each of `sets`, from `first` on. Tags below are each CPU's own. A space may have one of the eight tags of one set, chosen
    /// by its number; where these are taken when it asks, it stays without.
    ///
    /// # Panics
    /// When `first` is [`Asid::UNTAGGED`], or there are not so many tags.
    pub const fn new(first: Asid, sets: &'static [TagSet]) -> Self {
        assert!(
            first.as_u16() != Asid::UNTAGGED.as_u16(),
            "the first global tag is UNTAGGED, which belongs to roots without a tag: begin at 1 or above"
        );
        assert!(
            first.as_u16() as usize + sets.len() * TagSet::TAGS <= u16::MAX as usize + 1,
            "more global tags than there are tags: take fewer sets"
        );
        Self { first, sets }
    }

    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self.sets.is_empty()
    }

    fn index(self, space: SpaceId) -> usize {
        (space.as_u64() % self.sets.len() as u64) as usize
    }

    /// That of `space`, if it has one.
    #[inline]
    pub(super) fn of(self, space: SpaceId) -> Option<GlobalTag> {
        if self.is_none() {
            return None;
        }
        let index = self.index(space);
        let owners = &self.sets[index].owners;
        owners.iter().enumerate().find_map(|(way, owner)| {
            let is_settled = owner.is(space)?;
            let asid = Asid::new(self.first.as_u16() + (index * TagSet::TAGS + way) as u16);
            Some(GlobalTag {
                asid,
                is_settled,
                owner,
            })
        })
    }
}

impl<P: Platform> Shootdown<P> {
    /// Flushes all CPUs by the platform's instruction, if `space` has a settled tag; false if that was not done. After the barrier of I1,
    /// with interrupts off.
    #[cold]
    pub(super) fn flush_everywhere(
        &self,
        here: Here<'_, P>,
        request: &FlushRequest,
        space: &AddressSpace<P::Cpus>,
    ) -> bool {
        let Some(tag) = self.platform.global_tags().of(space.id()) else {
            return false;
        };
        // A resident has said so before its barrier (I2), and may have a private root loaded.
        if !self.is_settled(tag, space)
            || space.has_residents()
            || P::CONFIG.has_reach && space.is_tracked()
            || !self.platform.flush_everywhere(tag.asid, request)
        {
            return false;
        }
        here.counters.flushes_everywhere.add(1);
        space.tag_run().add(request.generation());
        // Otherwise who loads it next finds the run.
        let follows = here.tlb.generation().as_u64() + 1 == request.generation().as_u64();
        if follows && here.tlb.loaded() == space.id() {
            here.tlb.record(request.generation());
        }
        true
    }

    /// Whether no CPU has `space` loaded under another tag, and none will.
    fn is_settled(&self, tag: GlobalTag, space: &AddressSpace<P::Cpus>) -> bool {
        if tag.is_settled {
            return true;
        }
        // ORDERING: read owner / read CPU set and marks, against store CPU bit and mark / read owner in `join`: either the CPU is seen
        // here, or it sees the tag. The barrier of I1 is too early: the owner may be newer.
        fence(Ordering::SeqCst);
        let is_settled = self.groups().all(|group| {
            let holders = space.cpu_set().group(group).load(Ordering::Acquire);
            ones_from(holders, 0).all(|lane| {
                let mark = &self.state(P::Cpus::cpu(group, lane)).lazy;
                mark.tagged() == space.id() || mark.get() == Attention::Detached
            })
        });
        if is_settled {
            tag.owner.settle(space.id());
        }
        is_settled
    }

    /// The flush of `space` has found its targets: if they are many, the space gets a tag.
    pub(super) fn consider_tag(&self, here: Here<'_, P>, space: &AddressSpace<P::Cpus>) {
        let tags = self.platform.global_tags();
        let from = usize::from(self.policy().global_tags_from());
        let is_tracked = P::CONFIG.has_reach && space.is_tracked();
        if from == 0
            || here.targets.len() < from
            || tags.is_none()
            || space.has_residents()
            || is_tracked
        {
            return;
        }
        let set = &tags.sets[tags.index(space.id())];
        // Once: two initiators would give it two.
        if space.owns_tag_in(set) {
            set.give(space.id());
        }
    }

    /// The tag under which this CPU, which has the shared root of `space` loaded, has to load it again.
    #[inline]
    pub(super) fn tag_due(&self, state: &CpuMemory<P>, space: SpaceId) -> Option<Asid> {
        let tag = self.tag_of_loaded(state, space);
        tag.filter(|asid| *asid != state.tlb.asid())
    }

    /// The global tag of `space`, which is loaded here, unless that is by a private root.
    #[inline]
    pub(super) fn tag_of_loaded(&self, state: &CpuMemory<P>, space: SpaceId) -> Option<Asid> {
        let tags = self.platform.global_tags();
        if tags.is_none() || self.has_private_loaded(state) {
            return None;
        }
        Some(tags.of(space)?.asid)
    }

    /// Loads the loaded root again, under another tag, of which nothing is kept. Interrupts are off.
    #[cold]
    pub(super) fn load_under(&self, here: Here<'_, P>, asid: Asid) {
        let tlb = &here.tlb;
        let (space, generation) = (tlb.loaded(), tlb.generation());
        self.tag_slots(here.cpu).forget(tlb.asid());
        self.load_value(here.state, tlb.root.get(), asid, TagEntries::Drop);
        tlb.set_loaded(space, generation, asid);
        tlb.user_side_due.set(true);
        here.lazy.set_tagged(space);
        here.counters.tags_globalized.add(1);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "global_tag_tests.rs"]
mod tests;

#[cfg(all(test, loom))]
#[path = "global_tag_models.rs"]
mod models;
