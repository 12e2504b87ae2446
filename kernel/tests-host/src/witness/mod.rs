//! Watches the order of things: what is flushed, waited for, unlocked, copied and freed, and what other CPUs could still do then.
//!
//! While somebody [watches](watch), each played CPU has a [TLB](crate::tlb) that caches whatever it may, and takes its interrupts only when
//! somebody waits for it. The kernel says what it is about to do (`mm/witness.rs`); `rules` says when it must not. A test may
//! [`intrude`]: do something as another thread of the process, each time that the lock of an address space is free.

mod held;
mod rules;

pub(crate) use held::spins;
pub use held::{Gathering, Held, Intruder, at_interrupt, at_spin, at_wait, forget_spin, intrude};
pub use rules::{copying, dirtying, freeing, releasing, storing};

use crate::arch::percpu;
use crate::platform::{PLAYED_CPUS, SHOOTDOWN};
use crate::tlb::Tlb;
use held::Place;
use shootdown::{CpuId, LocalFlush};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What has been seen since [`watch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Interrupts, each for a flush of one other CPU.
    pub interrupts: usize,
    /// Those that were taken while whoever waited held the lock of an address space.
    pub taken_locked: usize,
    /// Those that were taken while it held none.
    pub taken_unlocked: usize,
}

/// One CPU.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    pub tlb: Tlb,
    pub is_interrupted: bool,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub cpus: [Cpu; PLAYED_CPUS as usize],
    seen: Seen,
    /// Interrupts are taken as soon as they are sent.
    is_prompt: bool,
    /// Originals and copies of copies on write, until the lock is released.
    pub copies: Vec<(crate::addr::PhysAddr, crate::addr::PhysAddr)>,
    violation: Option<String>,
}

static IS_WATCHED: AtomicBool = AtomicBool::new(false);
static MACHINE: Mutex<Machine> = Mutex::new(Machine::new());

fn machine() -> MutexGuard<'static, Machine> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    const fn new() -> Self {
        Self {
            cpus: [const {
                Cpu {
                    tlb: Tlb::new(),
                    is_interrupted: false,
                }
            }; PLAYED_CPUS as usize],
            seen: Seen {
                interrupts: 0,
                taken_locked: 0,
                taken_unlocked: 0,
            },
            is_prompt: false,
            copies: Vec::new(),
            violation: None,
        }
    }

    /// Every CPU caches what it may.
    pub(crate) fn walk(&mut self) {
        self.cpus.iter_mut().for_each(|cpu| cpu.tlb.walk());
    }

    /// Puts down what was wrong. What follows from it is not looked at: tables may be in other hands.
    pub(crate) fn accuse(&mut self, what: String) {
        IS_WATCHED.store(false, Ordering::Relaxed);
        self.violation.get_or_insert(what);
    }
}

/// What a test sees. It ends when this is dropped, which panics if a rule was broken.
#[derive(Debug)]
pub struct Watch(());

/// Begins to watch. One at a time, and before the first root is loaded.
pub fn watch() -> Watch {
    *machine() = Machine::new();
    IS_WATCHED.store(true, Ordering::Relaxed);
    Watch(())
}

impl Watch {
    /// From now on CPUs take their interrupts as soon as they are sent, while whoever sends them is still at it.
    pub fn be_prompt(&self) {
        machine().is_prompt = true;
    }

    /// What there was since the last time.
    pub fn seen(&self) -> Seen {
        core::mem::take(&mut machine().seen)
    }

    fn violation(&self) -> Option<String> {
        machine().violation.take()
    }

    /// All calls have returned: nobody may have anything stale. What was wrong, if anything was.
    pub fn broken(&self) -> Option<String> {
        with(rules::settled);
        self.violation()
    }

    /// The same.
    ///
    /// # Panics
    /// When a rule was broken.
    #[track_caller]
    pub fn settle(&self) {
        assert_eq!(self.broken(), None);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IS_WATCHED.store(false, Ordering::Relaxed);
        let violation = self.violation();
        if !std::thread::panicking() {
            assert_eq!(violation, None);
        }
    }
}

/// Does `work` with the machine, if it is watched, after every CPU has cached what it may.
pub(crate) fn with<R>(work: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    IS_WATCHED.load(Ordering::Relaxed).then(|| {
        let mut machine = machine();
        machine.walk();
        work(&mut machine)
    })
}

/// A CPU is sent an interrupt.
pub(crate) fn interrupt(target: CpuId) {
    held::interrupts();
    let place = Place::here();
    let is_prompt = with(|machine| {
        machine.seen.interrupts += 1;
        let root = machine.cpus[target.index()].tlb.root();
        rules::submitted(machine, target, root, &place);
        machine.cpus[target.index()].is_interrupted = !machine.is_prompt;
        machine.is_prompt
    });
    if is_prompt == Some(true) {
        percpu::as_cpu(target, || SHOOTDOWN.handle_ipi());
    }
}

/// A CPU drops translations, and may at once cache what is still there.
pub(crate) fn flushing(cpu: CpuId, operation: LocalFlush) {
    with(|machine| {
        let tlb = &mut machine.cpus[cpu.index()].tlb;
        tlb.flush(operation);
        tlb.walk();
    });
}

/// A CPU loads a root.
pub(crate) fn loading(cpu: CpuId, root: u64) {
    with(|machine| machine.cpus[cpu.index()].tlb.load(root));
}

/// Somebody waits for other CPUs: they take their interrupts.
pub(crate) fn waiting() {
    held::waits();
    let place = Place::here();
    let interrupted = with(|machine| {
        rules::waited(machine, &place);
        let here = percpu::cpu_id().index();
        let others = (0..machine.cpus.len()).filter(|&cpu| cpu != here);
        let taken: Vec<_> = others
            .filter(|&cpu| core::mem::take(&mut machine.cpus[cpu].is_interrupted))
            .collect();
        let counter = if place.is_locked() {
            &mut machine.seen.taken_locked
        } else {
            &mut machine.seen.taken_unlocked
        };
        *counter += taken.len();
        taken
    });
    for cpu in interrupted.into_iter().flatten() {
        percpu::as_cpu(CpuId::new(cpu as u32), || SHOOTDOWN.handle_ipi());
    }
    if !IS_WATCHED.load(Ordering::Relaxed) {
        take_all();
    }
}

/// After a violation nothing is watched, but whoever waits must go on.
fn take_all() {
    for cpu in (0..PLAYED_CPUS).map(CpuId::new) {
        if cpu != percpu::cpu_id() {
            percpu::as_cpu(cpu, || SHOOTDOWN.handle_ipi());
        }
    }
}
