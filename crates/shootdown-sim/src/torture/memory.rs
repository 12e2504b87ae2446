//! [`TortureMemory`]: what the torture's flushes are about, translated by the adversarial TLBs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use shootdown::sim::Ordering;
use shootdown::{AddressSpace, Capacity, CpuId, Cpus, Platform, windows::WindowRoot};
use shootdown_torture::{Memory, Region};

use crate::kernel::{
    FRAMES, KERNEL_REGION, KernelPages, PAGES_PER_TABLE, Pte, SharedHardware, USER_PAGES,
    WINDOW_REGION,
};
use crate::machine::{Engine, PLATFORM, context, kernel_root_at, root_at};
use crate::oracle::FrameKind;

const PAGE_SHIFT: u32 = 12;
const KERNEL_ROOT: u16 = 0;
const KERNEL_TABLE: u16 = 1;
const SPACES: u16 = 2;
/// Each space has a root and a table for each region of its own.
const FRAMES_PER_SPACE: u16 = 1 + KERNEL_REGION as u16;
const FIRST_SPARE: u16 = 2 + SPACES * FRAMES_PER_SPACE;
/// Tables that are not in use: those that are freed come back soon.
const SPARES: u16 = 2;
const FIRST_PRIVATE: u16 = FIRST_SPARE + SPARES;
/// Each CPU has a private root for the first space, and a table for its windows.
const FRAMES_PER_CPU: u16 = 2;

fn private_root(cpu: usize) -> u16 {
    FIRST_PRIVATE + cpu as u16 * FRAMES_PER_CPU
}

fn window_table(cpu: usize) -> u16 {
    private_root(cpu) + 1
}

/// Spaces, tables and frames of one run.
#[derive(Debug)]
pub(super) struct TortureMemory<const N: usize>
where
    Cpus<N>: Capacity,
{
    engine: Rc<Engine<Cpus<N>>>,
    pub(super) hardware: Rc<SharedHardware>,
    pub(super) spaces: Vec<AddressSpace<Cpus<N>>>,
    /// The leaf tables of each space.
    tables: RefCell<[[u16; KERNEL_REGION]; SPACES as usize]>,
    spares: RefCell<Vec<u16>>,
    /// Each CPU's private root, until it retires it.
    windows: Vec<RefCell<Option<WindowRoot>>>,
    /// Counts loads of the first space, which take turns.
    turns: Cell<u32>,
    first_frame: u16,
    /// What each frame holds.
    words: Vec<Cell<u64>>,
    /// The space of each task.
    entered: Vec<Cell<Option<usize>>>,
    /// What each CPU has loaded.
    pub(super) loaded: Vec<Cell<Option<usize>>>,
}

// SAFETY: a machine and all its coroutines live on one thread, see `Machine::run`.
unsafe impl<const N: usize> Sync for TortureMemory<N> where Cpus<N>: Capacity {}

impl<const N: usize> TortureMemory<N>
where
    Cpus<N>: Capacity,
{
    pub(super) fn new(
        engine: Rc<Engine<Cpus<N>>>,
        cpus: usize,
        tasks: usize,
        kernel_pages: KernelPages,
    ) -> Self {
        let hardware = SharedHardware::new(cpus, KERNEL_ROOT, kernel_pages);
        // Before the first event: every CPU knows of all this.
        let link = |table: u16, index: usize, to: u16| {
            let entry = hardware.physical.entry(table, index).as_core();
            entry.store(Pte::to(to, true).0, Ordering::Relaxed);
        };
        let take = |frame: u16| hardware.book.borrow_mut().take(frame, FrameKind::Table);
        take(KERNEL_TABLE);
        link(KERNEL_ROOT, KERNEL_REGION, KERNEL_TABLE);
        let root_of = |space: u16| 2 + space * FRAMES_PER_SPACE;
        let mut tables = [[0; KERNEL_REGION]; SPACES as usize];
        for space in 0..SPACES {
            let root = root_of(space);
            take(root);
            link(root, KERNEL_REGION, KERNEL_TABLE);
            for (region, table) in tables[usize::from(space)].iter_mut().enumerate() {
                *table = root + 1 + region as u16;
                take(*table);
                link(root, region, *table);
            }
        }
        for cpu in 0..cpus {
            let (root, table) = (private_root(cpu), window_table(cpu));
            take(root);
            take(table);
            link(root, KERNEL_REGION, KERNEL_TABLE);
            link(root, WINDOW_REGION, table);
        }
        let space = |number| AddressSpace::new(&engine, root_at(u64::from(root_of(number))));
        let spaces: Vec<_> = (0..SPACES).map(space).collect();
        let windows = |cpu: usize| {
            let root = root_at(u64::from(private_root(cpu)));
            WindowRoot::new(&engine, &spaces[0], CpuId::new(cpu as u32), root)
        };
        let first_frame = private_root(cpus);
        Self {
            windows: (0..cpus)
                .map(|cpu| RefCell::new(Some(windows(cpu))))
                .collect(),
            turns: Cell::new(0),
            first_frame,
            spaces,
            tables: RefCell::new(tables),
            spares: RefCell::new((FIRST_SPARE..FIRST_PRIVATE).collect()),
            words: vec![Cell::new(0); FRAMES - usize::from(first_frame)],
            entered: vec![Cell::new(None); tasks],
            loaded: vec![Cell::new(None); cpus],
            hardware,
            engine,
        }
    }

    /// Loads the space of a task on this CPU, whose interrupts or preemption are off.
    pub(super) fn load_for(&self, task: usize) {
        let here = &self.loaded[context().cpu()];
        let (before, wanted) = (here.get(), self.entered[task].get());
        match (before, wanted) {
            _ if before == wanted => {}
            (before, Some(wanted)) => {
                let before = before.map(|space| &self.spaces[space]);
                self.switch(before, wanted);
            }
            (Some(before), None) => {
                let kernel = kernel_root_at(u64::from(KERNEL_ROOT));
                self.engine.switch_away(&self.spaces[before], kernel);
            }
            (None, None) => {}
        }
        here.set(wanted);
    }

    fn switch(&self, before: Option<&AddressSpace<Cpus<N>>>, wanted: usize) {
        let turn = self.turns.replace(self.turns.get() + 1);
        let windows = self.windows[context().cpu()].borrow();
        let windows = windows
            .as_ref()
            .filter(|_| wanted == 0 && turn.is_multiple_of(2));
        let space = &self.spaces[wanted];
        match windows {
            Some(windows) => self.engine.windows().switch_to(before, space, windows),
            None => self.engine.switch_to(before, space),
        }
    }

    /// This CPU has left its space for good.
    pub(super) fn retire_windows(&self) {
        if let Some(windows) = self.windows[context().cpu()].take() {
            self.engine.windows().retire(&self.spaces[0], windows);
        }
    }

    /// The hardware's number of a page.
    fn number(region: Region, page: usize) -> usize {
        match region {
            Region::Space(_) => page,
            Region::Kernel => KERNEL_REGION * PAGES_PER_TABLE + page,
            Region::Window(_) => WINDOW_REGION * PAGES_PER_TABLE + page,
        }
    }

    fn write(&self, table: u16, index: usize, entry: Pte) {
        context().tell(|| format!("writes entry {index} of table {table}: {entry}"));
        let cell = self.hardware.physical.entry(table, index);
        // ORDERING: Release publishes the contents of what the entry leads to; pairs with the walker's dependency.
        cell.store(entry.0, Ordering::Release);
    }
}

