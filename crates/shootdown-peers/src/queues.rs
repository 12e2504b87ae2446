//! [`CallQueues`]: Linux's `smp_call_function_many_cond`.

use alloc::boxed::Box;

use shootdown::shim::{AtomicU64, Ordering};
#[cfg(feature = "sim")]
use shootdown::shim::{first_name, touches};
use shootdown::{CpuId, CpuMask, Platform};

use crate::CrossCall;
use crate::caller::Caller;
use crate::function::{Borrowed, Place, place};

/// Each target has a queue (a singly linked list, pushed without a lock), each pair of CPUs an entry (`csd`). Whoever
/// finds a queue empty interrupts its CPU. The target takes the whole queue, turns it round, and runs and unlocks entry after
/// entry; the initiator waits for each of its entries in turn. (Linux, `kernel/smp.c`, `include/linux/llist.h`.)
///
/// Weakness: memory grows with the square of the number of CPUs; each target costs the initiator an entry's line as well as
/// a queue's; entries of two initiators for one target share lines, as Linux's do (32 bytes each, in the target's memory).
#[derive(Debug)]
pub struct CallQueues<P: Platform> {
    platform: P,
    cpus: usize,
    queues: Box<[Queue]>,
    entries: Box<[Pair]>,
}

/// The number of the initiator whose entry is first, plus one; 0 for none.
#[derive(Debug)]
#[repr(align(64))]
struct Queue(AtomicU64);

/// Two entries share a line.
#[derive(Debug)]
#[repr(align(64))]
struct Pair([Entry; 2]);

#[derive(Debug)]
#[repr(align(32))]
struct Entry {
    locked: AtomicU64,
    /// As in [`Queue`].
    next: AtomicU64,
    function: Place,
}

impl Entry {
    fn new() -> Self {
        Self {
            locked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            function: place(),
        }
    }
}

impl<P: Platform> CallQueues<P> {
    /// For CPUs below `cpus`.
    pub fn new(platform: P, cpus: usize) -> Self {
        Self {
            platform,
            cpus,
            queues: (0..cpus).map(|_| Queue(AtomicU64::new(0))).collect(),
            entries: (0..(cpus * cpus).div_ceil(2))
                .map(|_| Pair([Entry::new(), Entry::new()]))
                .collect(),
        }
    }

    /// The memory of one for CPUs below `cpus`, in bytes.
    pub const fn bytes_for(cpus: usize) -> usize {
        cpus * size_of::<Queue>() + (cpus * cpus).div_ceil(2) * size_of::<Pair>()
    }

    fn entry(&self, initiator: usize, target: CpuId) -> &Entry {
        let index = target.index() * self.cpus + initiator;
        &self.entries[index / 2].0[index % 2]
    }

    /// Queues an entry; tells whether the queue was empty.
    fn push(&self, initiator: CpuId, target: CpuId) -> bool {
        let (entry, queue) = (
            self.entry(initiator.index(), target),
            &self.queues[target.index()].0,
        );
        let mut first = queue.load(Ordering::Relaxed);
        loop {
            entry.next.store(first, Ordering::Relaxed);
            let name = initiator.index() as u64 + 1;
            // ORDERING: publishes the entry; pairs with the exchange in `take`.
            match queue.compare_exchange(first, name, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return first == 0,
                Err(seen) => first = seen,
            }
        }
    }

    /// Empties the queue; returns its entries, oldest first.
    fn take(&self, me: CpuId) -> u64 {
        // ORDERING: acquires the entries.
        let mut newest = self.queues[me.index()].0.swap(0, Ordering::AcqRel);
        let mut oldest_first = 0;
        while newest != 0 {
            let entry = self.entry(newest as usize - 1, me);
            let older = entry.next.load(Ordering::Relaxed);
            entry.next.store(oldest_first, Ordering::Relaxed);
            oldest_first = newest;
            newest = older;
        }
        oldest_first
    }
}

impl<P: Platform> CrossCall<P::Cpus> for CallQueues<P> {
    fn call(&self, targets: &CpuMask<P::Cpus>, function: &(dyn Fn(CpuId) + Sync)) {
        let caller = Caller::new(&self.platform);
        let (others, is_named) = caller.split(targets);
        let mut quiet = CpuMask::<P::Cpus>::EMPTY;
        for target in others.iter() {
            let entry = self.entry(caller.me.index(), target);
            entry.locked.store(1, Ordering::Relaxed);
            // SAFETY: only this CPU writes here, not preempted, and its last call has been waited for.
            unsafe { entry.function.write(Borrowed::new(function)) };
            if self.push(caller.me, target) {
                quiet.insert(target);
            }
        }
        caller.interrupt_all(&quiet);
        caller.run_here(is_named, function);
        for target in others.iter() {
            let entry = self.entry(caller.me.index(), target);
            // ORDERING: acquires what the target did.
            caller.wait_until(|| entry.locked.load(Ordering::Acquire) == 0);
        }
    }

    fn handle_ipi(&self) {
        let me = self.platform.current_cpu();
        let mut next = self.take(me);
        while next != 0 {
            let entry = self.entry(next as usize - 1, me);
            next = entry.next.load(Ordering::Relaxed);
            // SAFETY: it was in our queue: the function is written, and stays until we unlock it.
            let function = unsafe { entry.function.read() };
            // SAFETY: 1. the initiator waits for the lock.
            unsafe { function.run(me) };
            // ORDERING: publishes what the function did.
            entry.locked.store(0, Ordering::Release);
        }
    }

    fn bytes(&self) -> usize {
        Self::bytes_for(self.cpus)
    }

    #[cfg(feature = "sim")]
    fn line_name(&self, address: usize) -> Option<&'static str> {
        first_name([
            (touches(&*self.queues, address), "queues"),
            (touches(&*self.entries, address), "entries"),
        ])
    }
}
