//! Spaces, frames and loads for the torture.

use core::sync::atomic::{AtomicUsize, Ordering};

use shootdown::{
    AddressSpace, FlushRange, FlushRanges, FlushScope, FreedTables, KernelRoot, PageSize, Root,
};
use shootdown_torture::{Memory, Region};

use crate::arch;
use crate::cpus::{AtBoot, MAX_CPUS};
use crate::platform::{self, Break, Cpus, SHOOTDOWN};
use crate::tables::{self, Leaves, PAGES_PER_TABLE, TABLES_PER_REGION, Table};

const SPACES: usize = 3;
const PAGES: usize = PAGES_PER_TABLE * TABLES_PER_REGION;
const FRAMES: usize = shootdown_torture::FRAMES;
/// Of roots: where the pages of spaces are, and those that all spaces share.
const SPACE_TOP: usize = 64;
const KERNEL_TOP: usize = 65;
/// In the frame that freed tables lead to, and in one that was given away; no frame in use ever has it.
const FREED_TABLE: u64 = 0x0bad << 48;
/// Of a mistake.
const DAWDLE_NS: u64 = 20_000;
/// No space.
pub const NOWHERE: usize = usize::MAX;

/// Behind the roots of spaces that without a user part.
static ROOTS: [Table; SPACES + 1] = [const { Table::new() }; SPACES + 1];
static ABOVE: [Table; SPACES + 1] = [const { Table::new() }; SPACES + 1];
/// Behind the others that to which freed tables lead.
static PAGES_OF_MEMORY: [Table; FRAMES + 1] = [const { Table::new() }; FRAMES + 1];

/// By CPU: the space that it has entered, the one that it has loaded, and how often it has left one.
static ENTERED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(NOWHERE) }; MAX_CPUS];
static LOADED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(NOWHERE) }; MAX_CPUS];
static LEFT: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

/// All that is mapped.
pub struct Spaces {
    spaces: [(AddressSpace<Cpus>, Leaves); SPACES],
    kernel: Leaves,
}

static SPACES_OF_MACHINE: AtBoot<Spaces> = AtBoot::new();

/// The machine's memory.
pub fn spaces() -> &'static Spaces {
    SPACES_OF_MACHINE.get()
}

/// The root without a user part.
pub fn kernel_root() -> KernelRoot {
    // SAFETY: 1. it maps the kernel. 2. it is a static. 3. it has no user part.
    unsafe { KernelRoot::new(ROOTS[SPACES].physical() as u64) }
}

/// Makes all tables, on the boot CPU.
pub fn prepare() {
    let kernel = Leaves::new(KERNEL_TOP, &ABOVE[SPACES], true);
    ROOTS.iter().for_each(arch::map_kernel);
    arch::share(&ROOTS, KERNEL_TOP, arch::table(ABOVE[SPACES].physical()));
    PAGES_OF_MEMORY[FRAMES]
        .word(0)
        .store(FREED_TABLE, Ordering::Relaxed);
    let space = |index: usize| {
        ROOTS[index].set(SPACE_TOP, arch::table(ABOVE[index].physical()));
        // SAFETY: 1. it maps the kernel as all do. 2. it is a static. 3. each is asked for once. 4. it is no window root.
        let root = unsafe { Root::new(ROOTS[index].physical() as u64) };
        let leaves = Leaves::new(SPACE_TOP, &ABOVE[index], false);
        (AddressSpace::new(&SHOOTDOWN, root), leaves)
    };
    let spaces = || Spaces {
        spaces: core::array::from_fn(space),
        kernel,
    };
    // SAFETY: 1. no other CPU runs.
    unsafe { SPACES_OF_MACHINE.set_once(spaces) };
}

impl Spaces {
    fn leaves(&self, region: Region) -> &Leaves {
        match region {
            Region::Space(index) => &self.spaces[index].1,
            Region::Kernel | Region::Window(_) => &self.kernel,
        }
    }

