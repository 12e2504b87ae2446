//! Roots that are no space's: a second one of the kernel's, and the trampoline on which CPUs start and firmware runs.
//!
//! Both have an identity map in the user half, of which nothing may be used under any other root. The trampoline's tables are free as soon as the last CPU
//! that started there has left it.

use std::cell::{Cell, RefCell};

use shootdown::sim::Ordering;
use shootdown::{Capacity, Platform};

use crate::explore::Question;
use crate::kernel::layout::KERNEL;
use crate::kernel::theme::Draw;
use crate::kernel::{
    KERNEL_REGION, Leaf, Lock, PAGES_PER_TABLE, Pte, SharedHardware, Sight, World,
};
use crate::machine::{FailureKind, context, kernel_root_at};
use crate::oracle::FrameKind;

/// The name of the kernel's second root in the oracle's book; no space has it.
const SECOND: u64 = u64::MAX;
/// The page that each of these roots maps besides the kernel's, and where it is.
const PAGE: usize = 0;
const REGION: usize = PAGE / PAGES_PER_TABLE;
/// A root, a table and a page.
const FRAMES_OF_ONE: usize = 3;

/// Page tables that are no space's.
#[derive(Clone, Copy, Debug)]
struct HostRoot {
    /// Its name in the oracle's book.
    number: u64,
    root: u16,
    table: u16,
    page: u16,
}

impl HostRoot {
    /// What is written where, the entry of the root that leads to the rest last.
    fn entries(&self, kernel_table: u16) -> [(u16, usize, Pte); 3] {
        [
            (self.root, KERNEL_REGION, Pte::to(kernel_table, true)),
            (self.table, PAGE % PAGES_PER_TABLE, Pte::to(self.page, true)),
            (self.root, REGION, Pte::to(self.table, true)),
        ]
    }
}

/// The host's roots in one run.
#[derive(Debug)]
pub(super) struct HostRoots {
    second: Option<HostRoot>,
    has_trampoline: bool,
    /// Protects the trampoline.
    lock: Lock,
    /// While there is one, and how many CPUs are on it.
    trampoline: RefCell<Option<(HostRoot, usize)>>,
    /// Whether each CPU has not left it.
    starts: Vec<Cell<bool>>,
}

impl HostRoots {
    /// Before the first event: every CPU knows of it. The second root is in the frames from `first` on.
    pub(super) fn new(
        cpus: usize,
        has_trampoline: bool,
        second: Option<(u16, u16)>,
        hardware: &SharedHardware,
    ) -> Self {
        let second = second.map(|(first, kernel_table)| {
            let root = HostRoot {
                number: SECOND,
                root: first,
                table: first + 1,
                page: first + 2,
            };
            let mut book = hardware.book.borrow_mut();
            book.take(root.root, FrameKind::Table);
            book.take(root.table, FrameKind::Table);
            book.take(root.page, FrameKind::Data);
            book.promise(SECOND, PAGE, root.page, true);
            for (table, index, entry) in root.entries(kernel_table) {
                let cell = hardware.physical.entry(table, index).as_core();
                cell.store(entry.0, Ordering::Relaxed);
            }
            root
        });
        Self {
            second,
            has_trampoline,
            lock: Lock::new(),
            trampoline: RefCell::default(),
            starts: vec![Cell::new(false); cpus],
        }
    }

    /// How many frames a second root takes for good.
    pub(super) const fn frames(has_second_root: bool) -> u16 {
        match has_second_root {
            true => FRAMES_OF_ONE as u16,
            false => 0,
        }
    }

    /// How many frames they have now.
    pub(super) fn count_frames(&self) -> usize {
        let has_trampoline = self.trampoline.borrow().is_some();
        let roots = usize::from(self.second.is_some()) + usize::from(has_trampoline);
        roots * FRAMES_OF_ONE
    }
}

impl<C: Capacity> World<C> {
    /// The frame of one of the kernel's roots.
    pub(super) fn some_kernel_root(&self) -> u16 {
        let takes_second = |_: &HostRoot| {
            context().with(|state| {
                let explore = state.explore();
                explore.is_some_and(|explore| explore.chooser.choose(Question::Workload, 2) == 1)
            })
        };
        match self.host_roots.second.filter(takes_second) {
            Some(second) => {
                self.hardware.saw(Sight::SecondKernelRoot);
                second.root
            }
            None => Self::KERNEL_ROOT,
        }
    }

    /// This CPU was told to load one of the kernel's roots, and has.
    pub(super) fn check_loaded(&self, wanted: u16) {
        let loaded = self.hardware.tlbs.borrow()[context().cpu()].root().0;
        if loaded != wanted {
            let story = format!("was to load the root in frame {wanted}, and has frame {loaded}");
            context().fail(FailureKind::Other, story);
        }
        self.check_under_host_root();
    }

    /// A processor begins, where there is a trampoline and memory for it: it knows no root but that.
    pub(super) fn start_processor(&self) {
        let starts = &self.host_roots.starts[context().cpu()];
        if !self.host_roots.has_trampoline || starts.get() {
            return;
        }
        let Some(root) = self.enter_trampoline() else {
            return;
        };
        starts.set(true);
        context().tell(|| format!("starts on the trampoline, whose root is in frame {root}"));
        self.load_as_host(root);
    }

