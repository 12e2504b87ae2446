//! The log of what guests write: while it is on, a page is read-only until the first store to it, which is recorded.
//!
//! A reader of the log clears it, makes the pages in it read-only again, and copies them when the flush is over. So a store must be in the log at that
//! moment, or in what somebody has read and not copied yet; and after a reader's flush no store goes past the log any more, also not by an entry that another
//! reader has made read-only before. So that flush is due also when nothing was in the log.

use std::cell::{Cell, RefCell};

use shootdown::Capacity;
use shootdown::sim::{AtomicU64, Ordering};

use crate::kernel::World;
use crate::kernel::guest::layout::GUEST_PAGES;
use crate::kernel::guest::vm::{NestedPage, Vm};
use crate::kernel::sightings::Sight;
use crate::kernel::theme::Draw;
use crate::machine::{FailureKind, context};

/// The log of one virtual machine.
#[derive(Debug)]
pub(super) struct DirtyLog {
    /// Whether it is on, under the virtual machine's lock; odd numbers mean that it is.
    period: Cell<u64>,
    /// A bit for each page.
    dirty: AtomicU64,
    judge: RefCell<Judge>,
}

/// What must not be lost.
#[derive(Clone, Default, Debug)]
struct Judge {
    /// The period in which all stores are in the log, once that has begun.
    period: Option<u64>,
    /// Pages that were written and not copied since.
    written: u64,
    /// What was read and not copied yet: the number of the reading, and its pages.
    reading: Vec<(u64, u64)>,
    readings: u64,
}

impl Judge {
    fn is_read(&self, page: usize) -> bool {
        let mut pages = self.reading.iter().map(|(_, pages)| pages);
        pages.any(|pages| pages & (1 << page) != 0)
    }
}

impl DirtyLog {
    pub(super) fn new() -> Self {
        Self {
            period: Cell::new(0),
            dirty: AtomicU64::new(0),
            judge: RefCell::default(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.period.get() % 2 == 1
    }

    fn begin_period(&self) {
        self.period.set(self.period.get() + 1);
        // Whatever was read before is nobody's any more.
        *self.judge.borrow_mut() = Judge::default();
    }

    /// A page is about to become writable, under the lock; true if that is in the log.
    pub(super) fn record(&self, page: usize) -> bool {
        if self.is_on() {
            self.dirty.fetch_or(1 << page, Ordering::Relaxed);
            context().tell(|| format!("records a store to page {page}"));
        }
        self.is_on()
    }

    /// A guest has just stored to a page.
    pub(super) fn note_write(&self, page: usize) {
        let mut judge = self.judge.borrow_mut();
        if judge.period != Some(self.period.get()) {
            return;
        }
        judge.written |= 1 << page;
        drop(judge);
        self.check(page);
    }

    /// A page that was written is in the log, or being read.
    fn check(&self, page: usize) {
        let is_logged = self.dirty.as_core().load(Ordering::Relaxed) & (1 << page) != 0;
        if !is_logged && !self.judge.borrow().is_read(page) {
            let story = format!("page {page} was written, and no log will say so");
            context().fail(FailureKind::LostStore, story);
        }
    }

    /// The log is about to be read: an interrupt may come between the reading and [`have_read`](Self::have_read).
    fn begin_reading(&self) -> u64 {
        let mut judge = self.judge.borrow_mut();
        judge.readings += 1;
        let number = judge.readings;
        judge.reading.push((number, u64::MAX));
        number
    }

    /// These pages were in it.
    fn have_read(&self, number: u64, pages: u64) {
        let mut judge = self.judge.borrow_mut();
        let mut reading = judge.reading.iter_mut();
        if let Some(known) = reading.find(|(other, _)| *other == number) {
            known.1 = pages;
        }
    }

    /// They are copied now.
    fn end_reading(&self, number: u64, pages: u64) {
        let mut judge = self.judge.borrow_mut();
        judge.reading.retain(|(other, _)| *other != number);
        judge.written &= !pages;
        let left = judge.written;
        drop(judge);
        let is_left = |page: &usize| left & (1 << page) != 0;
        (0..GUEST_PAGES)
            .filter(is_left)
            .for_each(|page| self.check(page));
    }
}

impl<C: Capacity> World<C> {
    /// Turns the log on or off.
    pub(super) fn toggle_log(&self, vm: &Vm<C>, draw: &mut Draw) {
        let held = vm.lock.take(&self.engine);
        vm.log.begin_period();
        let period = vm.log.period.get();
        context().tell(|| format!("log of guest {}: {}", vm.number, vm.log.is_on()));
        vm.log.dirty.store(0, Ordering::Relaxed);
        if !vm.log.is_on() {
            drop(held);
            return;
        }
        let mark = self.mark();
        self.protect_for_log(vm, u64::MAX);
        self.wait(self.flush_guest(vm, held, draw));
        for page in 0..GUEST_PAGES {
            self.strike_writable(vm.number, page, mark);
        }
        if vm.log.period.get() == period {
            vm.log.judge.borrow_mut().period = Some(period);
        }
    }

    /// Reads the log, clears it, and copies what is in it.
    pub(super) fn read_log(&self, vm: &Vm<C>, draw: &mut Draw) {
        let held = vm.lock.take(&self.engine);
        if !vm.log.is_on() {
            drop(held);
            return;
        }
        let period = vm.log.period.get();
        let mark = self.mark();
        let reading = vm.log.begin_reading();
        let dirty = vm.log.dirty.swap(0, Ordering::Relaxed);
        vm.log.have_read(reading, dirty);
        context().tell(|| format!("reads the log of guest {}: {dirty:#b}", vm.number));
        self.protect_for_log(vm, dirty);
        self.wait(self.flush_guest(vm, held, draw));
        for page in 0..GUEST_PAGES {
            self.strike_writable(vm.number, page, mark);
        }
        context().tell(|| format!("has read the log of guest {}: {dirty:#b}", vm.number));
        if vm.log.period.get() == period {
            for _ in 0..dirty.count_ones() {
                self.hardware.saw(Sight::DirtyFound);
            }
            vm.log.end_reading(reading, dirty);
        }
    }

    /// Makes pages read-only that are not, under the lock.
    fn protect_for_log(&self, vm: &Vm<C>, pages: u64) {
        for page in (0..GUEST_PAGES).filter(|page| pages & (1 << page) != 0) {
            let nested = vm.inner.borrow().pages[page].filter(|nested| nested.writable);
            if let Some(nested) = nested {
                let protected = NestedPage {
                    writable: false,
                    ..nested
                };
                self.set_nested(vm, page, protected);
            }
        }
    }
}
