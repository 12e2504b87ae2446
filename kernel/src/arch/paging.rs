//! The kernel's half of every page-table root: built once at boot, never changed.
//!
//! * PML4 entry 256: the direct map of all memory, and of the display adapter's, which is not cached; 2 MiB pages, data only.
//! * PML4 entry 511: the kernel image, 4 KiB pages, each section with its own permissions and the
//!   guard pages of the boot stacks left out; the page of the local APIC; and the stacks of the other CPUs.
//!
//! Because the 256 entries never change, copying them into a new root is enough.
//!
//! What CPUs lend each other is in this half, so every root maps it, always, without a page fault: the engine's memory of each CPU, static call data and
//! the stacks of CPUs (entry 511), and all that is allocated, call data and stacks of threads with the closures of their calls too (entry 256). A target
//! of a call or a flush reads that in an interrupt, whatever root it has loaded. `kernel_half` has the entries as they were built, and
//! `platform::check_lent` looks at each page of the engine's memory and of the stacks when the tables are loaded.

use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::KernelRoot;
use spin::Once;
use x86_64::registers::control::Cr3;
use x86_64::structures::paging::PhysFrame;

use super::spurious::Fault;
use super::stacks::{self, Stacks};
use crate::addr::{DIRECT_MAP, KERNEL_BASE, PAGE_BYTES, PhysAddr};

/// Entries of one page table.
pub const TABLE_ENTRIES: usize = 512;
/// Where the registers of the local APIC are mapped: the last GiB.
pub const APIC_PAGE: usize = 0xffff_ffff_c000_0000;
/// Most memory that the direct map can show: one PML4 entry.
pub const DIRECT_MAP_LIMIT: u64 = 512 << 30;

const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Page-table entry bits (SDM vol. 3A, "Paging-Structure Entries").
const PRESENT: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
const UNCACHED: u64 = 1 << 3 | 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
/// With isolation nothing is: user mode must not find it in the TLB.
const GLOBAL: u64 = if cfg!(feature = "isolation") {
    0
} else {
    1 << 8
};
const NX: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Accessed and dirty are set at once: the processor need not write them later.
const DATA: u64 = PRESENT | WRITE | NX | GLOBAL | ACCESSED | DIRTY;
const READ_ONLY: u64 = PRESENT | NX | GLOBAL | ACCESSED;
const CODE: u64 = PRESENT | GLOBAL | ACCESSED;

unsafe extern "C" {
    static image_start: u8;
    static text_end: u8;
    static rodata_end: u8;
    static image_end: u8;
}

/// Physical range of the kernel image, page aligned.
pub fn image() -> (PhysAddr, PhysAddr) {
    (
        PhysAddr::of(&raw const image_start),
        PhysAddr::of(&raw const image_end),
    )
}

/// Whether `address` is in the kernel's code: for backtraces.
pub fn is_kernel_code(address: usize) -> bool {
    ((&raw const image_start).addr()..(&raw const text_end).addr()).contains(&address)
}

/// A page table, seen through the direct map.
type Table = NonNull<[u64; TABLE_ENTRIES]>;

static KERNEL_ROOT: Once<KernelRoot> = Once::new();
/// Its entries for the kernel's half, as they were built.
static KERNEL_HALF: Once<[u64; TABLE_ENTRIES / 2]> = Once::new();
/// Those of user roots.
#[cfg(feature = "isolation")]
static USER_HALF: Once<[u64; TABLE_ENTRIES / 2]> = Once::new();

/// The root that maps the kernel only: idle CPUs and dying processes load it.
///
/// # Panics
///
/// Before [`build`].
pub fn kernel_root() -> KernelRoot {
    *KERNEL_ROOT
        .get()
        .expect("the kernel's page tables are built at boot")
}

/// PML4 entries 256..512 of every root. They never change after boot, so a copy stays true.
///
/// # Panics
///
/// Before [`build`], and when one has changed all the same: roots that were made before lack it.
pub fn kernel_half() -> [u64; TABLE_ENTRIES / 2] {
    let built = *KERNEL_HALF
        .get()
        .expect("the kernel's page tables are built at boot");
    assert!(
        upper_half(PhysAddr::new(kernel_root().as_u64())) == built,
        "the kernel's half of roots has changed"
    );
    built
}

