//! The locks of address spaces that this thread holds, and what another thread does when they are free.

use super::{rules, with};
use crate::arch::percpu;
use core::cell::{Cell, RefCell};
use core::fmt;
use shootdown::CpuId;

/// The CPU of whoever intrudes.
const INTRUDER: CpuId = CpuId::new(3);

type Deed = Box<dyn FnMut()>;
type Once = Box<dyn FnOnce()>;

thread_local! {
    static HELD: Cell<Roots> = const { Cell::new(Roots { all: [0; MOST_HELD], count: 0 }) };
    static DEED: RefCell<Option<Deed>> = const { RefCell::new(None) };
    static IS_GATHERING: Cell<bool> = const { Cell::new(false) };
    static IS_INTRUDING: Cell<bool> = const { Cell::new(false) };
    static AT_WAIT: RefCell<Option<Once>> = const { RefCell::new(None) };
    static AT_INTERRUPT: RefCell<Option<Once>> = const { RefCell::new(None) };
    static AT_SPIN: RefCell<Option<(usize, Once)>> = const { RefCell::new(None) };
}

/// Locks of spaces that a thread holds at a time.
const MOST_HELD: usize = 8;

/// A few roots, without the heap: the kernel under test may find that full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    all: [u64; MOST_HELD],
    count: usize,
}

impl Roots {
    /// In the order in which the locks were taken.
    pub fn as_slice(&self) -> &[u64] {
        &self.all[..self.count]
    }

    fn push(&mut self, root: u64) {
        self.all[self.count] = root;
        self.count += 1;
    }

    fn remove_last(&mut self, root: u64) {
        if let Some(at) = self.as_slice().iter().rposition(|&held| held == root) {
            self.all.copy_within(at + 1..self.count, at);
            self.count -= 1;
        }
    }
}

/// What a thread holds when something happens.
#[derive(Debug)]
pub(crate) struct Place {
    /// The roots of the spaces whose locks it holds.
    pub held: Roots,
    /// Its spin locks, and whatever else forbids that it is preempted.
    pub preempt_count: u32,
    /// Another thread is in the middle of something.
    pub is_intruding: bool,
    /// Something is taken away from many spaces.
    pub is_gathering: bool,
}

impl Place {
    pub fn here() -> Self {
        Self {
            held: HELD.get(),
            preempt_count: percpu::preempt_count(),
            is_intruding: IS_INTRUDING.get(),
            is_gathering: IS_GATHERING.get(),
        }
    }

    /// Whether it holds the lock of an address space.
    pub const fn is_locked(&self) -> bool {
        self.held.count > 0
    }
}

/// The lock of an address space is held. Dropped after the lock is released.
#[derive(Debug)]
pub struct Held(u64);

impl Held {
    /// That of the space with this root.
    pub fn of(root: u64) -> Self {
        let place = Place::here();
        if !place.is_locked() && !place.is_intruding && !place.is_gathering {
            with(rules::settled);
        }
        change(|held| held.push(root));
        Self(root)
    }
}

fn change(work: impl FnOnce(&mut Roots)) {
    let mut held = HELD.get();
    work(&mut held);
    HELD.set(held);
}

impl Drop for Held {
    fn drop(&mut self) {
        change(|held| held.remove_last(self.0));
        let place = Place::here();
        if place.is_locked() {
            return;
        }
        with(|machine| rules::unlocked(machine, &place));
        if place.is_intruding {
            return;
        }
        let deed = DEED.take();
        if let Some(mut deed) = deed {
            intruding(|| percpu::as_cpu(INTRUDER, &mut deed));
            DEED.set(Some(deed));
        }
    }
}

/// Something is taken away from many spaces, and nobody relies on that: CPUs are told at the end.
#[derive(Debug)]
pub struct Gathering(());

impl Gathering {
    /// From here on.
    pub fn begin() -> Self {
        IS_GATHERING.set(true);
        Self(())
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        IS_GATHERING.set(false);
        with(rules::settled);
    }
}

/// While it exists, another thread of the process does something each time that the lock of an address space is released.
pub struct Intruder(());

impl fmt::Debug for Intruder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Intruder")
    }
}

/// Has another thread do `deed`: whatever needs no lock that the operations hold which it interrupts, but those of spaces.
pub fn intrude(deed: impl FnMut() + 'static) -> Intruder {
    DEED.set(Some(Box::new(deed)));
    Intruder(())
}

impl Drop for Intruder {
    fn drop(&mut self) {
        DEED.take();
    }
}

/// Another thread is in the middle of something while `deed` is done.
fn intruding(deed: impl FnOnce()) {
    let before = IS_INTRUDING.replace(true);
    deed();
    IS_INTRUDING.set(before);
}

/// Does `deed` once, when this thread waits for other CPUs next, before these take their interrupts.
pub fn at_wait(deed: impl FnOnce() + 'static) {
    AT_WAIT.set(Some(Box::new(deed)));
}

/// This thread waits.
pub(super) fn waits() {
    AT_WAIT.take().into_iter().for_each(intruding);
}

/// Does `deed` once, when this thread interrupts another CPU next: in the middle of submitting a flush.
pub fn at_interrupt(deed: impl FnOnce() + 'static) {
    AT_INTERRUPT.set(Some(Box::new(deed)));
}

/// This thread interrupts another CPU.
pub(super) fn interrupts() {
    if let Some(deed) = AT_INTERRUPT.take() {
        deed();
    }
}

/// Does `deed` once, before this thread takes a spin lock for the `count`th time from now on, counting those that it takes without
/// any other lock.
pub fn at_spin(count: usize, deed: impl FnOnce() + 'static) {
    AT_SPIN.set(Some((count, Box::new(deed))));
}

/// Forgets what [`at_spin`] was told; whether it was still to be done.
pub fn forget_spin() -> bool {
    AT_SPIN.take().is_some()
}

/// This thread is about to take a spin lock.
pub(crate) fn spins() {
    if HELD.get().count > 0 {
        return;
    }
    match AT_SPIN.take() {
        Some((0, deed)) => deed(),
        Some((count, deed)) => AT_SPIN.set(Some((count - 1, deed))),
        None => {}
    }
}
