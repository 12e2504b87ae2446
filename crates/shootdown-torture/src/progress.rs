//! [`Progress`]: one line that says who gets on.

use core::fmt;

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::host::Host;
use crate::record::{LANES, WorkerId};
use crate::torture::Torture;

/// The steps of every worker so far, as
/// `torture: progress ns=.. steps=.. cpu0=.. cpu1=.. task0=..`: of the interrupts of each online CPU, and of each task that has
/// done any. A host prints it about once a second; a number that stands still means a hang, and names who hangs.
#[derive(Debug)]
pub struct Progress<'a, const N: usize>
where
    Cpus<N>: Capacity,
{
    torture: &'a Torture<N>,
    online: CpuMask<Cpus<N>>,
    elapsed_ns: u64,
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// The line for a run that has taken `elapsed_ns` nanoseconds. Any context.
    pub fn progress<H: Host<N>>(&self, host: &H, elapsed_ns: u64) -> Progress<'_, N> {
        Progress {
            torture: self,
            online: host.engine().ready_cpus(),
            elapsed_ns,
        }
    }
}

impl<const N: usize> fmt::Display for Progress<'_, N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpus = (0..N as u32).map(CpuId::new);
        let interrupts = cpus.map(|cpu| (cpu, self.torture.steps(WorkerId::interrupts_of(cpu))));
        let tasks = || (0..N * (LANES - 1)).map(|task| self.torture.steps(WorkerId::task(task)));
        let steps = tasks().sum::<u64>() + interrupts.clone().map(|(_, steps)| steps).sum::<u64>();
        write!(f, "torture: progress ns={} steps={steps}", self.elapsed_ns)?;
        for (cpu, steps) in interrupts {
            if steps > 0 && self.online.contains(cpu) {
                write!(f, " {cpu}={steps}")?;
            }
        }
        for (task, steps) in tasks().enumerate() {
            if steps > 0 {
                write!(f, " task{task}={steps}")?;
            }
        }
        Ok(())
    }
}