/// PML4 entries 256..512 of every user root: they lead to what [`isolation`](super::isolation) lists.
///
/// # Panics
///
/// Before [`build`].
#[cfg(feature = "isolation")]
pub fn user_half() -> [u64; TABLE_ENTRIES / 2] {
    *USER_HALF
        .get()
        .expect("the kernel's page tables are built at boot")
}

fn upper_half(root: PhysAddr) -> [u64; TABLE_ENTRIES / 2] {
    // SAFETY: built below, not written since.
    let entries = unsafe { table_at(root).as_ref() };
    core::array::from_fn(|index| entries[TABLE_ENTRIES / 2 + index])
}

/// Whether what the kernel was refused is permitted by now: see [`spurious`](super::spurious). Any context, NMI handlers' too: it takes no lock, and tables of
/// the kernel's half are never freed.
pub fn permits_now(fault: Fault) -> bool {
    let Some(root) = KERNEL_ROOT.get() else {
        return false;
    };
    fault.is_spurious(PhysAddr::new(root.as_u64()), |table, index| {
        // SAFETY: the index is below 512.
        let entry = unsafe { table_at(table).cast::<AtomicU64>().add(index) };
        // SAFETY: an aligned word of a table that stays, in the direct map; it is written while others read by atomics only.
        unsafe { entry.as_ref() }.load(Ordering::Acquire)
    })
}

/// Whether every root lets the kernel write there, without a page fault.
pub fn is_mapped(address: usize) -> bool {
    let code = Fault::WRITE;
    permits_now(Fault { address, code })
}

/// The entry of a page of the kernel's image.
#[cfg(feature = "selftest")]
pub fn image_entry(address: usize) -> &'static AtomicU64 {
    small_page_entry(PhysAddr::new(kernel_root().as_u64()), address)
}

/// The entry of a page of the kernel's that is mapped by itself, in the tables under `root`.
#[cfg(any(feature = "selftest", feature = "isolation"))]
pub fn small_page_entry(root: PhysAddr, address: usize) -> &'static AtomicU64 {
    let mut table = table_at(root);
    for level in (1..4).rev() {
        // SAFETY: an entry of a table that stays.
        let next = unsafe { slot(table, address, level).read() };
        assert!(next & (PRESENT | LARGE) == PRESENT, "no small page");
        table = table_at(PhysAddr::new(next & ADDRESS));
    }
    // SAFETY: as in `permits_now`; the caller is the only one who changes it.
    unsafe { slot(table, address, 0).cast().as_ref() }
}

/// Loads the kernel's root on this CPU, away from the boot tables.
pub fn load_kernel_root() {
    let frame = PhysFrame::containing_address(x86_64::PhysAddr::new(kernel_root().as_u64()));
    let (_, flags) = Cr3::read();
    // SAFETY: it maps the kernel image, its stacks and the direct map at the same addresses.
    unsafe { Cr3::write(frame, flags) };
}

/// Number of frames that [`build`] takes at most for memory up to `memory_end`, the memory of a display adapter and so many CPUs.
pub fn frames_needed(memory_end: u64, adapter: &Range<u64>, cpus: usize) -> u64 {
    let (start, end) = image();
    let of_adapter = adapter.end.div_ceil(1 << 30) - (adapter.start >> 30);
    let gigabytes = memory_end.div_ceil(1 << 30) + of_adapter;
    let image_tables = (end.as_u64() - start.as_u64()).div_ceil(LARGE_PAGE_BYTES as u64) + 1;
    let stack_tables = (cpus * stacks::STRIDE).div_ceil(LARGE_PAGE_BYTES);
    // Those of the boot CPU are part of the image.
    let of_stacks = stack_tables + (cpus - 1) * stacks::PAGES_PER_CPU;
    let of_user_half = match cfg!(feature = "isolation") {
        // PML4, PDPT, two directories.
        true => image_tables + stack_tables as u64 + 4,
        false => 0,
    };
    // PML4, two PDPTs, a directory for the image, a directory and a table for the APIC page.
    gigabytes + image_tables + of_stacks as u64 + of_user_half + 6
}

