//! Cross-CPU calls of every kind, and the check that each ran exactly where and as often as it should.

use std::cell::{Cell, RefCell};

use shootdown::sim::Plain;
use shootdown::{
    CallTargets, Capacity, CpuId, CpuMask, FlushRange, FlushScope, FreedTables, PageSize, Platform,
    calls::Wait,
};

use crate::kernel::layout::{address_of, kernel_page};
use crate::kernel::sightings::Sight;
use crate::kernel::{Lock, World};
use crate::machine::{FailureKind, PLATFORM, context};

thread_local! {
    /// Runs of posted functions, `(serial, cpu)`: those functions borrow nothing, so they find it here.
    static POSTED_RUNS: RefCell<Vec<(u64, usize)>> = const { RefCell::new(Vec::new()) };
}

/// What makes a serial number recognisable.
const MARK: u64 = 0x5eed_c0de_0000_0000;

/// The calls of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    next: Cell<u64>,
    /// Functions take it, so interrupts are off as long as it is held.
    lock: Lock,
    posted: RefCell<Vec<(u64, Vec<usize>)>>,
    /// One argument a task, and one answer for each CPU: plain memory that the calls must order.
    arguments: Vec<Cell<u64>>,
    answers: Vec<Vec<Cell<u64>>>,
}

impl Ledger {
    pub(super) fn new(cpus: usize, tasks: usize) -> Self {
        POSTED_RUNS.with_borrow_mut(Vec::clear);
        Self {
            next: Cell::new(1),
            lock: Lock::new(),
            posted: RefCell::default(),
            arguments: vec![Cell::new(0); tasks],
            answers: vec![vec![Cell::new(0); cpus]; tasks],
        }
    }

    pub(super) fn serial(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }
}

/// How a call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    All,
    Many,
    One,
    Any,
}

fn address<T>(cell: &Cell<T>) -> usize {
    core::ptr::from_ref(cell).addr()
}

impl<C: Capacity> World<C> {
    /// Calls and waits. Every target must have run once when it returns, must have seen the argument, and its
    /// answer must be there.
    pub(super) fn call(&self, call: Call, wanted: &CpuMask<C>) {
        let me = context().task();
        let serial = self.ledger.serial();
        let argument = &self.ledger.arguments[me];
        context().plain(address(argument), Plain::Write);
        argument.set(serial);
        let runs: Vec<Cell<u32>> = vec![Cell::new(0); self.online.len()];
        let (world, runs) = (Unshared(self), Unshared(&runs));
        let answers = Unshared(&self.ledger.answers[me]);
        let argument = Unshared(argument);
        let function = |cpu: CpuId| {
            let (world, runs, answers, argument) = (&world, &runs, &answers, &argument);
            let here = insist_here(cpu);
            world.0.check_called(here);
            context().plain(address(argument.0), Plain::Read);
            if argument.0.get() != serial {
                let message = format!("{cpu} saw argument {} of call {serial}", argument.0.get());
                context().fail(FailureKind::WrongCall, message);
            }
            let answer = &answers.0[here];
            context().plain(address(answer), Plain::Write);
            answer.set(serial);
            let run = &runs.0[here];
            run.set(run.get() + 1);
        };
        let ran = match call {
            Call::All => self.engine.call_many(CallTargets::Online, &function),
            Call::Many => self.engine.call_many(wanted, &function),
            Call::Any => (self.engine).call_many(CallTargets::AnyOf(wanted), &function),
            Call::One => {
                let target = wanted
                    .iter()
                    .next()
                    .unwrap_or_else(|| PLATFORM.current_cpu());
                match self.engine.call_one(target, &function) {
                    Ok(()) => CpuMask::only(target),
                    Err(_) => CpuMask::EMPTY,
                }
            }
        };
        for (cpu, run) in runs.0.iter().enumerate() {
            let expected = u32::from(ran.contains(self.numbers[cpu]));
            if run.get() != expected {
                let kind = match run.get() {
                    0 => FailureKind::EarlyReturn,
                    _ => FailureKind::WrongCall,
                };
                let message = format!(
                    "call {serial} by task {me} ran {} times on cpu{cpu}, not {expected}",
                    run.get()
                );
                context().fail(kind, message);
            }
            if expected == 1 {
                context().plain(address(&answers.0[cpu]), Plain::Read);
            }
        }
    }

    /// Sends a copy and waits as far as `wait` says, or drops the ticket, which must be the same.
    pub(super) fn submit(&self, wanted: &CpuMask<C>, wait: Wait, drops: bool) {
        let (serial, function) = self.posted_function();
        let ticket = self.engine.submit(wanted, function, wait);
        let sent = ticket.targets();
        if drops {
            drop(ticket);
        } else {
            ticket.wait();
        }
        let targets = self.note_sent(serial, &sent);
        if wait == Wait::Done {
            self.check_posted(serial, &targets, FailureKind::EarlyReturn);
        }
    }

