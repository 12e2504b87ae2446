//! [`Work`]: the function that is called.

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::host::Host;
use crate::tally::Tallies;

/// The function of one initiator.
#[derive(Debug)]
pub(crate) struct Work<H: 'static, const N: usize> {
    pub(crate) host: &'static H,
    pub(crate) tallies: &'static Tallies<N>,
    /// Where its runs are counted.
    pub(crate) column: usize,
    pub(crate) function_ns: u64,
    pub(crate) forgets: bool,
}

impl<H: Host, const N: usize> Work<H, N>
where
    Cpus<N>: Capacity,
{
    /// Runs here, interrupts off.
    pub(crate) fn run(&self, cpu: CpuId) {
        let mine = self.tallies.of(cpu);
        mine.runs.add(1);
        mine.begun[self.column].add(1);
        if self.forgets {
            self.host.forget_page();
        }
        if self.function_ns > 0 {
            let start_ns = self.host.now_ns();
            while self.host.now_ns() - start_ns < self.function_ns {
                self.host.pause();
            }
        }
        mine.ended[self.column].add(1);
    }

    /// How often `cpu` has begun it.
    pub(crate) fn begun(&self, cpu: CpuId) -> u64 {
        self.tallies.of(cpu).begun[self.column].get()
    }

    /// How often `cpu` has come to its end.
    pub(crate) fn ended(&self, cpu: CpuId) -> u64 {
        self.tallies.of(cpu).ended[self.column].get()
    }
}

/// What an initiator knows of its targets before a call, to be compared when it has returned.
#[derive(Debug)]
pub(crate) struct Before<const N: usize> {
    begun: [u64; N],
}

impl<const N: usize> Before<N>
where
    Cpus<N>: Capacity,
{
    pub(crate) fn note<H: Host>(work: &Work<H, N>, targets: &CpuMask<Cpus<N>>) -> Self {
        let mut begun = [0; N];
        for target in targets.iter() {
            begun[target.index()] = work.begun(target);
        }
        Self { begun }
    }

    /// Whether each target has run `work` once.
    pub(crate) fn is_kept<H: Host>(&self, work: &Work<H, N>, targets: &CpuMask<Cpus<N>>) -> bool {
        targets.iter().all(|target| {
            let once = self.begun[target.index()] + 1;
            work.ended(target) == once && work.begun(target) == once
        })
    }
}
