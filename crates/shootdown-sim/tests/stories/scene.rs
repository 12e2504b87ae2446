//! [`Scene`]: an engine, a space whose page table changes, others that stay as they are, and what may no longer be
//! reached.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use shootdown::sim::{Ordering, Plain};
use shootdown::{AddressSpace, CpuId, Platform};
use shootdown_sim::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Pte, SharedHardware};
use shootdown_sim::machine::context;
use shootdown_sim::oracle::FrameKind;
use shootdown_sim::walkthrough::Subject;
use shootdown_sim::{FailureKind, PLATFORM, root_at};

use crate::play::Stage;

/// The engine of a scene.
pub type Engine = shootdown_sim::Engine<shootdown::Cpus<4>>;

const KERNEL_ROOT: u16 = 0;
const KERNEL_TABLE: u16 = 1;
const ROOT: u16 = 2;
/// The table of the space's region 0 when a story begins.
pub const TABLE: u16 = 3;
/// Frames from here on are the story's.
pub const FIRST_FRAME: u16 = 4;
/// Spaces besides the one that a story is about.
const OTHERS: usize = 7;
/// Above the story's: the root, the table and the one page of each of the others.
const OTHER_ROOT: u16 = 19;
const OTHER_TABLE: u16 = OTHER_ROOT + OTHERS as u16;
const OTHER_FRAME: u16 = OTHER_TABLE + OTHERS as u16;
/// The first page of the kernel's region.
pub const KERNEL_PAGE: usize = KERNEL_REGION * PAGES_PER_TABLE;

/// What all CPUs of one run share.
#[derive(Debug)]
pub struct Scene {
    pub engine: Engine,
    pub space: AddressSpace<shootdown::Cpus<4>>,
    /// Other spaces, each with one page, 0.
    pub others: Vec<AddressSpace<shootdown::Cpus<4>>>,
    pub hardware: Rc<SharedHardware>,
    /// Whether the CPU's `online` has returned.
    online: [Cell<bool>; 4],
    /// Translations that nobody may use any more.
    forbidden: RefCell<BTreeSet<(usize, u16)>>,
}

impl Scene {
    pub fn new(cpus: usize, stage: Stage) -> Self {
        let engine = Engine::new(cpus);
        let space = AddressSpace::new(&engine, root_at(u64::from(ROOT)));
        let other = |index| AddressSpace::new(&engine, root_at(u64::from(OTHER_ROOT + index)));
        let others = (0..OTHERS as u16).map(other).collect();
        let hardware = SharedHardware::new(cpus, KERNEL_ROOT, stage.kernel_pages);
        let mut links = vec![
            (KERNEL_ROOT, KERNEL_REGION, KERNEL_TABLE),
            (ROOT, KERNEL_REGION, KERNEL_TABLE),
            (ROOT, 0, TABLE),
        ];
        for other in 0..OTHERS as u16 {
            let (root, table) = (OTHER_ROOT + other, OTHER_TABLE + other);
            links.push((root, KERNEL_REGION, KERNEL_TABLE));
            links.push((root, 0, table));
            links.push((table, 0, OTHER_FRAME + other));
            hardware.book.borrow_mut().take(root, FrameKind::Table);
            hardware.book.borrow_mut().take(table, FrameKind::Table);
        }
        for table in [KERNEL_TABLE, ROOT, TABLE] {
            hardware.book.borrow_mut().take(table, FrameKind::Table);
        }
        for (table, index, frame) in links {
            // Before the first event: every CPU knows of it.
            let entry = hardware.physical.entry(table, index).as_core();
            entry.store(Pte::to(frame, true).0, Ordering::Relaxed);
        }
        Self {
            engine,
            space,
            others,
            hardware,
            online: Default::default(),
            forbidden: RefCell::default(),
        }
    }

    /// Comes online and waits until `cpus` CPUs are.
    pub fn online_all(&self, cpus: usize) {
        self.online();
        while self.engine.ready_cpus().len() < cpus {
            PLATFORM.relax();
        }
    }

    /// Comes online as the engine asks it of hosts.
    pub fn online(&self) {
        let state = PLATFORM.irq_save();
        self.engine.online();
        self.online[context().cpu()].set(true);
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    }