    /// Loads a space on this CPU, or none; interrupts are off.
    pub fn load_space(&self, next: Option<usize>) {
        let me = arch::this_cpu();
        let before = LOADED[me].load(Ordering::Relaxed);
        let before = self.spaces.get(before).map(|(space, _)| space);
        match (before, next) {
            (_, Some(next)) => SHOOTDOWN.switch_to(before, &self.spaces[next].0),
            (Some(before), None) => SHOOTDOWN.switch_away(before, kernel_root()),
            (None, None) => {}
        }
        LOADED[me].store(next.unwrap_or(NOWHERE), Ordering::Relaxed);
    }
}

impl Spaces {
    /// The frame that a page shows is somebody else's from now on.
    fn give_away(&self, region: Region, page: usize) {
        let shown = self.leaves(region).entry(page);
        let frames = PAGES_OF_MEMORY[..FRAMES].iter();
        let is_global = !matches!(region, Region::Space(_));
        for frame in frames.filter(|frame| arch::leaf(frame.physical(), is_global) == shown) {
            frame.word(0).store(FREED_TABLE, Ordering::Relaxed);
            // The flush comes late enough for others to look.
            let start_ns = arch::now_ns();
            while arch::now_ns() - start_ns < DAWDLE_NS {
                core::hint::spin_loop();
            }
        }
    }
}

impl Memory<MAX_CPUS> for Spaces {
    fn spaces(&self) -> usize {
        SPACES
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus> {
        &self.spaces[index].0
    }

    fn pages(&self, region: Region) -> usize {
        match region {
            Region::Window(_) => 0,
            _ => PAGES,
        }
    }

    fn address(&self, region: Region, page: usize) -> usize {
        self.leaves(region).address(page)
    }

    fn page_size(&self) -> PageSize {
        arch::PAGE_SIZE
    }

    fn frames(&self) -> usize {
        FRAMES
    }

    fn write_frame(&self, frame: usize, word: u64) {
        PAGES_OF_MEMORY[frame]
            .word(0)
            .store(word, Ordering::Relaxed);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        if platform::is_broken_by(Break::FreeEarly) {
            self.give_away(region, page);
        }
        let leaves = self.leaves(region);
        if arch::BREAKS_BEFORE_MAKE && frame.is_some() && leaves.is_mapped(page) {
            leaves.map(page, None);
            let address = leaves.address(page);
            let ranges = FlushRanges::from(FlushRange::pages(address, 1, arch::PAGE_SIZE)).strict();
            let scope = match region {
                Region::Space(index) => FlushScope::from(&self.spaces[index].0),
                _ => FlushScope::Kernel,
            };
            SHOOTDOWN.flush(scope, ranges, FreedTables::No);
        }
        let frame = frame.map(|frame| PAGES_OF_MEMORY[frame].physical());
        leaves.map(page, frame);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        arch::probe(self.address(region, page))
    }

    fn entered(&self) -> Option<usize> {
        let space = ENTERED[arch::this_cpu()].load(Ordering::Relaxed);
        (space != NOWHERE).then_some(space)
    }

    /// Every other time that it leaves a space it is lazy in it.
    fn enter(&self, space: Option<usize>) {
        let irqs = arch::irq_save();
        let me = arch::this_cpu();
        let lazily = space.is_none() && LEFT[me].fetch_add(1, Ordering::Relaxed) % 2 == 1;
        match self.spaces.get(LOADED[me].load(Ordering::Relaxed)) {
            Some((before, _)) if lazily => {
                SHOOTDOWN.user_memory().enter_lazy(before, kernel_root());
            }
            _ => self.load_space(space),
        }
        ENTERED[me].store(space.unwrap_or(NOWHERE), Ordering::Relaxed);
        // SAFETY: 1. of the `irq_save` above.
        unsafe { arch::irq_restore(irqs) };
    }

    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        self.spaces[space].1.move_table(page)
    }

    fn table_of(&self, space: usize, page: usize) -> Option<usize> {
        Some(self.spaces[space].1.table_of(page))
    }

    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page / PAGES_PER_TABLE * PAGES_PER_TABLE, PAGES_PER_TABLE)
    }

    fn free_table(&self, table: usize) {
        tables::give(table, arch::leaf(PAGES_OF_MEMORY[FRAMES].physical(), false));
    }
}
