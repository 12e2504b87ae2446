//! Roots of CPUs' own: in a space that threads share a flush asks only the CPUs that can have what has changed (`shootdown::reach`).
//!
//! A space becomes tracked with its second thread. Each CPU that faults in it gets a root table of its own, and takes a part of the space, an entry of root tables, at the
//! first fault there. Without memory for one it goes on with the shared root, and is asked about everything.

use super::error::MapError;
use super::layout::{TOP_ENTRY_BYTES, USER_END};
use super::page_table::PageTable;
use super::space::MemorySpace;
use crate::arch::percpu;
use crate::cpus::{Cpus, MAX_CPUS};
use crate::platform::{KernelPlatform, SHOOTDOWN};
use crate::sync::Mutex;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use shootdown::reach::{ReachRoot, Region};
use shootdown::user_memory::Walk;
use shootdown::{AddressSpace, Root};

/// Entries of root tables that user memory may have.
const REGIONS: usize = USER_END.div_ceil(TOP_ENTRY_BYTES);

/// Whether spaces become tracked from now on. A measurement compares itself with those that are not (`/proc/shootdown/reach`).
pub static TRACKS_SPACES: AtomicBool = AtomicBool::new(true);

/// Whether the kernel's heap can spare nothing.
fn is_tight() -> bool {
    #[cfg(target_os = "none")]
    return super::heap::is_tight();
    #[cfg(not(target_os = "none"))]
    false
}

/// The roots of CPUs in one space.
#[derive(Debug)]
pub(super) struct OwnRoots {
    regions: Vec<Region<Cpus>>,
    /// Each is its CPU's, until the space goes.
    roots: [Mutex<Option<OwnRoot>>; MAX_CPUS],
}

#[derive(Debug)]
struct OwnRoot {
    root: Pin<Box<ReachRoot<Cpus>>>,
    /// Behind the root.
    table: PageTable,
}

impl OwnRoots {
    /// Memory for the regions of a space.
    fn new() -> Result<Box<Self>, MapError> {
        let mut regions = Vec::new();
        (regions.try_reserve_exact(REGIONS)).map_err(|_| MapError::NoMemory)?;
        regions.resize_with(REGIONS, Region::new);
        Ok(Box::new(Self {
            regions,
            roots: [const { Mutex::new(None) }; MAX_CPUS],
        }))
    }

    /// That of this CPU. Interrupts or preemption are off.
    fn here(&self) -> &Mutex<Option<OwnRoot>> {
        &self.roots[percpu::cpu_id().index()]
    }

    /// No CPU uses the space any more, which is that of `engine`.
    pub(super) fn retire(&self, engine: &AddressSpace<Cpus>) {
        for own in self.roots.iter().filter_map(|root| root.lock().take()) {
            let OwnRoot { mut root, table } = own;
            // SAFETY: 1. who has a space loaded has a reference to it, and there is none.
            _ = unsafe {
                SHOOTDOWN
                    .user_memory()
                    .reach()
                    .retire(engine, root.as_mut())
            };
            table.forget_shared_top();
        }
    }
}

impl MemorySpace {
    /// Whether it has [become tracked](Self::track).
    pub fn is_tracked(&self) -> bool {
        self.reach.get().is_some()
    }

    /// A second thread runs in it. Without memory it stays as it is, and each flush asks all that have it loaded.
    pub fn track(&self) {
        if self.is_tracked() || !TRACKS_SPACES.load(Ordering::Relaxed) {
            return;
        }
        let roots = match is_tight() {
            true => Err(MapError::NoMemory),
            false => OwnRoots::new(),
        };
        let Ok(roots) = roots else {
            return;
        };
        let mut inner = self.lock();
        inner.table.keep_top();
        self.reach.call_once(|| {
            // SAFETY: 1. the space's field is dropped after the engine's side of it, and a vector that is not changed does not move what it holds.
            unsafe {
                SHOOTDOWN
                    .user_memory()
                    .reach()
                    .track(&self.engine, &roots.regions)
            };
            roots
        });
    }

    /// Loads this CPU's own root, if it has one. Context as of [`activate`](Self::activate).
    pub(super) fn activate_own(&self, previous: Option<&AddressSpace<Cpus>>) -> bool {
        let Some(roots) = self.reach.get() else {
            return false;
        };
        let own = roots.here().lock();
        let Some(own) = &*own else {
            return false;
        };
        let reach = SHOOTDOWN.user_memory().reach();
        reach.switch_to(previous, &self.engine, own.root.as_ref());
        true
    }

    /// At a page fault at `addr` in this space, which is loaded here: whether the access may succeed now, because this CPU has taken the region. Interrupts are off.
    pub fn take_region(&self, addr: usize) -> bool {
        self.reach.get().is_some_and(|roots| {
            let own = roots.here().lock();
            // What it has is the shared entry, which stays as it is (`keep_top`): most faults are of pages.
            let own = own.as_ref().filter(|own| !own.table.has_top(addr));
            own.is_some_and(|own| {
                let reach = SHOOTDOWN.user_memory().reach();
                reach.take(&self.engine, own.root.as_ref(), addr)
            })
        })
    }

    /// No table of the region of `addr`, which this CPU has taken, is freed until this is dropped; `None` if it has not.
    pub(super) fn walk_region(&self, addr: usize) -> Option<Walk<'_, KernelPlatform>> {
        let own = self.reach.get()?.here().lock();
        let reach = SHOOTDOWN.user_memory().reach();
        reach.walk(&self.engine, own.as_ref()?.root.as_ref(), addr)
    }

    /// Makes a root for this CPU, if it has none and should: whether it is to be loaded now. Any context that may allocate memory.
    pub fn make_own_root(&self) -> bool {
        let Some(roots) = self.reach.get() else {
            return false;
        };
        // If this thread moves meanwhile, the other CPU gets one at its next fault.
        let cpu = percpu::cpu_id();
        let mut own = roots.roots[cpu.index()].lock();
        if own.is_some() || is_tight() {
            return false;
        }
        let Some(table) = PageTable::new() else {
            return false;
        };
        // SAFETY: 1. `PageTable::new` has copied the kernel's half. 2. it is dropped behind the root, which is retired before. 3. and 4. nothing but the platform writes
        // its user half.
        let root = unsafe { Root::new(table.root().as_u64()) };
        let root = Box::pin(ReachRoot::new(&SHOOTDOWN, &self.engine, cpu, root));
        *own = Some(OwnRoot { root, table });
        true
    }
}