    /// Writes the entry of a page of region 0.
    pub fn map(&self, page: usize, frame: u16) {
        self.write(TABLE, page, Pte::to(frame, true));
    }

    /// Empties the entry of a page of region 0.
    pub fn unmap(&self, page: usize) {
        self.write(TABLE, page, Pte::EMPTY);
    }

    /// Maps a kernel page, or unmaps it.
    pub fn set_kernel(&self, entry: Pte) {
        self.write(KERNEL_TABLE, 0, entry);
    }

    /// Points region 0 to another table, or nowhere.
    pub fn link(&self, entry: Pte) {
        self.write(ROOT, 0, entry);
    }

    fn write(&self, table: u16, index: usize, entry: Pte) {
        let cell = self.hardware.physical.entry(table, index);
        // ORDERING: Release publishes the contents of what the entry leads to; pairs with the walker's dependency.
        cell.store(entry.0, Ordering::Release);
    }

    /// From now on nobody may get from `page` to `frame`.
    pub fn forbid(&self, page: usize, frame: u16) {
        self.forbidden.borrow_mut().insert((page, frame));
    }

    /// A user program loads from `page`, whatever that finds.
    pub fn load(&self, page: usize) {
        context().work(1);
        self.load_now(page);
    }

    /// A load with no moment before it: what an NMI does.
    pub fn load_now(&self, page: usize) {
        if let Some(frame) = self.translate(page)
            && self.forbidden.borrow().contains(&(page, frame))
        {
            let story = format!("page {page} still leads to frame {frame}");
            self.hardware
                .book
                .borrow()
                .blame(Subject::Page { page, frame });
            context().fail(FailureKind::StaleAccess, story);
        }
    }

    /// A user program uses the frame of `page`, if it finds one.
    pub fn use_frame(&self, page: usize) {
        context().work(1);
        let Some(frame) = self.translate(page) else {
            return;
        };
        let address = self.hardware.physical.content(frame);
        context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a scene is explored");
            explore.memory.read_translated(cpu, address);
        });
    }

    /// Gives a frame a new owner, who clears it.
    pub fn clear_frame(&self, frame: u16) {
        context().plain(self.hardware.physical.content(frame), Plain::Write);
    }

    /// A program of another space, which is loaded, loads from its only page, and from one that it does not have.
    pub fn load_other(&self, index: usize) {
        context().work(1);
        let found = [self.translate(0), self.translate(1)];
        if found != [Some(OTHER_FRAME + index as u16), None] {
            let story = format!("pages 0 and 1 of other space {index} lead to frames {found:?}");
            context().fail(FailureKind::StaleAccess, story);
        }
    }

    fn translate(&self, page: usize) -> Option<u16> {
        let found = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a scene is explored");
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            self.hardware.translate(memory, chooser, cpu, page)
        });
        let leaf = found.unwrap_or_else(|(kind, story)| context().fail(kind, story));
        leaf.map(|leaf| leaf.frame)
    }

    /// Fails if the hardware of any CPU can still walk a table that was freed.
    pub fn insist_unreachable(&self, table: u16) {
        let tlbs = self.hardware.tlbs.borrow();
        let walker = tlbs.iter().position(|tlb| tlb.reaches_table(table));
        drop(tlbs);
        if let Some(walker) = walker {
            let story = format!("cpu{walker} can still walk table {table}");
            self.hardware.book.borrow().blame(Subject::Table(table));
            context().fail(FailureKind::FreedTable, story);
        }
    }

    /// What the line at an address holds, if it is one of the engine's.
    pub fn line_name(&self, address: usize) -> Option<String> {
        let of_space = self.space.line_name(address).map(str::to_owned);
        of_space.or_else(|| self.engine.full_line_name(address, CpuId::index))
    }

    /// Whether the TLB of a CPU that is online holds this translation.
    pub fn caches(&self, cpu: usize, page: usize, frame: u16) -> bool {
        let tlbs = self.hardware.tlbs.borrow();
        let mut leaves = tlbs[cpu].usable();
        self.online[cpu].get() && leaves.any(|leaf| (leaf.page, leaf.frame) == (page, frame))
    }
}
