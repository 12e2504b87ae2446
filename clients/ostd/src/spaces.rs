//! Spaces of user pages: OSTD's and the engine's view of each, and changes by either.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use ostd::mm::tlb::TlbFlushOp;
use ostd::mm::vm_space::VmQueriedItem;
use ostd::mm::{
    CachePolicy, Frame, FrameAllocOptions, HasPaddr, PAGE_SIZE, PageFlags, PageProperty, Vaddr,
    VmIoOnce, VmSpace,
};
use ostd::task::disable_preempt;
use shootdown::{AddressSpace, Cpus, FlushRange, PageSize, Root};
use shootdown_x86::irq;
use spin::Once;

use crate::machine;
use crate::platform::{MAX_CPUS, SHOOTDOWN, this_cpu};

/// Where the pages of each space are.
pub const BASE: Vaddr = 0x10_0000_0000;
/// No space.
const NONE: usize = usize::MAX;

/// The space in which a CPU is that is in none: an OSTD space without pages, which takes the place of the kernel's root.
static OUTSIDE: Once<Arc<VmSpace>> = Once::new();
/// On each CPU: the address of the space that it has entered, or `NONE`.
static ENTERED: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(NONE) }; MAX_CPUS];

/// Who flushes after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flusher {
    /// OSTD.
    Stock,
    /// The engine.
    Engine,
}

/// Once, before any CPU is online.
pub fn prepare() {
    let outside = OUTSIDE.call_once(|| Arc::new(VmSpace::new()));
    outside.activate();
    // Whoever uses a page that is not there goes on behind the access, and is told.
    ostd::mm::fault::inject_user_page_fault_handler(|_| Err(()));
}

/// A frame of a page.
pub fn frame() -> Frame<()> {
    let frame = FrameAllocOptions::new().alloc_frame();
    frame.expect("memory for a few frames")
}

/// Writes the word of a frame, not by its pages.
pub fn write(frame: &Frame<()>, word: u64) {
    frame.write_once(0, &word).expect("a frame has a word");
}

/// Reads it.
pub fn read(frame: &Frame<()>) -> u64 {
    frame.read_once(0).expect("a frame has a word")
}

/// A space. It lives for ever, because its tables are changed behind the back of OSTD, which counts what they map.
#[derive(Debug)]
pub struct Space {
    stock: Arc<VmSpace>,
    engine: AddressSpace<Cpus<MAX_CPUS>>,
    root: usize,
}

impl Space {
    /// One without pages.
    pub fn new() -> &'static Self {
        let stock = Arc::new(VmSpace::new());
        stock.activate();
        let root = machine::root();
        OUTSIDE.get().expect("`prepare` comes first").activate();
        // SAFETY: 1. OSTD maps the kernel in each space. 2. the space lives for ever. 3. no windows.
        let engine = AddressSpace::new(&SHOOTDOWN, unsafe { Root::new(root as u64) });
        alloc::boxed::Box::leak(alloc::boxed::Box::new(Self {
            stock,
            engine,
            root,
        }))
    }

    /// The engine's view.
    pub fn engine(&self) -> &AddressSpace<Cpus<MAX_CPUS>> {
        &self.engine
    }

    /// OSTD's.
    pub fn stock(&self) -> &VmSpace {
        &self.stock
    }

    /// Maps pages from `address` on to `frames`, by OSTD.
    pub fn map(&self, address: Vaddr, frames: &[Frame<()>]) {
        let property = PageProperty::new_user(PageFlags::RW, CachePolicy::Writeback);
        let guard = disable_preempt();
        let range = range_of(address, frames.len());
        let mut cursor = self
            .stock
            .cursor_mut(&guard, &range)
            .expect("user addresses");
        for frame in frames {
            cursor.map(frame.clone().into(), property);
        }
    }

    /// Unmaps pages, by OSTD, and waits until no CPU uses them.
    pub fn unmap(&self, address: Vaddr, pages: usize) {
        let guard = disable_preempt();
        let range = range_of(address, pages);
        let mut cursor = self
            .stock
            .cursor_mut(&guard, &range)
            .expect("user addresses");
        cursor.unmap(range.len());
        cursor.flusher().sync_tlb_flush();
    }

    /// Takes the right to write away from pages or gives it back, by OSTD, and waits until all CPUs know.
    pub fn protect(&self, address: Vaddr, pages: usize, flags: PageFlags) {
        let guard = disable_preempt();
        let range = range_of(address, pages);
        let mut cursor = self
            .stock
            .cursor_mut(&guard, &range)
            .expect("user addresses");
        while cursor.virt_addr() < range.end {
            let rest = range.end - cursor.virt_addr();
            if cursor.protect_next(rest, |old, _| *old = flags).is_none() {
                break;
            }
        }
        cursor
            .flusher()
            .issue_tlb_flush(TlbFlushOp::for_range(range));
        cursor.flusher().dispatch_tlb_flush();
        cursor.flusher().sync_tlb_flush();
    }

    /// The entry of a page that OSTD has mapped once: it says so, and where it is.
    pub fn entry(&self, address: Vaddr) -> Entry {
        let guard = disable_preempt();
        let range = range_of(address, 1);
        let mut cursor = self.stock.cursor(&guard, &range).expect("user addresses");
        let (_, item) = cursor.query().expect("in range");
        assert!(matches!(item, Some(VmQueriedItem::MappedRam { .. })));
        drop(cursor);
        let entry = machine::entry_of(self.root, address);
        let rights = entry.load(Ordering::Relaxed) & !machine::ADDRESS;
        Entry { entry, rights }
    }

    fn enter(&'static self) -> usize {
        core::ptr::from_ref(self) as usize
    }
}

