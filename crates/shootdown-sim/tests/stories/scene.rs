//! [`Scene`]: an engine, a space with one page table, an empty one, and what may no longer be reached.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::mem;
use std::rc::Rc;

use shootdown::sim::Ordering;
use shootdown::{AddressSpace, Asid, LocalFlush, Platform, Root, Shootdown, TagEntries};
use shootdown_sim::explore::{Chooser, Explore, Hardware, Question, Strategy, Weak};
use shootdown_sim::machine::{Model, context};
use shootdown_sim::mm::{
    Adversary, KERNEL_REGION, KernelPages, PAGES_PER_TABLE, Pte, SharedHardware,
};
use shootdown_sim::oracle::{Breach, FrameKind};
use shootdown_sim::{FailureKind, Machine, Program, SimPlatform};

/// The engine of a scene.
pub type Engine = Shootdown<SimPlatform, 4>;

/// Schedules of each story.
const RUNS: u64 = 1500;
/// More events than any story has that gets on.
const MOST_EVENTS: u64 = 60_000;

const KERNEL_ROOT: u16 = 0;
const KERNEL_TABLE: u16 = 1;
const ROOT: u16 = 2;
/// The table of the space's region 0 when a story begins.
pub const TABLE: u16 = 3;
/// Frames from here on are the story's.
pub const FIRST_FRAME: u16 = 4;
/// Above the story's.
const OTHER_ROOT: u16 = 30;
/// The first page of the kernel's region.
pub const KERNEL_PAGE: usize = KERNEL_REGION * PAGES_PER_TABLE;

/// What all CPUs of one run share.
#[derive(Debug)]
pub struct Scene {
    pub engine: Box<Engine>,
    pub space: AddressSpace<4>,
    /// Another space, with no page of its own.
    pub other: AddressSpace<4>,
    pub hardware: Rc<SharedHardware>,
    /// Whether the CPU's `online` has returned.
    online: [Cell<bool>; 4],
    /// Translations that nobody may use any more.
    forbidden: RefCell<BTreeSet<(usize, u16)>>,
}

impl Scene {
    fn new(cpus: usize) -> Self {
        let engine = Box::new(Engine::new(SimPlatform));
        let space = AddressSpace::new(&engine, Root(u64::from(ROOT)));
        let other = AddressSpace::new(&engine, Root(u64::from(OTHER_ROOT)));
        let hardware = SharedHardware::new(cpus, KERNEL_ROOT, KernelPages::Global);
        for table in [KERNEL_TABLE, ROOT, TABLE, OTHER_ROOT] {
            hardware.book.borrow_mut().take(table, FrameKind::Table);
        }
        let links = [
            (KERNEL_ROOT, KERNEL_REGION, KERNEL_TABLE),
            (ROOT, KERNEL_REGION, KERNEL_TABLE),
            (OTHER_ROOT, KERNEL_REGION, KERNEL_TABLE),
            (ROOT, 0, TABLE),
        ];
        for (root, region, table) in links {
            // Before the first event: every CPU knows of it.
            let entry = hardware.physical.entry(root, region).as_core();
            entry.store(Pte::to(table, true).0, Ordering::Relaxed);
        }
        Self {
            engine,
            space,
            other,
            hardware,
            online: Default::default(),
            forbidden: RefCell::default(),
        }
    }

    /// Comes online and waits until `cpus` CPUs are.
    pub fn online_all(&self, cpus: usize) {
        self.online();
        while self.engine.ready_cpus().len() < cpus {
            SimPlatform.relax();
        }
    }

    /// Comes online as the engine asks it of hosts.
    pub fn online(&self) {
        let state = SimPlatform.irq_save();
        self.engine.online();
        self.online[context().cpu()].set(true);
        SimPlatform.irq_restore(state);
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
        let found = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a scene is explored");
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            self.hardware.translate(memory, chooser, cpu, page)
        });
        let leaf = found.unwrap_or_else(|(kind, story)| context().fail(kind, story));
        if let Some(leaf) = leaf
            && self.forbidden.borrow().contains(&(page, leaf.frame))
        {
            let story = format!("page {page} still leads to frame {}", leaf.frame);
            context().fail(FailureKind::StaleAccess, story);
        }
    }

    /// Whether the TLB of a CPU that is online holds this translation.
    pub fn caches(&self, cpu: usize, page: usize, frame: u16) -> bool {
        let tlbs = self.hardware.tlbs.borrow();
        let mut leaves = tlbs[cpu].usable();
        self.online[cpu].get() && leaves.any(|leaf| (leaf.page, leaf.frame) == (page, frame))
    }
}

/// The adversary, which knows what a scene is about: pages 0 and 1.
#[derive(Debug)]
struct Eager(Adversary);

impl Hardware for Eager {
    fn flush(&mut self, cpu: usize, operation: LocalFlush) {
        self.0.flush(cpu, operation);
    }

    fn load_root(&mut self, cpu: usize, root: Root, asid: Asid, entries: TagEntries) {
        self.0.load_root(cpu, root, asid, entries);
    }

    fn at_event(&mut self, memory: &mut Weak, chooser: &mut Chooser) -> Result<(), Breach> {
        let shared = &self.0.0;
        let cpus = shared.tlbs.borrow().len();
        let wish = chooser.choose(Question::Tlb, 1 + 2 * cpus).checked_sub(1);
        if let Some(wish) = wish {
            shared.translate(memory, chooser, wish / 2, wish % 2)?;
        }
        self.0.at_event(memory, chooser)
    }
}

/// One CPU's part in a story.
pub type Part = fn(&Scene);

/// Tells a story under many schedules; part `n` is CPU n's.
pub fn explore(parts: &[Part]) {
    explore_with_nmi(parts, |_| ());
}

/// The same; non-maskable interrupts lead to `nmi`.
pub fn explore_with_nmi(parts: &[Part], nmi: Part) {
    for seed in 0..RUNS {
        let strategy = match seed % 3 {
            0 => Strategy::Priorities {
                seed,
                changes: 1 + (seed / 3 % 6) as u32,
            },
            _ => Strategy::Random(seed),
        };
        let scene = Scene::new(parts.len());
        let chooser = Chooser::new(strategy, parts.len());
        let tlbs = Box::new(Eager(Adversary(scene.hardware.clone())));
        let model = Explore::new(parts.len(), chooser, tlbs, MOST_EVENTS);
        let handler = || {
            scene.engine.handle_ipi();
        };
        let machine = Machine::new(parts.len(), Model::Explore(Box::new(model)), handler)
            .with_nmi(|| nmi(&scene));
        let programs = parts.iter().map(|part| -> Program<'_> {
            let scene = &scene;
            Box::new(move |_| part(scene))
        });
        let (_, failure) = machine.run(programs.collect());
        if let Some(failure) = failure {
            // The space is still loaded on CPUs that no longer exist, which its drop would rightly refuse.
            mem::forget(scene);
            panic!("seed {seed}: {failure}");
        }
    }
}