/// Builds the tables. Boot CPU, once, on the boot page tables. `frame` gives zeroed frames below
/// 4 GiB.
pub fn build(
    memory_end: u64,
    adapter: &Range<u64>,
    apic: Option<PhysAddr>,
    cpus: usize,
    frame: &mut dyn FnMut() -> PhysAddr,
) {
    let mut builder = Builder {
        root: frame(),
        frame,
    };
    let mut map = |range: Range<u64>, kind: u64| {
        for physical in range.step_by(LARGE_PAGE_BYTES) {
            let virt = DIRECT_MAP + physical as usize;
            builder.set(virt, Level::Directory, physical | kind | LARGE);
        }
    };
    map(0..memory_end, DATA);
    let start = adapter.start & !(LARGE_PAGE_BYTES as u64 - 1);
    map(start..adapter.end, DATA | UNCACHED);
    builder.map_image();
    if let Some(page) = apic {
        builder.set(APIC_PAGE, Level::Table, page.as_u64() | DATA | UNCACHED);
    }
    for virt in (1..cpus).flat_map(|cpu| Stacks::of(cpu).pages()) {
        let frame = (builder.frame)().as_u64();
        builder.set(virt, Level::Table, frame | DATA);
    }
    // SAFETY: 1. it maps the image with the stacks, the direct map and the local APIC, at the addresses where the kernel runs.
    // 2. `frame` gives frames that nobody else ever has; the tables are neither changed nor freed. 3. it is no window root.
    let root = unsafe { KernelRoot::new(builder.root.as_u64()) };
    KERNEL_HALF.call_once(|| upper_half(builder.root));
    KERNEL_ROOT.call_once(|| root);
    #[cfg(feature = "isolation")]
    builder.build_user_half(cpus);
}

/// Which table an entry goes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Table = 0,
    Directory = 1,
}

struct Builder<'a> {
    root: PhysAddr,
    frame: &'a mut dyn FnMut() -> PhysAddr,
}

impl Builder<'_> {
    /// Maps text, constants and data with their permissions.
    fn map_image(&mut self) {
        let text_end_at = (&raw const text_end).addr();
        let rodata_end_at = (&raw const rodata_end).addr();
        let range = (&raw const image_start).addr()..(&raw const image_end).addr();
        for virt in range.step_by(PAGE_BYTES) {
            if stacks::guard_owner(virt).is_some() {
                continue;
            }
            let flags = if virt < text_end_at {
                CODE
            } else if virt < rodata_end_at {
                READ_ONLY
            } else {
                DATA
            };
            self.set(virt, Level::Table, (virt - KERNEL_BASE) as u64 | flags);
        }
    }

    /// The tables that user roots share: the same pages, no more of them than entries need.
    #[cfg(feature = "isolation")]
    fn build_user_half(&mut self, cpus: usize) {
        let kernel = core::mem::replace(&mut self.root, (self.frame)());
        for page in super::isolation::pages(cpus) {
            let entry = small_page_entry(kernel, page).load(Ordering::Relaxed);
            self.set(page, Level::Table, entry);
        }
        USER_HALF.call_once(|| upper_half(self.root));
    }

    /// Writes the entry for `virt` at a level, making the tables above it.
    fn set(&mut self, virt: usize, level: Level, entry: u64) {
        let mut table = table_at(self.root);
        for above in (level as usize + 1..4).rev() {
            let slot = slot(table, virt, above);
            // SAFETY: an entry of a table that only this builder uses.
            let mut next = unsafe { slot.read() };
            if next & PRESENT == 0 {
                next = (self.frame)().as_u64() | PRESENT | WRITE | ACCESSED;
                // SAFETY: as above.
                unsafe { slot.write(next) };
            }
            table = table_at(PhysAddr::new(next & ADDRESS));
        }
        // SAFETY: as above.
        unsafe { slot(table, virt, level as usize).write(entry) };
    }
}

/// The entry for `virt` in a table of the given level (0: 4 KiB pages).
fn slot(table: Table, virt: usize, level: usize) -> NonNull<u64> {
    let index = virt >> (12 + 9 * level) & (TABLE_ENTRIES - 1);
    // SAFETY: the index is below 512.
    unsafe { table.cast::<u64>().add(index) }
}

fn table_at(physical: PhysAddr) -> Table {
    NonNull::new(physical.to_direct().cast()).expect("the direct map is not at 0")
}
