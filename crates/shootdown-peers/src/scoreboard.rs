//! [`Scoreboard`]: FreeBSD's `smp_targeted_tlb_shootdown`, with a function in the place of the flush.

use alloc::boxed::Box;

use shootdown::shim::{AtomicU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};

/// Each CPU has one operation with a generation; a table has a word for each pair of CPUs. The initiator raises its
/// generation, puts a zero into each target's row and interrupts them; a target looks for the first zero in its row until there
/// is none, carries out that CPU's operation and writes its generation; the initiator waits for the generation in each
/// row. (FreeBSD, `x86/x86/mp_x86.c`, `amd64/amd64/mp_machdep.c`. Its words have 4 bytes, these have 8.)
///
/// Weakness: a target reads its whole row at least once an interrupt, and begins at CPU 0 again after each operation, so low
/// numbers go first; memory grows with the square; every target is interrupted, even if an interrupt is on its way.
#[derive(Debug)]
pub struct Scoreboard<P: Platform> {
    platform: P,
    cpus: usize,
    operations: Box<[Operation]>,
    /// Row by target; zero: the initiator of that column waits.
    rows: Box<[Words]>,
}

/// A line of the table.
#[derive(Debug)]
#[repr(align(64))]
struct Words([AtomicU64; WORDS]);

const WORDS: usize = 8;

#[derive(Debug)]
#[repr(align(64))]
struct Operation {
    generation: AtomicU64,
    function: Place,
}

/// No generation is zero.
const FIRST_GENERATION: u64 = 1;

impl<P: Platform> Scoreboard<P> {
    /// For CPUs below `cpus`.
    pub fn new(platform: P, cpus: usize) -> Self {
        Self {
            platform,
            cpus,
            operations: (0..cpus)
                .map(|_| Operation {
                    generation: AtomicU64::new(FIRST_GENERATION),
                    function: place(),
                })
                .collect(),
            rows: (0..(cpus * cpus).div_ceil(WORDS))
                .map(|_| Words([const { AtomicU64::new(FIRST_GENERATION) }; WORDS]))
                .collect(),
        }
    }

    /// The memory of one for CPUs below `cpus`, in bytes.
    pub const fn bytes_for(cpus: usize) -> usize {
        cpus * size_of::<Operation>() + (cpus * cpus).div_ceil(WORDS) * size_of::<Words>()
    }

    fn word(&self, target: CpuId, initiator: usize) -> &AtomicU64 {
        let index = target.index() * self.cpus + initiator;
        &self.rows[index / WORDS].0[index % WORDS]
    }
}

impl<P: Platform> CrossCall<P::Cpus> for Scoreboard<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let column = caller.me.index();
        let operation = &self.operations[column];
        let generation = operation.generation.load(Ordering::Relaxed) + 1;
        operation.generation.store(generation, Ordering::Relaxed);
        // SAFETY: only this CPU writes here, not preempted, and its last call has been waited for.
        unsafe { operation.function.write(Borrowed::new(function)) };
        for target in others.iter() {
            // ORDERING: publishes the operation; pairs with the search in `handle_ipi`.
            self.word(target, column).store(0, Ordering::Release);
        }
        caller.interrupt_all(&others);
        caller.run_here(is_named, function);
        for target in others.iter() {
            let word = self.word(target, column);
            // ORDERING: acquires what the target did.
            caller.wait_until(|| word.load(Ordering::Acquire) == generation);
        }
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        // ORDERING: acquires the operation.
        let is_asked = |initiator: &usize| self.word(me, *initiator).load(Ordering::Acquire) == 0;
        while let Some(initiator) = (0..self.cpus).find(is_asked) {
            let operation = &self.operations[initiator];
            let generation = operation.generation.load(Ordering::Relaxed);
            // SAFETY: our word is zero: the function is written, and stays until we write the generation.
            let function = unsafe { operation.function.read() };
            // SAFETY: 1. the initiator waits for our word.
            unsafe { function.run(me) };
            // ORDERING: publishes what the function did.
            self.word(me, initiator)
                .store(generation, Ordering::Release);
        }
    }

    fn bytes(&self) -> usize {
        Self::bytes_for(self.cpus)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&*self.rows, address), "scoreboard"),
            (touches(&*self.operations, address), "operations"),
        ])
    }
}