impl<const N: usize> Memory<N> for TortureMemory<N>
where
    Cpus<N>: Capacity,
{
    fn spaces(&self) -> usize {
        self.spaces.len()
    }

    fn space(&self, index: usize) -> &AddressSpace<Cpus<N>> {
        &self.spaces[index]
    }

    fn pages(&self, region: Region) -> usize {
        match region {
            Region::Space(_) => USER_PAGES,
            Region::Kernel | Region::Window(_) => PAGES_PER_TABLE,
        }
    }

    fn address(&self, region: Region, page: usize) -> usize {
        Self::number(region, page) << PAGE_SHIFT
    }

    fn frames(&self) -> usize {
        self.words.len()
    }

    fn write_frame(&self, frame: usize, word: u64) {
        self.words[frame].set(word);
    }

    fn map(&self, region: Region, page: usize, frame: Option<usize>) {
        let table = match region {
            Region::Space(index) => self.tables.borrow()[index][page / PAGES_PER_TABLE],
            Region::Kernel => KERNEL_TABLE,
            Region::Window(cpu) => window_table(cpu),
        };
        let entry = frame.map_or(Pte::EMPTY, |frame| {
            Pte::to(self.first_frame + frame as u16, true)
        });
        self.write(table, page % PAGES_PER_TABLE, entry);
    }

    fn load(&self, region: Region, page: usize) -> Option<u64> {
        let outcome = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore()?;
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            let page = Self::number(region, page);
            Some(self.hardware.translate(memory, chooser, cpu, page))
        });
        let leaf = outcome?.unwrap_or_else(|(kind, story)| context().fail(kind, story))?;
        Some(self.words[usize::from(leaf.frame - self.first_frame)].get())
    }

    fn entered(&self) -> Option<usize> {
        self.entered[context().task()].get()
    }

    fn enter(&self, space: Option<usize>) {
        let state = PLATFORM.irq_save();
        let task = context().task();
        self.entered[task].set(space);
        self.load_for(task);
        // SAFETY: 1. saved above.
        unsafe { PLATFORM.irq_restore(state) };
    }

    fn table_of(&self, space: usize, page: usize) -> Option<usize> {
        let root = 2 + space as u16 * FRAMES_PER_SPACE;
        let entry = self.hardware.physical.entry(root, page / PAGES_PER_TABLE);
        // ORDERING: acquires what the entry leads to; pairs with `write`.
        Pte(entry.load(Ordering::Acquire)).frame().map(usize::from)
    }

    fn move_table(&self, space: usize, page: usize) -> Option<usize> {
        let fresh = self.spares.borrow_mut().pop()?;
        let region = page / PAGES_PER_TABLE;
        let old = std::mem::replace(&mut self.tables.borrow_mut()[space][region], fresh);
        let mut book = self.hardware.book.borrow_mut();
        book.take(fresh, FrameKind::Table);
        drop(book);
        for index in 0..PAGES_PER_TABLE {
            // The newest value: nobody else changes entries of this table now.
            let entry = self.hardware.physical.entry(old, index).as_core();
            self.write(fresh, index, Pte(entry.load(Ordering::Relaxed)));
        }
        let root = 2 + space as u16 * FRAMES_PER_SPACE;
        self.write(root, region, Pte::to(fresh, true));
        self.spaces[space].top_changed();
        Some(usize::from(old))
    }

    fn has_windows(&self, cpu: usize) -> bool {
        self.windows[cpu].borrow().is_some()
    }

    fn with_windows(&self, cpu: usize, work: &mut dyn FnMut(&WindowRoot)) {
        self.windows[cpu].borrow().iter().for_each(work);
    }

    fn table_pages(&self, page: usize) -> (usize, usize) {
        (page / PAGES_PER_TABLE * PAGES_PER_TABLE, PAGES_PER_TABLE)
    }

    fn free_table(&self, table: usize) {
        self.hardware.book.borrow_mut().release(table as u16);
        self.spares.borrow_mut().push(table as u16);
    }
}
