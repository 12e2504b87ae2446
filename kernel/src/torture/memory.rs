//! Spaces, frames and loads for the torture: real page tables, and real translations.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use shootdown::{AddressSpace, CpuId, windows::WindowRoot};
use shootdown_torture::{FRAMES, Memory, PAGES, Region, SPACES, WINDOW_PAGES};

use super::notes;
use super::tables::{Leaves, PAGES_PER_TABLE, Scope, Tables, leaf};
use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::arch::{paging, percpu, uaccess};
use crate::boot;
use crate::cpus::{Cpus, MAX_CPUS};
use crate::mm::pte::Pte;
use crate::mm::{MemorySpace, SpaceUse, Window, frames};
use crate::task;

/// Where the pages of each space are.
const SPACE_BASE: usize = 0x10_0000_0000;
/// Where those are that all spaces share: behind the local APIC's page.
const KERNEL_BASE: usize = paging::APIC_PAGE + (2 << 20);
const TABLES_PER_SPACE: usize = PAGES / PAGES_PER_TABLE;
const KERNEL_TABLES: usize = 2;
/// All CPUs' windows together may show so many frames: the rest is enough for all other pages, and for those on their way.
const WINDOW_FRAMES: usize = 64;
/// In which space CPUs have roots of their own, so that a flush of one of its top-level entries asks only those that have used it.
const TRACKED: usize = 1;
/// So many times of entering the first space, once without windows.
const PLAIN_EVERY: usize = 3;
/// In the frame that freed tables lead to; no frame in use ever has it.
const FREED_TABLE: u64 = 0x0bad << 48;

/// All that is mapped. Lives until the machine ends.
#[derive(Debug)]
pub(super) struct TortureMemory {
    /// A use of each space that never ends: nobody else's end may unmap it.
    spaces: Vec<(SpaceUse, Leaves)>,
    kernel: Leaves,
    /// Each CPU's in the first space.
    windows: Vec<Arc<Window>>,
    frames: Vec<PhysAddr>,
    tables: &'static Tables,
    /// How often the first space was entered.
    entries: AtomicUsize,
}

impl TortureMemory {
    /// Once, before the first step.
    ///
    /// # Panics
    /// Without memory.
    pub fn new() -> Self {
        static TABLES: Tables = Tables::new();
        let poison = new_frame();
        write(poison, FREED_TABLE);
        TABLES.stock(poison);
        let root = PhysAddr::new(paging::kernel_root().as_u64());
        let spaces: Vec<_> = (0..SPACES).map(|_| new_space(&TABLES)).collect();
        let windowed = spaces[0].0.space();
        spaces[TRACKED].0.space().track();
        Self {
            windows: (0..boot::info().cpus)
                .map(|cpu| new_window(windowed, cpu))
                .collect(),
            spaces,
            kernel: Leaves::new(root, KERNEL_BASE, KERNEL_TABLES, Scope::Global, &TABLES),
            frames: (0..FRAMES).map(|_| new_frame()).collect(),
            tables: &TABLES,
            entries: AtomicUsize::new(0),
        }
    }

    fn place(&self, region: Region) -> Place<'_> {
        match region {
            Region::Space(index) => Place::Leaves(&self.spaces[index].1),
            Region::Kernel => Place::Leaves(&self.kernel),
            Region::Window(cpu) => Place::Window(&self.windows[cpu]),
        }
    }
}

/// Where the pages of a region are mapped.
enum Place<'a> {
    Leaves(&'a Leaves),
    Window(&'a Window),
}

fn new_frame() -> PhysAddr {
    let frame = frames::alloc_zeroed().expect("memory for the torture's frames");
    frame.into_raw()
}

fn new_space(tables: &'static Tables) -> (SpaceUse, Leaves) {
    let space = MemorySpace::new().expect("memory for the torture's spaces");
    let root = space.root();
    let leaves = Leaves::new(root, SPACE_BASE, TABLES_PER_SPACE, Scope::Space, tables);
    (SpaceUse::new(space), leaves)
}

/// Of as many pages as there are frames for. It stays open until the machine ends.
fn new_window(space: &Arc<MemorySpace>, cpu: usize) -> Arc<Window> {
    let bytes = WINDOW_PAGES * PAGE_BYTES;
    let window = Window::new(Arc::clone(space), CpuId::new(cpu as u32), bytes);
    let window = window.expect("memory for the torture's windows");
    window.open();
    Arc::new(window)
}

/// The word of a frame, by the direct map.
fn word(frame: PhysAddr) -> &'static AtomicU64 {
    let word = frame.to_direct().cast::<u64>();
    // SAFETY: the frame is the torture's for ever, in the direct map and page-aligned; it is accessed as an atomic word only,
    // and by loads of processors through its page tables.
    unsafe { AtomicU64::from_ptr(word) }
}

fn write(frame: PhysAddr, value: u64) {
    word(frame).store(value, Ordering::Relaxed);
}

impl Memory<MAX_CPUS> for TortureMemory {
    fn spaces(&self) -> usize {
        self.spaces.len()
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus> {
        self.spaces[index].0.engine()
    }

    fn pages(&self, region: Region) -> usize {
        match self.place(region) {
            Place::Leaves(leaves) => leaves.pages(),
            Place::Window(_) => (WINDOW_FRAMES / self.windows.len()).clamp(1, WINDOW_PAGES),
        }
    }

    fn address(&self, region: Region, page: usize) -> usize {
        match self.place(region) {
            Place::Leaves(leaves) => leaves.address(page),
            Place::Window(window) => window.start() + page * PAGE_BYTES,
        }
    }

    fn frames(&self) -> usize {
        self.frames.len()
    }

    fn write_frame(&self, frame: usize, word: u64) {
        write(self.frames[frame], word);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        let frame = frame.map(|frame| self.frames[frame]);
        match self.place(region) {
            Place::Leaves(leaves) => leaves.map(self.tables, page, frame),
            Place::Window(window) => {
                let pte = frame.map_or(Pte::EMPTY, |frame| leaf(frame, Scope::Space));
                window.entry(page).replace(pte);
            }
        }
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        let found = uaccess::probe(self.address(region, page));
        found.ok().map(|word| word as u64)
    }

    fn entered(&self) -> Option<usize> {
        notes::entered()
    }

    fn enter(&self, space: Option<usize>) {
        let wanted = space.map(|index| Arc::clone(self.spaces[index].0.space()));
        notes::note_entered(None);
        // Those of the CPU where the task is now; it has the shared root wherever it comes later.
        let takes_windows = space == Some(0)
            && !self
                .entries
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(PLAIN_EVERY);
        let window = takes_windows.then(|| Arc::clone(&self.windows[percpu::cpu_id().index()]));
        task::change_space(wanted.map(SpaceUse::new), window);
        if space == Some(TRACKED) {
            task::load_own_root();
        }
        notes::note_entered(space);
    }

    fn has_windows(&self, cpu: usize) -> bool {
        cpu < self.windows.len()
    }

    fn with_windows(&self, cpu: usize, work: &mut dyn FnMut(&WindowRoot)) {
        self.windows[cpu].try_with_root(work);
    }

    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        self.spaces[space].1.move_table(self.tables, page)
    }

    fn table_of(&self, space: usize, page: usize) -> Option<usize> {
        Some(self.spaces[space].1.table_of(page))
    }

    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page / PAGES_PER_TABLE * PAGES_PER_TABLE, PAGES_PER_TABLE)
    }

    fn free_table(&self, table: usize) {
        self.tables.give(table);
    }
}