fn range_of(address: Vaddr, pages: usize) -> Range<Vaddr> {
    address..address + pages * PAGE_SIZE
}

/// What a flush of pages has to name.
pub fn flush_range(address: Vaddr, pages: usize) -> FlushRange {
    FlushRange::pages(address, pages, PageSize::SIZE_4K)
}

/// The entry of a page, which is changed behind OSTD's back.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    entry: &'static core::sync::atomic::AtomicU64,
    rights: u64,
}

impl Entry {
    const WRITABLE: u64 = 1 << 1;

    /// Changes it, and flushes nothing.
    pub fn set(&self, frame: Option<&Frame<()>>) {
        let value = frame.map_or(0, |frame| frame.paddr() as u64 | self.rights);
        // ORDERING: Release: what the frame holds is there before an entry leads to it; walks depend on the entry.
        self.entry.store(value, Ordering::Release);
    }

    /// Takes the right to write away, or gives it back, and flushes nothing.
    pub fn protect(&self, is_writable: bool) {
        match is_writable {
            true => self.entry.fetch_or(Self::WRITABLE, Ordering::Release),
            false => self.entry.fetch_and(!Self::WRITABLE, Ordering::Release),
        };
    }
}

/// The entries of pages that OSTD has mapped.
pub fn entries(space: &Space, address: Vaddr, pages: usize) -> Vec<Entry> {
    (0..pages)
        .map(|page| space.entry(address + page * PAGE_SIZE))
        .collect()
}

/// The space that this CPU has entered.
pub fn entered() -> Option<&'static Space> {
    let address = ENTERED[this_cpu()].load(Ordering::Relaxed);
    // SAFETY: `enter` has stored it, and spaces live for ever.
    (address != NONE).then(|| unsafe { &*(address as *const Space) })
}

/// Gives this CPU another space, or none: OSTD loads the root, the engine is told before and after.
pub fn enter(next: Option<&'static Space>) {
    let before = irq::save();
    let [from, to] = [entered(), next].map(|space| space.map(Space::engine));
    if SHOOTDOWN.host_roots().begin_switch(from, to) {
        let outside = OUTSIDE.get().expect("`prepare` comes first");
        next.map_or(outside, |space| &space.stock).activate();
        // SAFETY: 1. `activate` has written CR3, unless the page table was loaded already.
        unsafe { SHOOTDOWN.host_roots().end_switch(from, to) };
    }
    ENTERED[this_cpu()].store(next.map_or(NONE, Space::enter), Ordering::Relaxed);
    // SAFETY: 1. from `save` above.
    unsafe { irq::restore(before) };
}
