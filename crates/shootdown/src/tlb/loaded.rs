//! [`CpuTlb`]: what one CPU has loaded, and which translations it may still hold.

use crate::sync::{OwnFlag, OwnWord};
use crate::tlb::{Asid, KernelRoot, SpaceId, TlbGen};

/// Changes of the loaded space after the generation that a CPU has recorded: bit `i` is the change `i + 1` further on. The last bit stands for that change
/// and all behind it, and is never recorded by its bit alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Changes(pub(super) u64);

impl Changes {
    pub(super) const NONE: Self = Self(0);
    const FAR: u64 = 1 << 63;

    #[inline]
    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether they follow the recorded one without a gap.
    #[inline]
    pub(super) fn follow(self) -> bool {
        self.0 & self.0.wrapping_add(1) == 0 && self.0 & Self::FAR == 0
    }

    /// Whether one is missing before the newest, or none, as far as bits reach.
    #[inline]
    pub(super) fn lack_one_at_most(self) -> bool {
        let missing = !self.0 & u64::MAX.checked_shr(self.0.leading_zeros()).unwrap_or(0);
        missing & missing.wrapping_sub(1) == 0 && self.0 & Self::FAR == 0
    }
}

/// How far one CPU has dropped what one count of changes is about: that of a space, or of a [region](crate::reach::Region).
#[derive(Debug)]
pub(crate) struct Seen {
    /// No translation here is older than this generation (I3).
    generation: OwnWord,
    /// The changes after it that were dropped here before one that came earlier, as [`Changes`].
    apart: OwnWord,
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self {
            generation: OwnWord::new(),
            apart: OwnWord::new(),
        }
    }

    #[inline]
    pub(crate) fn generation(&self) -> TlbGen {
        TlbGen::from_raw(self.generation.get())
    }

    /// Everything up to `generation` has been dropped, or nothing of the space was cached before.
    #[inline]
    pub(crate) fn record(&self, generation: TlbGen) {
        self.generation.set(generation.as_u64());
        self.apart.set(0);
    }

    /// Everything was dropped, after the change `generation` was made.
    #[inline]
    pub(super) fn record_whole(&self, generation: TlbGen) {
        // Who knows of a change knows that those before it were made.
        let ahead = u64::BITS - self.apart().0.leading_zeros();
        let known = TlbGen::from_raw(self.generation.get() + u64::from(ahead));
        self.record(generation.max(known));
    }

    /// What `changes` are about has been dropped.
    #[inline]
    pub(super) fn record_changes(&self, changes: Changes) {
        let before = self.apart();
        let known = before.and(changes);
        // Those that follow the recorded one without a gap need no bits any more; the others are counted from there.
        let follow = known.0.trailing_ones();
        if follow > 0 {
            self.generation
                .set(self.generation.get() + u64::from(follow));
        }
        let apart = Changes(known.0.checked_shr(follow).unwrap_or(0));
        if apart != before {
            self.apart.set(apart.0);
        }
    }

    /// The changes after [`generation`](Self::generation) that were dropped.
    #[inline]
    pub(super) fn apart(&self) -> Changes {
        Changes(self.apart.get())
    }

    /// The change `generation`, which is none of those that were dropped.
    #[inline]
    pub(super) fn change(&self, generation: TlbGen) -> Changes {
        let ahead = generation.as_u64() - self.generation.get();
        Changes(1 << (ahead - 1).min(63))
    }
}

/// What one CPU's TLB may hold. Its CPU alone uses it, with interrupts off; NMI-like contexts read it.
#[derive(Debug)]
pub(crate) struct CpuTlb {
    /// The loaded space; [`SpaceId::KERNEL`] for a root without a user part, and while another is being loaded.
    loaded: OwnWord,
    /// Which changes of the loaded space were dropped here.
    pub(super) seen: Seen,
    /// A flush that was acknowledged, or that passed the deferring CPU by, has yet to be done: user memory must not be
    /// touched on this CPU.
    pub(super) owes_flush: OwnFlag,
    /// The tag of the loaded root.
    asid: OwnWord,
    /// The loaded root, where it may have to be loaded again under a [global tag](crate::remote::GlobalTags). Without global tags: between the halves of a switch, the
    /// space that is being loaded.
    pub(super) root: OwnWord,
    /// Whether the user side of the tag missed a flush.
    pub(super) user_side_due: OwnFlag,
    /// The space that the host has not left: the loaded one, or the one that the CPU was lazy in when it had to
    /// let go. One that is [being left](SpaceId::being_left) between the halves of a switch.
    host: OwnWord,
    /// The root to load when a lazy CPU has to let go.
    pub(super) lazy_root: OwnWord,
    /// Whose turn it is to lose a tag.
    pub(crate) turn: OwnWord,
    /// A kernel range was flushed under the loaded tag only: the others must be dropped before they are used.
    pub(super) others_void: OwnFlag,
    /// The complement of the kernel root of which alone [`Asid::UNTAGGED`] holds translations, none of them void; zero where it may hold others.
    untagged: OwnWord,
    /// The name of the [private root](crate::windows::WindowRoot) that is loaded; [`SpaceId::KERNEL`] for another root.
    pub(super) private_name: OwnWord,
    /// That root, and the shared one of its space.
    pub(super) private_root: OwnWord,
    pub(super) shared_root: OwnWord,
    /// The address of the [`ReachRoot`](crate::reach::ReachRoot) of that root, or zero.
    pub(super) own_root: OwnWord,
    /// How often its windows had changed when the translations here were last known to be none but theirs.
    pub(super) window_changes: OwnWord,
}

