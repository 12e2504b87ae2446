//! [`Stage`]: two small spaces in simulated memory, the TLBs of all CPUs, and the oracle that judges what programs load.
//!
//! Each space has one page, page 0, that is mapped when a story begins.

use std::cell::Cell;
use std::rc::Rc;

use shootdown::shim::{AtomicU64, Ordering, fence};
use shootdown::{
    CpuId, FlushRange, FreedTables, KernelRoot, LocalFlush, PageSize, Platform, Root,
    tags::{Asid, TagEntries},
};

use crate::explore::{Chooser, Hardware, Schedule, Strategy, Weak};
use crate::kernel::{Focused, KERNEL_REGION, KernelPages, Pte, SharedHardware};
use crate::machine::{PLATFORM, context, kernel_root_at, root_at};
use crate::oracle::{FrameKind, Mark};

/// The spaces of a story, as its parts name them.
pub(super) const SPACES: usize = 2;
/// The page that stories are about, and the only one that TLBs cache by themselves.
const PAGE: usize = 0;
const KERNEL_ROOT: u16 = 0;
const KERNEL_TABLE: u16 = 1;
const FIRST_ROOT: u16 = 2;
const FIRST_TABLE: u16 = FIRST_ROOT + SPACES as u16;
const FIRST_FRAME: u16 = FIRST_TABLE + SPACES as u16;

/// What all CPUs of one run share.
#[derive(Debug)]
pub(super) struct Stage {
    cpus: usize,
    hardware: Rc<SharedHardware>,
    /// The space that each CPU's program runs in.
    running: Vec<Cell<Option<usize>>>,
    /// How many CPUs have come to [`meet`](Self::meet).
    met: AtomicU64,
}

impl Stage {
    /// Every CPU runs nothing.
    pub(super) fn new(cpus: usize) -> Self {
        let hardware = SharedHardware::new(cpus, KERNEL_ROOT, KernelPages::Global);
        let stage = Self {
            cpus,
            hardware,
            running: vec![Cell::new(None); cpus],
            met: AtomicU64::new(0),
        };
        stage.take(KERNEL_TABLE, FrameKind::Table);
        let kernel = stage.hardware.physical.entry(KERNEL_ROOT, KERNEL_REGION);
        // As below.
        let entry = Pte::to(KERNEL_TABLE, true).0;
        kernel.as_core().store(entry, Ordering::Relaxed);
        for space in 0..SPACES {
            let (root, table) = (FIRST_ROOT + space as u16, table_of(space));
            let frame = FIRST_FRAME + space as u16;
            stage.take(root, FrameKind::Table);
            stage.take(table, FrameKind::Table);
            stage.take(frame, FrameKind::Data);
            for (at, index, to) in [
                (root, KERNEL_REGION, KERNEL_TABLE),
                (root, 0, table),
                (table, PAGE, frame),
            ] {
                // Before the first event: every CPU knows of it.
                let entry = stage.hardware.physical.entry(at, index).as_core();
                entry.store(Pte::to(to, true).0, Ordering::Relaxed);
            }
            let mut book = stage.hardware.book.borrow_mut();
            book.promise(Self::number_of(space), PAGE, frame, true);
        }
        stage
    }

    fn take(&self, frame: u16, kind: FrameKind) {
        self.hardware.book.borrow_mut().take(frame, kind);
    }

    /// The TLBs to put under a machine. Those that obey cache nothing by themselves.
    pub(super) fn tlbs(&self, obey: bool) -> Box<Focused> {
        let pages: &[usize] = if obey { &[] } else { &[PAGE] };
        Box::new(Focused::new(self.hardware.clone(), pages))
    }

    /// Before the first event: a CPU runs a space, and has used its page.
    pub(super) fn place(&self, tlbs: &mut Focused, cpu: usize, space: usize) {
        tlbs.load_root(
            cpu,
            Self::root_of(space).as_u64(),
            Asid::UNTAGGED,
            TagEntries::Drop,
        );
        // Memory that holds what it is made with, and nothing unusual: that of the run has not begun.
        let nothing_unusual = Strategy::Replay(Schedule::default());
        let mut memory = Weak::new(self.cpus);
        let mut chooser = Chooser::new(nothing_unusual, self.cpus);
        let found = (self.hardware).translate(&mut memory, &mut chooser, cpu, PAGE);
        assert!(matches!(found, Ok(Some(_))), "the page is mapped");
        self.running[cpu].set(Some(space));
    }

    /// A space as the oracle numbers it, which has 0 for the kernel.
    pub(super) fn number_of(space: usize) -> u64 {
        space as u64 + 1
    }

    /// The root of a space.
    pub(super) fn root_of(space: usize) -> Root {
        root_at(u64::from(FIRST_ROOT) + space as u64)
    }

    /// The root that no space has.
    pub(super) fn kernel_root() -> KernelRoot {
        kernel_root_at(u64::from(KERNEL_ROOT))
    }

    /// The page, as flushes name it.
    pub(super) fn range() -> FlushRange {
        FlushRange::pages(PAGE, 1, PageSize::SIZE_4K)
    }

