//! [`Physical`]: page-table entries in simulated memory, and what the hardware shares with the virtual kernel.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use shootdown::sim::{AtomicU64, Ordering};

use crate::kernel::device::{Device, Notice};
use crate::kernel::guest::GuestTlb;
use crate::kernel::layout::{ENTRIES, FRAMES};
use crate::kernel::sightings::{Lookout, Sight, Sightings};
use crate::kernel::tlb::{Act, KernelPages, PageFlush, Tlb};
use crate::oracle::{Book, FrameKind};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
/// In a root: it leads to a block of as many frames as a table maps, not to a table (x86: PS).
const BLOCK: u64 = 4;
const FRAME_SHIFT: u32 = 8;

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pte(pub u64);

impl Pte {
    /// Nothing there.
    pub const EMPTY: Self = Self(0);

    /// An entry that leads to `frame`.
    pub fn to(frame: u16, writable: bool) -> Self {
        let rights = if writable { WRITABLE } else { 0 };
        Self(u64::from(frame) << FRAME_SHIFT | PRESENT | rights)
    }

    /// An entry of a root that leads to a block, the first frame of which is `frame`.
    pub fn block(frame: u16) -> Self {
        Self(Self::to(frame, true).0 | BLOCK)
    }

    /// Whether it leads to a block.
    pub fn is_block(self) -> bool {
        self.0 & BLOCK != 0
    }

    /// Where it leads, if anywhere.
    pub fn frame(self) -> Option<u16> {
        (self.0 & PRESENT != 0).then_some((self.0 >> FRAME_SHIFT) as u16)
    }

    /// Whether it allows stores.
    pub fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }
}

impl fmt::Display for Pte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.frame() {
            None => f.write_str("empty"),
            Some(frame) if self.is_block() => write!(f, "the block from frame {frame} on"),
            Some(frame) if self.is_writable() => write!(f, "frame {frame}, writable"),
            Some(frame) => write!(f, "frame {frame}, read-only"),
        }
    }
}

/// The entries of every frame; only those of tables mean anything. And its content, which programs load from and
/// store to, and of which only the address is used.
#[derive(Debug)]
pub struct Physical {
    entries: Vec<AtomicU64>,
    content: Vec<u8>,
}

impl Physical {
    fn new() -> Self {
        let entries = (0..FRAMES * ENTRIES).map(|_| AtomicU64::new(0));
        Self {
            entries: entries.collect(),
            content: vec![0; FRAMES],
        }
    }

    /// Where the content of a frame is, for the memory.
    pub fn content(&self, frame: u16) -> usize {
        self.content[usize::from(frame)..].as_ptr().addr()
    }

    /// What was written last to an entry, for checks that look without being seen.
    pub(super) fn newest(&self, frame: u16, index: usize) -> Pte {
        Pte(self.entry(frame, index).as_core().load(Ordering::Relaxed))
    }

    /// One entry of the table in `frame`.
    pub fn entry(&self, frame: u16, index: usize) -> &AtomicU64 {
        &self.entries[usize::from(frame) * ENTRIES + index]
    }
}

/// What the hardware and the virtual kernel both touch.
#[derive(Debug)]
pub struct SharedHardware {
    /// Page-table entries.
    pub physical: Physical,
    /// The oracle.
    pub book: RefCell<Book>,
    /// One a CPU.
    pub tlbs: RefCell<Vec<Tlb>>,
    /// What each CPU has cached of guests; nothing where there are none.
    pub(super) guests: RefCell<Vec<GuestTlb>>,
    /// What walks page tables besides CPUs; nothing where there are no such devices.
    pub(super) devices: RefCell<Vec<Device>>,
    /// What they were told.
    pub(super) notices: RefCell<Vec<Notice>>,
    lookout: Lookout,
    /// What a TLB has done last of its own accord, and whose.
    pub(super) last_act: Cell<Option<(usize, Act)>>,
}

impl SharedHardware {
    /// A machine whose CPUs all start with the root in `kernel_root`.
    pub fn new(cpus: usize, kernel_root: u16, kernel_pages: KernelPages) -> Rc<Self> {
        let mut book = Book::new(FRAMES);
        book.take(kernel_root, FrameKind::Table);
        Rc::new(Self {
            physical: Physical::new(),
            book: RefCell::new(book),
            tlbs: RefCell::new(vec![Tlb::new(kernel_root, 1, kernel_pages); cpus]),
            guests: RefCell::default(),
            devices: RefCell::default(),
            notices: RefCell::default(),
            lookout: Lookout::default(),
            last_act: Cell::default(),
        })
    }

    /// Says what a flush of single pages drops.
    pub fn set_page_flush(&self, page_flush: PageFlush) {
        for tlb in self.tlbs.borrow_mut().iter_mut() {
            tlb.set_page_flush(page_flush);
        }
    }

    /// Its CPUs run guests.
    pub(super) fn add_guests(&self, cpus: usize) {
        *self.guests.borrow_mut() = vec![GuestTlb::default(); cpus];
    }

    pub(super) fn saw(&self, sight: Sight) {
        self.lookout.saw(sight);
    }

    /// How often this machine came upon what it is to find now and then.
    pub fn sightings(&self) -> Sightings {
        self.lookout.sightings()
    }
}
