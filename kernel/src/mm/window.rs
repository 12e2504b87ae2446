//! [`Window`]: lent pages that only one CPU can reach, so that taking them away interrupts nobody.
//!
//! The window hangs on a private root (`shootdown::windows::WindowRoot`): a second root table of the space, which only that CPU ever
//! loads. All windows are behind one entry of root tables, [`WINDOWS`], where nothing else is ever
//! mapped. Each window has tables of its own, made beforehand, so each may begin there.

use super::error::MapError;
use super::frames::Share;
use super::layout::{PAGE_SIZE, WINDOWS};
use super::lend::Lending;
use super::page_table::{LEAF_TABLE_BYTES, PageTable};
use super::pte::{Pte, PteCell};
use super::space::MemorySpace;
use crate::platform::SHOOTDOWN;
use crate::sync::Mutex;
use alloc::sync::Arc;
use shootdown::{CpuId, FlushRange, PageSize, Root, windows::WindowRoot};

/// A place for lent pages in one space, for one CPU.
#[derive(Debug)]
pub struct Window {
    space: Arc<MemorySpace>,
    cpu: CpuId,
    table: PageTable,
    /// Its CPU's own, between [`open`](Self::open) and [`retire`](Self::retire).
    root: Mutex<Option<WindowRoot>>,
}

impl Window {
    /// A window with all tables that so many bytes need. Nobody has it loaded yet.
    ///
    /// # Errors
    /// [`MapError::NoMemory`].
    pub fn new(space: Arc<MemorySpace>, cpu: CpuId, bytes: usize) -> Result<Self, MapError> {
        let mut table = PageTable::new().ok_or(MapError::NoMemory)?;
        for addr in (WINDOWS.start..WINDOWS.start + bytes).step_by(LEAF_TABLE_BYTES) {
            table.leaf_or_create(addr).ok_or(MapError::NoMemory)?;
        }
        Ok(Self {
            space,
            cpu,
            table,
            root: Mutex::new(None),
        })
    }

    /// Where the first page is shown.
    pub const fn start(&self) -> usize {
        WINDOWS.start
    }

    /// The CPU that can reach it.
    pub const fn cpu(&self) -> CpuId {
        self.cpu
    }

    /// From now on [`activate`](Self::activate) loads it. On its CPU.
    pub fn open(&self) {
        // SAFETY: 1. `PageTable::new` has copied the kernel's half. 2. the table is this window's, which is not dropped before it is
        // retired. 3. until then the engine alone writes its shared entries, and `new` has made those of windows.
        let root = unsafe { Root::new(self.table.root().as_u64()) };
        let root = WindowRoot::new(&SHOOTDOWN, &self.space.engine, self.cpu, root);
        let before = self.root.lock().replace(root);
        assert!(before.is_none(), "a window is opened once");
    }

    /// Loads its space with the window on this CPU, as [`MemorySpace::activate`] does, or without where it cannot be reached.
    pub fn activate(&self, previous: Option<&MemorySpace>) {
        if crate::arch::percpu::cpu_id() != self.cpu {
            return self.space.activate(previous);
        }
        match &*self.root.lock() {
            Some(root) => SHOOTDOWN.windows().switch_to(
                previous.map(|space| &space.engine),
                &self.space.engine,
                root,
            ),
            None => self.space.activate(previous),
        }
    }

    /// At a page fault with the window loaded, interrupts off: whether the shared part has grown since it was last looked at,
    /// so that the access may succeed now.
    pub fn refresh(&self) -> bool {
        if crate::arch::percpu::cpu_id() != self.cpu {
            return false;
        }
        match &*self.root.lock() {
            Some(root) => SHOOTDOWN.windows().refresh(&self.space.engine, root),
            _ => false,
        }
    }

    /// Shows `pages`, which the caller keeps until they are [hidden](Self::hide). On its CPU; false elsewhere, and once
    /// it is retired.
    pub fn show(&self, pages: &[Share], lending: Lending) -> bool {
        let root = self.root.lock();
        let Some(Ok(_pinned)) = root.as_ref().map(|root| SHOOTDOWN.windows().pin(root)) else {
            return false;
        };
        for (share, addr) in pages.iter().zip(self.pages()) {
            let cell = self.table.leaf(addr).expect("its tables were made with it");
            // Not present before, and processors do not cache that: no flush is due.
            cell.fill(Pte::leaf(share.address(), lending.prot()));
        }
        true
    }

    /// Takes the first `count` pages away again. Nobody can translate to them afterwards. On its CPU; false elsewhere.
    pub fn hide(&self, count: usize) -> bool {
        let root = self.root.lock();
        let Some(Ok(pinned)) = root.as_ref().map(|root| SHOOTDOWN.windows().pin(root)) else {
            return false;
        };
        for addr in self.pages().take(count) {
            let cell = self.table.leaf(addr).expect("its tables were made with it");
            cell.take();
        }
        #[cfg(feature = "breaks")]
        if super::invalidate::breaks::keeps_windows() {
            return true;
        }
        pinned.flush(FlushRange::pages(WINDOWS.start, count, PageSize::SIZE_4K));
        true
    }

    /// The entry of page number `page`, for who changes and [flushes](Self::try_with_root) it by themselves.
    ///
    /// # Panics
    /// When it has no such page.
    pub fn entry(&self, page: usize) -> &PteCell {
        let addr = WINDOWS.start + page * PAGE_SIZE;
        self.table.leaf(addr).expect("a page of the window")
    }

    /// Hands the private root to `work`, with preemption off, if it is open and nobody has it in hand: what interrupted
    /// its CPU there does not wait.
    pub fn try_with_root(&self, work: &mut dyn FnMut(&WindowRoot)) {
        if let Some(root) = self.root.try_lock() {
            root.iter().for_each(work);
        }
    }

    /// Whether it is still to be [retired](Self::retire).
    pub fn is_open(&self) -> bool {
        self.root.lock().is_some()
    }

    /// Ends it. On its CPU, which has it loaded no more; it shows nothing.
    pub fn retire(&self) {
        let Some(root) = self.root.lock().take() else {
            return;
        };
        SHOOTDOWN.windows().retire(&self.space.engine, root);
        self.table.forget_shared_top();
    }

    fn pages(&self) -> impl Iterator<Item = usize> {
        (WINDOWS.start..).step_by(PAGE_SIZE)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // Its table leads to those of the space.
        assert!(self.root.lock().is_none(), "an open window was dropped");
    }
}