    /// All CPUs but the one that asks.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> {
        let me = context().cpu();
        (0..self.cpus).filter(move |cpu| *cpu != me)
    }

    /// Those of the CPUs whose bits are set that are not the CPU that asks.
    pub(super) fn others_in(&self, set: u64) -> impl Iterator<Item = usize> {
        self.others().filter(move |cpu| set >> cpu & 1 == 1)
    }

    /// Loads the root of a space, or the kernel's. Whatever the CPU has cached under the old one is dropped: there are no tags.
    pub(super) fn load_root(&self, space: Option<usize>) {
        self.full_barrier();
        let root = match space {
            Some(space) => Self::root_of(space).as_u64(),
            None => Self::kernel_root().as_u64(),
        };
        // SAFETY: 1. roots are numbers here.
        unsafe { PLATFORM.load_root(root) };
    }

    /// The CPU drops the page.
    pub(super) fn drop_page(&self) {
        self.full_barrier();
        PLATFORM.local_flush(LocalFlush::Pages(Self::range(), FreedTables::No));
    }

    /// The CPU drops all that it has cached.
    pub(super) fn drop_all(&self) {
        self.full_barrier();
        PLATFORM.local_flush(LocalFlush::All);
    }

    /// What an instruction that serialises or locks is on x86: what the CPU has stored before is where all see it.
    pub(super) fn full_barrier(&self) {
        // ORDERING: the machine's memory knows C11's fences; what x86 adds, that others need none, follows.
        fence(Ordering::SeqCst);
        context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a stage is explored");
            let known = explore.memory.tell(cpu);
            (0..self.cpus).for_each(|cpu| explore.memory.hear(cpu, &known));
        });
    }

    /// Interrupts another CPU.
    pub(super) fn interrupt(&self, cpu: usize) {
        let sent = PLATFORM.send_ipi(CpuId::new(cpu as u32));
        assert!(sent.is_ok(), "no controller of a story refuses");
    }

    /// A turn of a spin loop.
    pub(super) fn spin() {
        PLATFORM.relax();
    }

    /// Until all CPUs have come here.
    pub(super) fn meet(&self) {
        // ORDERING: Release and Acquire: what each CPU did before is seen by all behind it.
        self.met.fetch_add(1, Ordering::AcqRel);
        while self.met.load(Ordering::Acquire) < self.cpus as u64 {
            Self::spin();
        }
    }

    /// The hypervisor runs the CPU from here on, or does not: then its TLB does nothing by itself.
    pub(super) fn set_runs(&self, runs: bool) {
        context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a stage is explored");
            explore.hardware.set_runs(cpu, runs);
        });
    }

    pub(super) fn running(&self) -> Option<usize> {
        self.running[context().cpu()].get()
    }

    pub(super) fn set_running(&self, space: Option<usize>) {
        self.running[context().cpu()].set(space);
    }

    /// Here, before the entry is changed: what [`give_away`](Self::give_away) takes back.
    pub(super) fn mark(&self) -> Mark {
        self.hardware.book.borrow().mark()
    }

    pub(super) fn empty_entry(&self, space: usize) {
        let table = table_of(space);
        let entry = self.hardware.physical.entry(table, PAGE);
        // ORDERING: Release publishes the contents of what the entry leads to; pairs with the walker's dependency.
        entry.store(Pte::EMPTY.0, Ordering::Release);
        context().tell(|| format!("unmaps page {PAGE} of space {}", Self::number_of(space)));
    }

    /// The algorithm holds that nobody uses the page any more: it is promised no longer, and its frame has another owner.
    pub(super) fn give_away(&self, space: usize, mark: Mark) {
        let frame = FIRST_FRAME + space as u16;
        context().tell(|| format!("frees frame {frame}, which gets another owner"));
        let mut book = self.hardware.book.borrow_mut();
        book.withdraw(Self::number_of(space), PAGE, mark, context().events());
        book.release(frame);
        book.take(frame, FrameKind::Data);
        drop(book);
        context().work(1);
    }

    /// The program of the space that the CPU runs loads from the page; the oracle judges what that finds.
    pub(super) fn load(&self) {
        context().work(1);
        let Some(space) = self.running() else {
            return;
        };
        let found = context().with(|state| {
            let cpu = state.running;
            let explore = state.explore().expect("a stage is explored");
            let (memory, chooser) = (&mut explore.memory, &mut explore.chooser);
            self.hardware.translate(memory, chooser, cpu, PAGE)
        });
        let number = Self::number_of(space);
        let judged = found.and_then(|leaf| {
            let frame = leaf.map(|leaf| leaf.frame);
            context().tell(|| match frame {
                Some(frame) => format!("loads from page {PAGE}: finds frame {frame}"),
                None => format!("loads from page {PAGE}: not mapped"),
            });
            let book = self.hardware.book.borrow();
            frame.map_or(Ok(()), |it| book.check_access(number, PAGE, it, false))
        });
        if let Err((kind, message)) = judged {
            context().fail(kind, message);
        }
    }
}

fn table_of(space: usize) -> u16 {
    FIRST_TABLE + space as u16
}
