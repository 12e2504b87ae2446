//! [`Engines`]: ours, with all that it can have and plain.

use shootdown::{Capacity, CpuId, CpuMemory, Cpus, Platform, Shootdown};

use crate::counted::Counted;
use crate::tally::Tallies;

/// One of ours, and the memory of its CPUs.
#[derive(Debug)]
pub(crate) struct Ours<P, const N: usize, const PLAIN: bool>
where
    P: Platform<Cpus = Cpus<N>>,
    Cpus<N>: Capacity,
{
    pub(crate) engine: Shootdown<Counted<P, N, PLAIN>>,
    memory: [CpuMemory<Counted<P, N, PLAIN>>; N],
}

impl<P, const N: usize, const PLAIN: bool> Ours<P, N, PLAIN>
where
    P: Platform<Cpus = Cpus<N>>,
    Cpus<N>: Capacity,
{
    const fn new(platform: P, tallies: &'static Tallies<N>) -> Self {
        Self {
            engine: Shootdown::new(Counted::new(platform, tallies)),
            memory: [const { CpuMemory::new() }; N],
        }
    }
}

/// The engines that take part. A static of the host's, or leaked.
#[derive(Debug)]
pub struct Engines<P, const N: usize>
where
    P: Platform<Cpus = Cpus<N>>,
    Cpus<N>: Capacity,
{
    pub(crate) full: Ours<P, N, false>,
    pub(crate) plain: Ours<P, N, true>,
}

impl<P, const N: usize> Engines<P, N>
where
    P: Platform<Cpus = Cpus<N>> + Copy + 'static,
    Cpus<N>: Capacity,
{
    /// On `platform`, counting in `tallies`.
    pub const fn new(platform: P, tallies: &'static Tallies<N>) -> Self {
        Self {
            full: Ours::new(platform, tallies),
            plain: Ours::new(platform, tallies),
        }
    }

    /// There are so many CPUs. Once, before any of them comes online here.
    pub fn attach(&'static self, cpus: usize) {
        let first = CpuId::new(0);
        self.full.engine.attach(first, &self.full.memory[..cpus]);
        self.plain.engine.attach(first, &self.plain.memory[..cpus]);
    }

    /// The running CPU takes part. Interrupts are off.
    pub fn online(&self) {
        self.full.engine.online();
        self.plain.engine.online();
    }
}
