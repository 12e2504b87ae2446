//! [`FlushGuard`]: the lock of page tables, whose end is the flush.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::tlb::{FlushRange, FlushRanges, FlushScope, FreedTables, PageSize};

/// Holds the lock of page tables and gathers what is changed under it. Dropping it submits one flush of all changes, releases the lock, waits,
/// and gives what was unlinked to the function that frees it: in this order, also at the end of a statement and during a panic. If the flush itself unwinds, what
/// was unlinked is leaked; so it is where a [listener](crate::secondary) fails.
///
/// `L` is the host's guard of the lock, which dropping releases. `C` is the host's collection of unlinked frames and tables, such as a `Vec`;
/// `()` where none is unlinked. It gets them under the lock: one that may have to wait for memory reserves it before. It gets each as a
/// [`ManuallyDrop`], which only the function at the end takes apart: other CPUs still use what a collection drops, or panics over because it is full, so that is
/// leaked.
///
/// ```
/// # use shootdown::*;
/// # use std::{mem::ManuallyDrop, sync::Mutex};
/// # struct Tables;
/// # impl Tables { fn clear(&mut self, _: usize) -> Option<u64> { None } }
/// # struct Process<C: Capacity> { space: AddressSpace<C>, tables: Mutex<Tables> }
/// fn unmap<P: Platform>(engine: &Shootdown<P>, process: &Process<P::Cpus>, page: usize) {
///     let lock = process.tables.lock().unwrap();
///     let mut tables = engine.guard(&process.space, lock, Vec::new(), |frames: Vec<_>| {
///         // No CPU reaches them any more.
///         frames.into_iter().map(ManuallyDrop::into_inner).for_each(drop::<u64>);
///     });
///     if let Some(frame) = tables.clear(page) {
///         tables.unlinked_page(page, PageSize::SIZE_4K, frame);
///     }
/// } // submit, unlock, wait, free
/// ```
///
/// It waits when it is dropped: interrupts and preemption in any state; spins, serving this CPU's flushes, as [`flush`](Shootdown::flush). Other
/// locks may be held if every CPU that spins for them with interrupts off [polls](Shootdown::poll). A guard that is forgotten
/// keeps its lock.
#[must_use = "dropping it flushes, and releases the lock"]
#[derive(Debug)]
pub struct FlushGuard<'a, P: Platform, L, C, F: FnOnce(C)> {
    engine: &'a Shootdown<P>,
    /// Whose tables are changed.
    scope: FlushScope<'a, P::Cpus>,
    ranges: FlushRanges,
    freed: FreedTables,
    /// The lock, what was unlinked, and what frees that; until it is dropped.
    held: Option<(L, C, F)>,
}

const HELD: &str = "a guard's parts are taken by its drop only";

impl<P: Platform> Shootdown<P> {
    /// A guard for changes of the page tables of `scope`, which `lock` protects. What is unlinked is gathered in `unlinked` and given to `free` when
    /// no CPU reaches it any more. Any context; does not block. A guest's tables are changed by guest-physical addresses, and not inside
    /// [`GuestSpace::run`](crate::guest::GuestSpace::run).
    ///
    /// # Panics
    /// When the space or guest is another engine's.
    #[track_caller]
    pub fn guard<'a, L, C, F: FnOnce(C)>(
        &'a self,
        scope: impl Into<FlushScope<'a, P::Cpus>>,
        lock: L,
        unlinked: C,
        free: F,
    ) -> FlushGuard<'a, P, L, C, F> {
        let scope = scope.into();
        self.check_scope(scope);
        FlushGuard {
            engine: self,
            scope,
            ranges: FlushRanges::EMPTY,
            freed: FreedTables::No,
            held: Some((lock, unlinked, free)),
        }
    }
}

impl<P: Platform, L, C, F: FnOnce(C)> FlushGuard<'_, P, L, C, F> {
    /// The leaf entry for the page at `address` was cleared or replaced, and `frame` is what it mapped. Any context.
    pub fn unlinked_page<T>(&mut self, address: usize, size: PageSize, frame: T)
    where
        C: Extend<ManuallyDrop<T>>,
    {
        self.ranges.add(FlushRange::pages(address, 1, size));
        self.keep(frame);
    }

    /// A page-table page was unlinked that translated the region of size `covered` at `address`. Any context.
    pub fn unlinked_table<T>(&mut self, address: usize, covered: PageSize, table: T)
    where
        C: Extend<ManuallyDrop<T>>,
    {
        self.freed = FreedTables::Yes;
        self.ranges.add(FlushRange::of_table(address, covered));
        self.keep(table);
    }

    /// Entries in `ranges` were changed and nothing was unlinked (protection). Any context.
    pub fn changed(&mut self, ranges: impl Into<FlushRanges>) {
        self.ranges.merge(&ranges.into());
    }

    fn keep<T>(&mut self, unlinked: T)
    where
        C: Extend<ManuallyDrop<T>>,
    {
        let (_, all, _) = self.held.as_mut().expect(HELD);
        all.extend([ManuallyDrop::new(unlinked)]);
    }
}

impl<P: Platform, L, C, F: FnOnce(C)> Drop for FlushGuard<'_, P, L, C, F> {
    fn drop(&mut self) {
        let (lock, unlinked, free) = self.held.take().expect(HELD);
        // Leaked if the submission unwinds.
        let unlinked = ManuallyDrop::new(unlinked);
        let ticket = (self.engine).submit_flush(self.scope, self.ranges, self.freed);
        let ticket = ticket.hold(ManuallyDrop::into_inner(unlinked));
        drop(lock);
        // What a listener may still use is leaked, and counted.
        _ = ticket.try_wait().map(free);
    }
}

impl<P: Platform, L: Deref, C, F: FnOnce(C)> Deref for FlushGuard<'_, P, L, C, F> {
    type Target = L::Target;

    fn deref(&self) -> &L::Target {
        &self.held.as_ref().expect(HELD).0
    }
}

impl<P: Platform, L: DerefMut, C, F: FnOnce(C)> DerefMut for FlushGuard<'_, P, L, C, F> {
    fn deref_mut(&mut self) -> &mut L::Target {
        &mut self.held.as_mut().expect(HELD).0
    }
}
