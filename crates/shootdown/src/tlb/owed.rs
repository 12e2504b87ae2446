//! [`OwedFlush`]: what a CPU has acknowledged, and has still to flush.
//!
//! A responder acknowledges flushes of user pages as it finds them, and flushes once for all of them, before anything here uses
//! user memory (I5). So the line of each request moves once, and a storm costs one flush.

use crate::sync::OwnWord;
use crate::tlb::ranges::{PackedRanges, RANGES};
use crate::tlb::{Changes, FlushRequest, SpaceId, TlbGen};

/// Changes of one space that this CPU has still to flush; none at the start. Its CPU alone uses it, with interrupts off.
#[derive(Debug)]
pub(crate) struct OwedFlush {
    /// Which, as [`Changes`].
    changes: OwnWord,
    space: OwnWord,
    newest: OwnWord,
    /// The newest change of the loaded space whose initiator waits for the flush; zero while nobody looks for them.
    awaited: OwnWord,
    ranges: [OwnWord; RANGES],
}

impl OwedFlush {
    pub(crate) const fn new() -> Self {
        Self {
            changes: OwnWord::new(),
            space: OwnWord::new(),
            newest: OwnWord::new(),
            awaited: OwnWord::new(),
            ranges: [const { OwnWord::new() }; RANGES],
        }
    }

    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.changes.get() == 0
    }

    /// Adds `change`, which `flush` is about, of the space that those before are of.
    #[inline]
    pub(super) fn add(&self, flush: &FlushRequest, change: Changes) {
        let mut all = *flush;
        let changes = Changes(self.changes.get());
        if !changes.is_empty() {
            let before = self.request();
            all.generation = all.generation.max(before.generation);
            all.ranges = before.ranges.joined(flush.ranges);
        }
        self.changes.set(changes.and(change).0);
        self.space.set(all.space.raw());
        self.newest.set(all.generation.as_u64());
        for (word, own) in all.ranges.0.into_iter().zip(&self.ranges) {
            own.set(word);
        }
    }

    /// One flush for all changes, of the newest one's generation, and which they are; none any more.
    #[inline]
    pub(super) fn take(&self) -> (FlushRequest, Changes) {
        let owed = (self.request(), Changes(self.changes.get()));
        self.changes.set(0);
        owed
    }

    /// A change that is flushed in a moment, and acknowledged then.
    #[inline]
    pub(super) fn await_flush(&self, generation: TlbGen) {
        self.awaited.set(generation.max(self.awaited()).as_u64());
    }

    #[inline]
    pub(super) fn awaited(&self) -> TlbGen {
        TlbGen::from_raw(self.awaited.get())
    }

    #[inline]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.get() != 0
    }

    #[inline]
    pub(crate) fn forget_awaited(&self) {
        self.awaited.set(0);
    }

    fn request(&self) -> FlushRequest {
        FlushRequest {
            space: SpaceId::from_raw(self.space.get()),
            generation: TlbGen::from_raw(self.newest.get()),
            ranges: PackedRanges(self.ranges.each_ref().map(OwnWord::get)),
        }
    }
}