impl CpuTlb {
    pub(crate) const fn new() -> Self {
        Self {
            loaded: OwnWord::new(),
            seen: Seen::new(),
            owes_flush: OwnFlag::new(),
            asid: OwnWord::new(),
            root: OwnWord::new(),
            user_side_due: OwnFlag::new(),
            host: OwnWord::new(),
            lazy_root: OwnWord::new(),
            turn: OwnWord::new(),
            others_void: OwnFlag::new(),
            untagged: OwnWord::new(),
            private_name: OwnWord::new(),
            private_root: OwnWord::new(),
            shared_root: OwnWord::new(),
            own_root: OwnWord::new(),
            window_changes: OwnWord::new(),
        }
    }

    /// Its CPU has stopped for good, and has a root without a user part.
    pub(crate) fn reset(&self) {
        self.begin_load();
        let words = [
            &self.asid,
            &self.root,
            &self.host,
            &self.untagged,
            &self.private_name,
        ];
        words.into_iter().for_each(|word| word.set(0));
        self.owes_flush.set(false);
        self.others_void.set(false);
    }

    #[inline]
    pub(crate) fn loaded(&self) -> SpaceId {
        SpaceId(self.loaded.get())
    }

    #[inline]
    pub(crate) fn generation(&self) -> TlbGen {
        self.seen.generation()
    }

    /// As [`Seen::record`].
    #[inline]
    pub(crate) fn record(&self, generation: TlbGen) {
        self.seen.record(generation);
    }

    #[inline]
    pub(crate) fn asid(&self) -> Asid {
        Asid::new(self.asid.get() as u16)
    }

    /// A root is about to be loaded: from here to [`set_loaded`](Self::set_loaded) no space is.
    #[inline]
    pub(crate) fn begin_load(&self) {
        self.loaded.set(SpaceId::KERNEL.0);
    }

    #[inline]
    pub(crate) fn set_loaded(&self, space: SpaceId, generation: TlbGen, asid: Asid) {
        self.asid.set(u64::from(asid.as_u16()));
        self.record(generation);
        self.loaded.set(space.0);
    }

    #[inline]
    pub(crate) fn host(&self) -> SpaceId {
        SpaceId(self.host.get())
    }

    #[inline]
    pub(crate) fn set_host(&self, space: SpaceId) {
        self.host.set(space.0);
    }

    /// Whether [`Asid::UNTAGGED`] holds nothing but translations of `root`, none of them void.
    #[inline]
    pub(crate) fn is_untagged(&self, root: KernelRoot) -> bool {
        self.untagged.get() == !root.as_u64()
    }

    #[inline]
    pub(crate) fn set_untagged(&self, root: Option<KernelRoot>) {
        self.untagged.set(root.map_or(0, |root| !root.as_u64()));
    }

    /// The name of the private root that is loaded; [`SpaceId::KERNEL`] if it is another root.
    #[inline]
    pub(super) fn private_name(&self) -> SpaceId {
        SpaceId(self.private_name.get())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Changes, Seen};
    use crate::tlb::TlbGen;

    const CHANGES: usize = 400;

    fn next(state: &mut u64) -> u64 {
        // Xorshift: Marsaglia 2003.
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    /// A change counts as dropped only if it was, and all that were dropped count, as far as bits reach.
    #[test]
    fn what_is_recorded_is_what_was_dropped() {
        for seed in 1..200 {
            let (mut state, seen) = (seed * 0x9e37_79b9, Seen::new());
            let mut dropped = [false; CHANGES];
            let (mut taken, mut reach) = ([false; CHANGES], 1 + next(&mut state) as usize % 70);
            while let Some(first) = taken.iter().position(|taken| !taken) {
                let at = (first + next(&mut state) as usize % reach).min(CHANGES - 1);
                let generation = TlbGen::from_raw(at as u64 + 1);
                if core::mem::replace(&mut taken[at], true) || generation <= seen.generation() {
                    reach = 1 + next(&mut state) as usize % 70;
                    continue;
                }
                let change = seen.change(generation);
                let is_far = at as u64 - seen.generation().as_u64() >= 63;
                if is_far || next(&mut state).is_multiple_of(16) {
                    seen.record_whole(generation);
                    let known = dropped.iter().rposition(|dropped| *dropped);
                    dropped[..=at.max(known.unwrap_or(0))].fill(true);
                } else {
                    seen.record_changes(change);
                    dropped[at] = true;
                }
                let follow = dropped.iter().take_while(|dropped| **dropped).count();
                assert_eq!(seen.generation().as_u64(), follow as u64, "seed {seed}");
                for (ahead, dropped) in dropped[follow..].iter().enumerate().take(63) {
                    assert_eq!(seen.apart().0 >> ahead & 1 == 1, *dropped, "seed {seed}");
                }
            }
            assert_eq!(seen.generation().as_u64(), CHANGES as u64);
        }
    }

    #[test]
    fn gaps_are_counted() {
        for (changes, follows, lacks_one_at_most) in [
            (0b1, true, true),
            (0b1111, true, true),
            (0b10, false, true),
            (0b1011, false, true),
            (0b1_0111_1110, false, false),
            (0b100, false, false),
            (u64::MAX >> 1, true, true),
            (u64::MAX >> 1 & !(1 << 40), false, true),
            (u64::MAX, false, false),
            (u64::MAX << 1, false, false),
        ] {
            let changes = Changes(changes);
            let found = (changes.follow(), changes.lack_one_at_most());
            assert_eq!(found, (follows, lacks_one_at_most), "{changes:?}");
        }
    }

    /// A root of another space, or one that was loaded anew.
    #[test]
    fn nothing_is_apart_after_a_load() {
        let seen = Seen::new();
        seen.record_changes(Changes(0b10));
        assert_ne!(seen.apart(), Changes::NONE);
        seen.record(TlbGen::from_raw(7));
        assert_eq!(seen.apart(), Changes::NONE);
    }
}