    /// The host loads a root itself, under tag 0, and drops what that has cached.
    fn load_as_host(&self, root: u16) {
        self.with_interrupts(true, || {
            // SAFETY: 1. roots are numbers here.
            unsafe { self.engine.platform().load_root(root.into()) };
        });
    }

    fn enter_trampoline(&self) -> Option<u16> {
        let held = self.host_roots.lock.take(&self.engine);
        let known = *self.host_roots.trampoline.borrow();
        let entered = known.or_else(|| Some((self.new_trampoline()?, 0)));
        let entered = entered.map(|(root, cpus)| (root, cpus + 1));
        self.host_roots.trampoline.replace(entered);
        drop(held);
        entered.map(|(root, _)| root.root)
    }

    fn new_trampoline(&self) -> Option<HostRoot> {
        // Somebody may free a frame between two of these: each is given back if another is missing.
        let taken = (self.take_table(), self.take_table(), self.take_data());
        let (Some(root), Some(table), Some(page)) = taken else {
            let (root, table, page) = taken;
            (root.into_iter().chain(table)).for_each(|table| self.release_table(table));
            page.into_iter().for_each(|page| self.release_data(page));
            return None;
        };
        let tables = HostRoot {
            number: self.next_space.replace(self.next_space.get() + 1),
            root,
            table,
            page,
        };
        let mut book = self.hardware.book.borrow_mut();
        book.promise(tables.number, PAGE, page, true);
        drop(book);
        for (table, index, entry) in tables.entries(Self::kernel_table()) {
            self.write_entry(table, index, entry);
        }
        Some(tables)
    }

    /// This CPU has loaded another root; the last one frees the trampoline.
    pub(super) fn leave_trampoline(&self) {
        if !self.host_roots.starts[context().cpu()].replace(false) {
            return;
        }
        let held = self.host_roots.lock.take(&self.engine);
        let trampoline = self.host_roots.trampoline.take();
        let (tables, cpus) = trampoline.expect("this CPU was on it");
        let is_last = cpus == 1;
        let left = (!is_last).then_some((tables, cpus - 1));
        self.host_roots.trampoline.replace(left);
        drop(held);
        if is_last {
            self.hardware.saw(Sight::TrampolineFreed);
            self.strike(tables.number, PAGE, self.mark());
            self.release_data(tables.page);
            self.release_table(tables.table);
            self.release_table(tables.root);
        }
    }

    /// This CPU leaves its space and calls firmware, which has page tables of its own and loads them itself; interrupts come, or not. A CPU that has not
    /// left the trampoline leaves it so.
    pub(super) fn call_firmware(&self, draw: &mut Draw) {
        self.switch(None);
        context().preempt_disable();
        self.engine.host_roots().begin_foreign_root();
        let starts = &self.host_roots.starts[context().cpu()];
        let off = draw.random.bool();
        self.with_interrupts(off, || {
            if !starts.get()
                && let Some(root) = self.enter_trampoline()
            {
                starts.set(true);
                context().tell(|| format!("firmware loads its root in frame {root}"));
                self.load_as_host(root);
                self.hardware.saw(Sight::FirmwareCalled);
            }
            self.touch_as_host(draw.page());
            self.rest_awhile(draw);
            if draw.once_in(3) {
                self.unmap_kernel(draw.below(PAGES_PER_TABLE), draw.random.bool());
            }
            self.touch_as_host(draw.page());
            let kernel_root = self.some_kernel_root();
            self.engine
                .host_roots()
                .end_foreign_root(kernel_root_at(kernel_root.into()));
            self.check_loaded(kernel_root);
            self.leave_trampoline();
        });
        context().preempt_enable();
    }

    /// Whose promises cover the user half where this CPU is, if it has a root of the host loaded.
    fn host_root_here(&self) -> Option<u64> {
        let root = self.hardware.tlbs.borrow()[context().cpu()].root().0;
        let trampoline = *self.host_roots.trampoline.borrow();
        let trampoline = trampoline.map(|(tables, _)| tables);
        let mut others = self.host_roots.second.into_iter().chain(trampoline);
        let other = others.find(|tables| tables.root == root);
        other
            .map(|tables| tables.number)
            .or_else(|| (root == Self::KERNEL_ROOT).then_some(KERNEL))
    }

    /// Under a root of the host this CPU can use what that maps, and nothing else.
    pub(super) fn check_under_host_root(&self) {
        let Some(owner) = self.host_root_here() else {
            return;
        };
        let tlbs = self.hardware.tlbs.borrow();
        let of_user = |leaf: &Leaf| leaf.page / PAGES_PER_TABLE != KERNEL_REGION;
        for leaf in tlbs[context().cpu()].usable().filter(of_user) {
            let book = self.hardware.book.borrow();
            self.insist(book.check_access(owner, leaf.page, leaf.frame, leaf.writable));
        }
    }

    /// Kernel code that runs in no space uses the identity map, if there is one.
    pub(super) fn touch_as_host(&self, page: usize) {
        self.check_under_host_root();
        let Some(owner) = self.host_root_here() else {
            return;
        };
        if let Some(leaf) = self.translate(page) {
            let book = self.hardware.book.borrow();
            let outcome = book.check_access(owner, page, leaf.frame, leaf.writable);
            drop(book);
            self.insist(outcome);
            self.use_frame(leaf.frame);
        }
    }
}