    /// Sends a copy if there is a slot, and does not wait.
    pub(super) fn try_post(&self, wanted: &CpuMask<C>) {
        let (serial, function) = self.posted_function();
        if let Ok(sent) = self.engine.try_post(wanted, function) {
            self.note_sent(serial, &sent);
        }
    }

    /// Calls a function that flushes and posts, as called functions may, also under a lock for which others spin in theirs.
    pub(super) fn call_and_flush(&self, wanted: &CpuMask<C>, locks: bool) {
        let everybody = self.engine.ready_cpus();
        let world = Unshared(self);
        if locks {
            self.with_interrupts(true, || self.flush_a_kernel_page(locks));
        }
        self.engine.call_many(wanted, &|_| {
            let world = &world;
            world.0.check_called(context().cpu());
            world.0.flush_a_kernel_page(locks);
            world.0.try_post(&everybody);
        });
    }

    /// A called function may use the kernel's part, also on a CPU that is going offline, of which nobody else asks what it has.
    fn check_called(&self, here: usize) {
        if !self.online[here].get() {
            self.hardware.saw(Sight::CalledLeaving);
            self.check_kernel_pages(here);
        }
    }

    fn flush_a_kernel_page(&self, locks: bool) {
        let held = locks.then(|| self.ledger.lock.take(&self.engine));
        let range = FlushRange::pages(address_of(kernel_page(0)), 1, PageSize::SIZE_4K);
        let ticket = (self.engine).submit_flush(FlushScope::Kernel, range, FreedTables::No);
        self.wait(ticket);
        drop(held);
    }

    pub(super) fn posted_function(&self) -> (u64, impl Fn(CpuId) + Copy + Send + 'static) {
        let serial = self.ledger.serial();
        let mark = serial ^ MARK;
        (serial, move |cpu: CpuId| note_posted(serial, mark, cpu))
    }

    pub(super) fn note_sent(&self, serial: u64, sent: &CpuMask<C>) -> Vec<usize> {
        let targets = self.indexes(sent);
        let mut posted = self.ledger.posted.borrow_mut();
        posted.push((serial, targets.clone()));
        targets
    }

    /// The run is over, no interrupt is left: every posted function ran once on each target.
    pub(super) fn check_all_posted(&self) -> Result<(), String> {
        for (serial, targets) in self.ledger.posted.borrow().iter() {
            let mut runs = runs_of(*serial);
            runs.sort_unstable();
            if runs != *targets {
                return Err(format!("post {serial} to {targets:?} ran on {runs:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn check_posted(&self, serial: u64, targets: &[usize], kind: FailureKind) {
        let mut runs = runs_of(serial);
        runs.sort_unstable();
        if runs != targets {
            let message = format!(
                "call {serial} to {targets:?} had run on {runs:?} when its wait ended at event {}",
                context().events()
            );
            context().fail(kind, message);
        }
    }
}

/// A function that is to run on `cpu` runs here: which virtual CPU that is.
pub(super) fn insist_here(cpu: CpuId) -> usize {
    let here = context().cpu();
    if context().index_of(cpu) != here {
        let message = format!("a function for {cpu} runs on cpu{here}");
        context().fail(FailureKind::WrongCall, message);
    }
    here
}

pub(super) fn runs_of(serial: u64) -> Vec<usize> {
    POSTED_RUNS.with_borrow(|runs| {
        let of_it = runs.iter().filter(|run| run.0 == serial);
        of_it.map(|run| run.1).collect()
    })
}

/// The function of call data runs.
pub(super) fn note_posted_data(serial: u64, cpu: CpuId) {
    note_posted(serial, serial ^ MARK, cpu);
}

fn note_posted(serial: u64, mark: u64, cpu: CpuId) {
    let here = context().cpu();
    if mark != serial ^ MARK || context().index_of(cpu) != here {
        let message = format!("post {serial} with mark {mark:#x} for {cpu} ran on cpu{here}");
        context().fail(FailureKind::WrongCall, message);
    }
    POSTED_RUNS.with_borrow_mut(|runs| runs.push((serial, here)));
}

/// What functions on virtual CPUs share: all of them run on one thread of the host.
pub(super) struct Unshared<T>(pub(super) T);

// SAFETY: a machine and all its coroutines live on one thread, see `Machine::run`.
unsafe impl<T> Sync for Unshared<T> {}
