//! Looks, on the way to user mode, at what user roots map of the kernel: each of the pages that entries need, as the kernel does, and nothing else.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::addr::{PAGE_BYTES, PhysAddr};
use crate::arch::stacks::Stacks;
use crate::arch::{isolation as entries, paging, percpu};
use crate::boot;
use crate::isolation::CHECK;

/// Page-table entry bits.
const PRESENT: u64 = 1 << 0;
const USER: u64 = 1 << 2;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// So much text, and the descriptors of interrupts; of each CPU its TSS and GDT, the words of entries, three stacks. Counted here again.
const OF_ALL: usize = 2 + 1;
const OF_CPU: usize = 1 + 1 + 3;

/// One of so many exits is looked at.
const EVERY: u64 = 64;
static EXITS: AtomicU64 = AtomicU64::new(0);

/// Whether `name` asks for it. With `isolation-more` user roots have one page more from here on, which a look must find.
pub(super) fn begin_if_asked(name: &str) -> bool {
    match name {
        "isolation" => CHECK.call_once(|| look),
        "isolation-more" => CHECK.call_once(|| {
            |root| {
                show_more(root);
                look(root);
            }
        }),
        _ => return false,
    };
    true
}

/// This CPU is about to run a program on `root`. Interrupts are off.
fn look(root: PhysAddr) {
    let exits = EXITS.fetch_add(1, Ordering::Relaxed);
    if !exits.is_multiple_of(EVERY) {
        return;
    }
    let wanted = || entries::pages(boot::info().cpus);
    let kernel = PhysAddr::new(paging::kernel_root().as_u64());
    let mut found = 0;
    visit_upper(root, &mut |page, entry| {
        let cpu = percpu::cpu_id();
        assert!(
            wanted().any(|one| one == page),
            "{cpu} would show user mode the kernel's page at {page:#x}"
        );
        let own = paging::small_page_entry(kernel, page).load(Ordering::Relaxed);
        assert!(
            entry == own && entry & (USER | GLOBAL) == 0,
            "{cpu} would show user mode {page:#x} as {entry:#x}"
        );
        found += 1;
    });
    let count = OF_ALL + boot::info().cpus * OF_CPU;
    assert_eq!(found, count, "as many pages as user mode is to see");
    if exits == 0 {
        log::info!("selftest: isolation passed: user mode sees {found} pages of the kernel");
    }
}

/// Calls `visit` with each page of the kernel's half under `root`, and its entry.
fn visit_upper(root: PhysAddr, visit: &mut dyn FnMut(usize, u64)) {
    const HALF: usize = paging::TABLE_ENTRIES / 2;
    (HALF..2 * HALF).for_each(|index| visit_entry(root, index, 3, !0 << 48, visit));
}

fn visit_entry(
    table: PhysAddr,
    index: usize,
    level: u32,
    base: usize,
    visit: &mut dyn FnMut(usize, u64),
) {
    let cells = table.to_direct().cast::<AtomicU64>();
    // SAFETY: an entry of a table, a whole frame in the direct map.
    let cell = unsafe { cells.add(index) };
    // SAFETY: as above; it changes by atomics only, and tables of the kernel's half stay.
    let entry = unsafe { &*cell }.load(Ordering::Relaxed);
    let page = base | index << (12 + 9 * level);
    if entry & PRESENT == 0 {
        return;
    }
    if level == 0 || entry & LARGE != 0 {
        return visit(page, entry);
    }
    let next = PhysAddr::new(entry & ADDRESS);
    (0..paging::TABLE_ENTRIES).for_each(|index| visit_entry(next, index, level - 1, page, visit));
}

/// Has all user roots map the second page of the stack of the boot CPU's NMIs.
fn show_more(root: PhysAddr) {
    let page = Stacks::of(0).interrupt_tops()[1] - 2 * PAGE_BYTES;
    let kernel = PhysAddr::new(paging::kernel_root().as_u64());
    let own = paging::small_page_entry(kernel, page).load(Ordering::Relaxed);
    paging::small_page_entry(root, page).store(own, Ordering::Relaxed);
}
