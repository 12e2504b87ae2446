//! [`FlushGuard`]: the lock of page tables, whose end is the flush.

use core::ops::{Deref, DerefMut};

use crate::capacity::{Capacity, Cpus};
use crate::engine::Shootdown;
use crate::platform::Platform;
use crate::tlb::{AddressSpace, FlushRange, PageSize, Unlinked};

/// Holds the lock of page tables and gathers what is changed under it. Dropping it submits one flush of all changes, releases the lock, waits,
/// and gives what was unlinked to the function that frees it: in this order, also at the end of a statement and during a panic.
///
/// `L` is the host's guard of the lock, which dropping releases. `C` is the host's collection of unlinked frames and tables, such as a `Vec`;
/// `()` where none is unlinked. It gets them under the lock: one that may have to wait for memory reserves it before.
///
/// ```
/// # use shootdown::*;
/// # use std::sync::Mutex;
/// # struct Tables;
/// # impl Tables { fn clear(&mut self, _: usize) -> Option<u64> { None } }
/// # struct Process<const N: usize> where Cpus<N>: Capacity { space: AddressSpace<N>, tables: Mutex<Tables> }
/// fn unmap<P: Platform>(engine: &Shootdown<P, 64>, process: &Process<64>, page: usize) {
///     let lock = process.tables.lock().unwrap();
///     let mut tables = engine.guard(&process.space, lock, Vec::new(), |frames: Vec<u64>| {
///         // No CPU reaches them any more.
///         drop(frames);
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
pub struct FlushGuard<'a, P: Platform, const N: usize, L, C, F: FnOnce(C)>
where
    Cpus<N>: Capacity,
{
    engine: &'a Shootdown<P, N>,
    /// None: the kernel's part.
    space: Option<&'a AddressSpace<N>>,
    changes: Unlinked,
    /// Until it is dropped.
    held: Option<Held<L, C, F>>,
}

#[derive(Debug)]
struct Held<L, C, F> {
    lock: L,
    unlinked: C,
    free: F,
}

impl<P: Platform, const N: usize> Shootdown<P, N>
where
    Cpus<N>: Capacity,
{
    /// A guard for changes of the page tables of `space`, which `lock` protects. What is unlinked is gathered in `unlinked` and given to `free` when
    /// no CPU reaches it any more. Any context; does not block.
    ///
    /// # Panics
    /// When `space` is another engine's.
    #[track_caller]
    pub fn guard<'a, L, C, F: FnOnce(C)>(
        &'a self,
        space: &'a AddressSpace<N>,
        lock: L,
        unlinked: C,
        free: F,
    ) -> FlushGuard<'a, P, N, L, C, F> {
        self.check_owner(space.id());
        FlushGuard::new(self, Some(space), lock, unlinked, free)
    }

    /// A guard for changes of the kernel's part, which all spaces share. As [`guard`](Self::guard).
    pub fn guard_kernel<L, C, F: FnOnce(C)>(
        &self,
        lock: L,
        unlinked: C,
        free: F,
    ) -> FlushGuard<'_, P, N, L, C, F> {
        FlushGuard::new(self, None, lock, unlinked, free)
    }
}

impl<'a, P: Platform, const N: usize, L, C, F: FnOnce(C)> FlushGuard<'a, P, N, L, C, F>
where
    Cpus<N>: Capacity,
{
    fn new(
        engine: &'a Shootdown<P, N>,
        space: Option<&'a AddressSpace<N>>,
        lock: L,
        unlinked: C,
        free: F,
    ) -> Self {
        let held = Some(Held {
            lock,
            unlinked,
            free,
        });
        Self {
            engine,
            space,
            changes: Unlinked::NOTHING,
            held,
        }
    }

    fn held(&mut self) -> &mut Held<L, C, F> {
        self.held.as_mut().expect("taken only by its drop")
    }

    /// The leaf entry for the page at `address` was cleared or replaced, and `frame` is what it mapped. Any context.
    pub fn unlinked_page<T>(&mut self, address: usize, size: PageSize, frame: T)
    where
        C: Extend<T>,
    {
        self.changes.page(address, size);
        self.held().unlinked.extend([frame]);
    }

    /// A page-table page was unlinked that translated the region of size `covered` at `address`. Any context.
    pub fn unlinked_table<T>(&mut self, address: usize, covered: PageSize, table: T)
    where
        C: Extend<T>,
    {
        self.changes.table(address, covered);
        self.held().unlinked.extend([table]);
    }

    /// Entries in `range` were changed and nothing was unlinked (protection). Any context.
    pub fn changed(&mut self, range: FlushRange) {
        self.changes.range(range);
    }
}

impl<P: Platform, const N: usize, L, C, F: FnOnce(C)> Drop for FlushGuard<'_, P, N, L, C, F>
where
    Cpus<N>: Capacity,
{
    fn drop(&mut self) {
        let Some(Held {
            lock,
            unlinked,
            free,
        }) = self.held.take()
        else {
            return;
        };
        let Unlinked { ranges, freed } = self.changes;
        let ticket = match self.space {
            Some(space) => self.engine.submit_flush(space, ranges, freed),
            None => self.engine.submit_flush_kernel(ranges, freed),
        };
        drop(lock);
        free(ticket.hold(unlinked).wait());
    }
}

impl<P: Platform, const N: usize, L: Deref, C, F: FnOnce(C)> Deref for FlushGuard<'_, P, N, L, C, F>
where
    Cpus<N>: Capacity,
{
    type Target = L::Target;

    fn deref(&self) -> &L::Target {
        &self.held.as_ref().expect("taken only by its drop").lock
    }
}

impl<P: Platform, const N: usize, L: DerefMut, C, F: FnOnce(C)> DerefMut
    for FlushGuard<'_, P, N, L, C, F>
where
    Cpus<N>: Capacity,
{
    fn deref_mut(&mut self) -> &mut L::Target {
        &mut self.held().lock
    }
}
