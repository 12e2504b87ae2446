//! [`Engine`]: an engine that lives as long as a run, and [`root_at`]: the roots that it loads.

use std::ops::Deref;

use shootdown::{Capacity, CpuId, CpuMemory, KernelRoot, Platform, Root, Shootdown};

use crate::machine::SimPlatform;

/// An engine, and the memory of the CPUs that are there.
#[derive(Debug)]
pub struct Engine<C: Capacity, P: Platform<Cpus = C> = SimPlatform<C>> {
    // Boxed: it is large, and what a run knows of its memory it knows by address.
    engine: Box<Shootdown<P>>,
    /// Of its CPUs; dropped after it.
    _memory: Box<[CpuMemory<P>]>,
}

impl<C: Capacity, P: Platform<Cpus = C> + Default + 'static> Engine<C, P> {
    /// For CPUs `0..cpus`. Its watchdog is off.
    ///
    /// # Panics
    /// With more CPUs than it has room for.
    pub fn new(cpus: usize) -> Self {
        Self::for_cpus((0..cpus as u32).map(CpuId::new))
    }

    /// For these CPUs.
    ///
    /// # Panics
    /// When one of them has no room, or is there twice.
    pub fn for_cpus(cpus: impl ExactSizeIterator<Item = CpuId>) -> Self {
        let engine = Box::new(Shootdown::new(P::default()));
        let memory: Box<[_]> = (0..cpus.len()).map(|_| CpuMemory::new()).collect();
        for (cpu, memory) in cpus.zip(&memory) {
            // SAFETY: 1. it is boxed, and dropped after the engine, which is only lent out.
            let memory = unsafe { memory.assume_static() };
            engine.attach(cpu, std::slice::from_ref(memory));
        }
        engine.watch().set_stall_ns(0);
        Self {
            engine,
            _memory: memory,
        }
    }
}

impl<C: Capacity, P: Platform<Cpus = C>> Deref for Engine<C, P> {
    type Target = Shootdown<P>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

/// The root whose table a virtual machine has at `frame`.
pub fn root_at(frame: u64) -> Root {
    // SAFETY: 1. to 3. No processor ever loads it. A virtual one that walks what is no table, or a table that somebody else
    // writes, ends its run with a failure.
    unsafe { Root::new(frame) }
}

/// The kernel's root in frame `frame`.
pub const fn kernel_root_at(frame: u64) -> KernelRoot {
    // SAFETY: as above.
    unsafe { KernelRoot::new(frame) }
}
