//! Quiet CPUs: a program runs in user mode, and its CPU is left alone by what concerns the kernel only.

use std::cell::{Cell, RefCell};

use shootdown::{Capacity, CpuMask};

use crate::kernel::theme::Draw;
use crate::kernel::{KERNEL_REGION, PAGES_PER_TABLE, Sight, World};
use crate::machine::{FailureKind, context};

/// A CPU is in user mode for so many events, at most.
const LONGEST: usize = 60;

/// Who is quiet, as the host knows it.
#[derive(Debug)]
pub struct Quiet {
    /// Some CPU is or was.
    is_on: Cell<bool>,
    stays: Vec<Stay>,
    next: Cell<u64>,
}

/// Of one CPU.
#[derive(Clone, Default, Debug)]
struct Stay {
    /// Its number, from the way out to the end of the way in; else 0.
    number: Cell<u64>,
    /// Text was changed meanwhile: how often it had fetched anew before, by which task, and what the text has become.
    changed: RefCell<Vec<(u64, usize, u64)>>,
}

impl Quiet {
    pub(super) fn new(cpus: usize) -> Self {
        Self {
            is_on: Cell::new(false),
            stays: vec![Stay::default(); cpus],
            next: Cell::new(1),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    pub(super) fn is_quiet(&self, cpu: usize) -> bool {
        self.stays[cpu].number.get() != 0
    }
}

impl<C: Capacity> World<C> {
    /// User code for a while.
    pub(super) fn run_quietly(&self, draw: &mut Draw) {
        self.wake();
        self.leave_kernel();
        context().preempt_disable();
        let me = context().cpu();
        if self.online[me].get() {
            self.with_interrupts(true, || self.enter_quiet());
            for _ in 0..draw.below(LONGEST) {
                context().work(1);
                context().maybe_nmi();
                let space = self.current[me].borrow().clone();
                if let Some(space) = space.filter(|_| draw.once_in(4)) {
                    let windows = self.windowed[me].borrow().clone();
                    self.access(&space, windows.as_deref(), draw.page(), false);
                }
                if draw.once_in(8) {
                    self.write_and_look_here(draw);
                }
            }
            self.with_interrupts(true, || self.leave_quiet());
        }
        context().preempt_enable();
    }

    /// The end of a way out of the kernel. Interrupts are off.
    pub(super) fn enter_quiet(&self) {
        let quiet = &self.quiet;
        quiet.is_on.set(true);
        quiet.stays[context().cpu()].number.set(quiet.next.get());
        quiet.next.set(quiet.next.get() + 1);
        context().tell(|| "is quiet".to_owned());
        // SAFETY: 1. user code, and its accesses, use nothing of the kernel; all ways in are `handle_interrupt`, `nmi` and `run_quietly`, which begin with `leave_quiet`.
        // 2. there is no text.
        unsafe { self.engine.control().enter_quiet() };
    }

    /// The beginning of each way in; whether the CPU was quiet. Interrupts are off.
    pub(super) fn leave_quiet(&self) -> bool {
        if !self.quiet.is_on() {
            return false;
        }
        let me = context().cpu();
        let was_stale = self.has_stale_kernel_page(me);
        let was_quiet = self.engine.control().leave_quiet();
        if was_quiet {
            context().tell(|| "is in the kernel again".to_owned());
        }
        let stay = &self.quiet.stays[me];
        stay.number.set(0);
        for (before, task, text) in stay.changed.take() {
            let has_fetched = context().with(|state| state.synchronised[me]) > before;
            if !has_fetched || self.controls.text_of(task) < text {
                let message = format!("cpu{me} comes back and executes what was changed");
                context().fail(FailureKind::EarlyReturn, message);
            }
            self.hardware.saw(Sight::QuietFetched);
        }
        if self.online[me].get() {
            self.check_kernel_leaves(me);
        }
        if was_stale && !self.has_stale_kernel_page(me) {
            self.hardware.saw(Sight::QuietDropped);
        }
        was_quiet
    }

    fn has_stale_kernel_page(&self, cpu: usize) -> bool {
        let (tlbs, pages) = (self.hardware.tlbs.borrow(), self.kernel_pages.borrow());
        tlbs[cpu].usable().any(|leaf| {
            let (region, index) = (leaf.page / PAGES_PER_TABLE, leaf.page % PAGES_PER_TABLE);
            region == KERNEL_REGION && pages[index] != Some(leaf.frame)
        })
    }

    /// Those of a set that are quiet: in which stay, and how often they have fetched anew.
    pub(super) fn quiet_among(&self, cpus: &CpuMask<C>) -> Vec<(usize, u64, u64)> {
        let state = |cpu: usize| {
            let fetched = context().with(|state| state.synchronised[cpu]);
            (cpu, self.quiet.stays[cpu].number.get(), fetched)
        };
        let all = self.indexes(cpus).into_iter().map(state);
        all.filter(|(_, number, _)| *number != 0).collect()
    }

    /// A change of text is over, before which these were quiet: those that are it still have to fetch that anew.
    pub(super) fn owe_fetches(&self, quiet: &[(usize, u64, u64)], (task, text): (usize, u64)) {
        for (cpu, number, fetched) in quiet {
            let stay = &self.quiet.stays[*cpu];
            if stay.number.get() == *number {
                stay.changed.borrow_mut().push((*fetched, task, text));
            }
        }
    }
}
