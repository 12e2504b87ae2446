//! What a thread knows of itself: whether it is a CPU now, which, and whether it may be interrupted.
//!
//! Only the thread and its own signal handler look here, so relaxed accesses do; compiler fences keep what is done with
//! interrupts off between the stores that say so.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};

/// What a machine does with an interrupt; the handler does not know for how many CPUs the machine is built.
pub(crate) trait Interrupts {
    /// Whether the CPU has interrupts to take; a hint, if it may be left meanwhile.
    fn has_pending(&self, cpu: usize) -> bool;

    /// Takes the pending interrupts of the running CPU. Interrupts are off; may come back on another CPU.
    fn take_pending(&self);
}

/// No machine yet.
#[derive(Debug)]
struct Nobody;

impl Interrupts for Nobody {
    fn has_pending(&self, _: usize) -> bool {
        false
    }

    fn take_pending(&self) {}
}

struct Thread {
    /// True also while the thread is no CPU.
    irqs_off: AtomicBool,
    preempt_off: AtomicU32,
    /// Somebody else should have run, but preemption was off.
    owes_schedule: AtomicBool,
    cpu: AtomicU32,
    task: AtomicU32,
    /// Where the next hiccup comes from.
    random: AtomicU32,
    /// The address of the machine's platform; zero for none.
    platform: AtomicUsize,
    machine: Cell<*const dyn Interrupts>,
}

// No destructor and a constant beginning: an access is an address computation, which a signal handler may do.
thread_local! {
    static THREAD: Thread = const {
        Thread {
            irqs_off: AtomicBool::new(true),
            preempt_off: AtomicU32::new(0),
            owes_schedule: AtomicBool::new(false),
            cpu: AtomicU32::new(0),
            task: AtomicU32::new(u32::MAX),
            random: AtomicU32::new(0),
            platform: AtomicUsize::new(0),
            machine: Cell::new(&Nobody as *const dyn Interrupts),
        }
    };
}

/// Makes the calling thread one of `machine`'s, with the number `task`; it is no CPU yet. `platform` is the address of
/// the machine's platform.
///
/// # Safety
/// 1. `machine` lives until the thread calls [`leave`].
pub(crate) unsafe fn join(machine: *const dyn Interrupts, platform: usize, task: usize) {
    THREAD.with(|it| {
        it.platform.store(platform, Ordering::Relaxed);
        it.machine.set(machine);
        it.task.store(task as u32, Ordering::Relaxed);
        it.random.store(task as u32, Ordering::Relaxed);
    });
}

/// Ends what [`join`] began. Interrupts are off, and the thread is no CPU.
pub(crate) fn leave() {
    THREAD.with(|it| {
        it.task.store(u32::MAX, Ordering::Relaxed);
        it.platform.store(0, Ordering::Relaxed);
        it.machine.set(&Nobody as *const dyn Interrupts);
    });
}

/// The number of the calling thread in its machine, if it is one of a machine's.
pub(crate) fn task() -> Option<usize> {
    let task = THREAD.with(|it| it.task.load(Ordering::Relaxed));
    (task != u32::MAX).then_some(task as usize)
}

/// Whether the thread is one of the machine with this platform.
#[inline]
pub(crate) fn is_of(platform: usize) -> bool {
    THREAD.with(|it| it.platform.load(Ordering::Relaxed) == platform)
}

/// The CPU that the thread is; the last one, if it is none.
#[inline]
pub(crate) fn cpu() -> usize {
    THREAD.with(|it| it.cpu.load(Ordering::Relaxed) as usize)
}

/// The thread has been given a CPU. Interrupts are off.
pub(crate) fn set_cpu(cpu: usize) {
    THREAD.with(|it| it.cpu.store(cpu as u32, Ordering::Relaxed));
}

/// Disables interrupts; true if they were on.
#[inline]
pub(crate) fn irq_save() -> bool {
    THREAD.with(|it| {
        // An interrupt between the two accesses leaves the flag as it was.
        let were_on = !it.irqs_off.load(Ordering::Relaxed);
        it.irqs_off.store(true, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        were_on
    })
}

/// Enables interrupts, and takes those that came meanwhile.
#[inline]
pub(crate) fn irq_enable() {
    THREAD.with(|it| {
        // SAFETY: `join`'s duty, or `Nobody`, which lives for ever.
        let machine = unsafe { &*it.machine.get() };
        loop {
            compiler_fence(Ordering::SeqCst);
            it.irqs_off.store(false, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            // If the CPU is left between the two looks, the handler that did that has looked at the new one's.
            if !machine.has_pending(it.cpu.load(Ordering::Relaxed) as usize) {
                return;
            }
            it.irqs_off.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            machine.take_pending();
        }
    });
}

pub(crate) fn irqs_are_off() -> bool {
    THREAD.with(|it| it.irqs_off.load(Ordering::Relaxed))
}

/// The signal handler.
pub(crate) fn interrupted() {
    if irqs_are_off() {
        // The code that enables interrupts looks.
        return;
    }
    irq_save();
    THREAD.with(|it| {
        // SAFETY: `join`'s duty; interrupts were on, so the thread has joined.
        let machine = unsafe { &*it.machine.get() };
        machine.take_pending();
    });
    irq_enable();
}

pub(crate) fn preempt_disable() {
    THREAD.with(|it| {
        let depth = it.preempt_off.load(Ordering::Relaxed);
        it.preempt_off.store(depth + 1, Ordering::Relaxed);
    });
    compiler_fence(Ordering::SeqCst);
}

/// True if somebody else should have run meanwhile, and may now.
pub(crate) fn preempt_enable() -> bool {
    compiler_fence(Ordering::SeqCst);
    THREAD.with(|it| {
        let depth = it.preempt_off.load(Ordering::Relaxed);
        assert!(depth > 0, "preemption enabled more often than disabled");
        it.preempt_off.store(depth - 1, Ordering::Relaxed);
        if depth > 1 {
            return false;
        }
        let owes = it.owes_schedule.load(Ordering::Relaxed);
        it.owes_schedule.store(false, Ordering::Relaxed);
        owes
    })
}

/// Whether the CPU may go to somebody else; if not, [`preempt_enable`] will tell.
pub(crate) fn may_schedule() -> bool {
    THREAD.with(|it| {
        let may = it.preempt_off.load(Ordering::Relaxed) == 0;
        if !may {
            it.owes_schedule.store(true, Ordering::Relaxed);
        }
        may
    })
}

/// Whether the thread may lose its CPU while interrupts are on.
pub(crate) fn is_preemptible() -> bool {
    THREAD.with(|it| it.preempt_off.load(Ordering::Relaxed) == 0)
}

/// True once in `times` on average; a stream for each thread, and none to rely on.
pub(crate) fn once_in(times: u32) -> bool {
    THREAD.with(|it| {
        // Numerical Recipes' generator; its upper bits are good enough.
        let state = it.random.load(Ordering::Relaxed);
        let state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        it.random.store(state, Ordering::Relaxed);
        (u64::from(state) * u64::from(times)) >> 32 == 0
    })
}
