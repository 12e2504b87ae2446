//! [`Work`]: the function that is called.

use core::sync::atomic::{AtomicU64, Ordering};

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::host::Host;
use crate::tally::Tallies;

/// The function of one initiator, or of all together.
#[derive(Debug)]
pub(crate) struct Work<H: 'static, const N: usize> {
    host: &'static H,
    tallies: &'static Tallies<N>,
    /// Where its runs are counted; all that lend the same function have the same.
    column: usize,
    /// Changes between turns only.
    function_ns: AtomicU64,
    forgets: bool,
}

impl<H: Host, const N: usize> Work<H, N>
where
    Cpus<N>: Capacity,
{
    /// A function that takes no time yet.
    pub(crate) fn new(
        host: &'static H,
        tallies: &'static Tallies<N>,
        column: usize,
        forgets: bool,
    ) -> Self {
        Self {
            host,
            tallies,
            column,
            function_ns: AtomicU64::new(0),
            forgets,
        }
    }

    /// From now on it takes so long.
    pub(crate) fn set_ns(&self, function_ns: u64) {
        self.function_ns.store(function_ns, Ordering::Relaxed);
    }

    /// Runs here, interrupts off.
    pub(crate) fn run(&self, cpu: CpuId) {
        let mine = self.tallies.of(cpu);
        mine.runs.add(1);
        mine.begun[self.column].add(1);
        if self.forgets {
            self.host.forget_page();
        }
        let function_ns = self.function_ns.load(Ordering::Relaxed);
        if function_ns > 0 {
            let start_ns = self.host.now_ns();
            while self.host.now_ns() - start_ns < function_ns {
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
    pub(crate) fn note<H: Host>(work: &Work<H, N>, targets: &CpuMask<N>) -> Self {
        let mut begun = [0; N];
        for target in targets.iter() {
            begun[target.index()] = work.begun(target);
        }
        Self { begun }
    }

    /// Whether each target has run `work` as it should: once, if nobody else lends it; else one run that began later than
    /// this was noted has ended (a CPU runs one at a time).
    pub(crate) fn is_kept<H: Host>(
        &self,
        work: &Work<H, N>,
        targets: &CpuMask<N>,
        is_shared: bool,
    ) -> bool {
        targets.iter().all(|target| {
            let ended = work.ended(target);
            match self.begun[target.index()] + 1 {
                once if is_shared => ended >= once,
                once => ended == once && work.begun(target) == once,
            }
        })
    }
}
