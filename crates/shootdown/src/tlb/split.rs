//! Split tags: a root for the kernel and one for user mode, each under a tag of its own.
//!
//! A kernel that hides itself from user mode (page-table isolation) gives every space two roots, so every tag of
//! the engine is a pair: the kernel side, which is loaded while the kernel runs, and the user side. The engine
//! flushes the loaded side at once. The user side is not loaded meanwhile, so it can wait: the CPU is told on its way
//! to user mode whether to drop it, once for any number of flushes. (Linux does the same: `user_pcid_flush_mask` in
//! `arch/x86/mm/tlb.c`.)

use crate::engine::Shootdown;
use crate::handle::UserMemory;
use crate::memory::CpuMemory;
use crate::platform::Platform;
use crate::tlb::{Asid, FlushRange, FreedTables, TagEntries};

impl<P: Platform> UserMemory<'_, P> {
    /// How to load the user side's root now: under which tag's user side, and whether what that has cached may be
    /// used. For hosts with two roots a space ([`Platform::splits_tags`]).
    ///
    /// Call it on the way to user mode, with interrupts off until the root is loaded, each time. Does not block.
    ///
    /// # Safety
    /// 1. The host loads the root as it is told, with interrupts off since this call, before the CPU runs in user mode: the engine takes the user side
    ///    for dropped.
    pub unsafe fn enter_user(self) -> (Asid, TagEntries) {
        let engine = self.0;
        let tlb = &engine.state(engine.platform.current_cpu()).tlb;
        let asid = tlb.asid();
        if asid == Asid::UNTAGGED {
            // Both sides share it, and so do all spaces.
            return (asid, TagEntries::Drop);
        }
        // I3: interrupts stay off until the drop is done, and nothing else looks.
        let entries = match tlb.user_side_due.replace(false) {
            false => TagEntries::Keep,
            true => TagEntries::Drop,
        };
        (asid, entries)
    }
}

impl<P: Platform> Shootdown<P> {
    /// The kernel side of the loaded tag has been flushed, a range of it or all: so is the user side, or remembered to be due.
    #[inline]
    pub(super) fn note_user_side(
        &self,
        state: &CpuMemory<P>,
        range: Option<(FlushRange, FreedTables)>,
    ) {
        let tlb = &state.tlb;
        let flush = |(range, freed)| self.platform.flush_user_side(tlb.asid(), range, freed);
        if self.platform.splits_tags() && !range.is_some_and(flush) {
            tlb.user_side_due.set(true);
        }
    }
}
