//! CPUs that come and go.

use shootdown::{Capacity, CpuId, CpuMask, Cpus};

use crate::host::Host;
use crate::sync::Tally;

/// Who may change which CPUs are online, and whether somebody has.
#[derive(Debug)]
pub(crate) struct Churn {
    owner: Tally,
    /// Odd while a CPU is on its way out or in.
    epoch: Tally,
    /// The CPU that is out, plus one.
    out: Tally,
}

/// CPUs that were online at a time when none was coming or going.
#[derive(Debug)]
pub(crate) struct Steady<const N: usize>
where
    Cpus<N>: Capacity,
{
    epoch: u64,
    pub(crate) cpus: CpuMask<Cpus<N>>,
}

impl Churn {
    pub(crate) const fn new() -> Self {
        Self {
            owner: Tally::new(0),
            epoch: Tally::new(0),
            out: Tally::new(0),
        }
    }

    /// Takes the CPU that `some_cpu` names out, or brings the one back that is out.
    pub(crate) fn turn<H: Host<N>, const N: usize>(
        &self,
        host: &H,
        some_cpu: impl FnOnce() -> CpuId,
    ) -> bool
    where
        Cpus<N>: Capacity,
    {
        if !self.owner.take(1) {
            return false;
        }
        self.epoch.add(1);
        let done = self.bring_back(host) || {
            let cpu = some_cpu();
            let gone = host.take_offline(cpu);
            if gone {
                self.out.set(u64::from(cpu.as_u32()) + 1);
            }
            gone
        };
        // Only the owner changes it.
        self.epoch.publish(self.epoch.get() + 1);
        self.owner.publish(0);
        done
    }

    /// Brings the CPU back that is out; whether one was.
    pub(crate) fn bring_back<H: Host<N>, const N: usize>(&self, host: &H) -> bool
    where
        Cpus<N>: Capacity,
    {
        let Some(cpu) = self.out.get().checked_sub(1) else {
            return false;
        };
        // First, because at the end of a run interrupts still do steps, and no epoch tells them of it.
        self.out.set(0);
        host.bring_online(CpuId::new(cpu as u32));
        true
    }

    /// The CPUs of `named` that are online, for [`difference`](Self::difference).
    pub(crate) fn steady<H: Host<N>, const N: usize>(
        &self,
        host: &H,
        named: &CpuMask<Cpus<N>>,
    ) -> Steady<N>
    where
        Cpus<N>: Capacity,
    {
        let epoch = self.epoch.get_published();
        let mut cpus = *named;
        cpus.intersect(&host.engine().ready_cpus());
        Steady { epoch, cpus }
    }

    /// One of them that is missing in `ran`, or the one that is out and in `ran`, although nobody came or went meanwhile.
    pub(crate) fn difference<const N: usize>(
        &self,
        steady: Steady<N>,
        ran: &CpuMask<Cpus<N>>,
    ) -> Option<CpuId>
    where
        Cpus<N>: Capacity,
    {
        let Steady { epoch, cpus } = steady;
        let out = self.out.get().checked_sub(1);
        if epoch % 2 != 0 || self.epoch.get_published() != epoch {
            return None;
        }
        let is_missing = |cpu: &CpuId| !ran.contains(*cpu);
        let out = out.map(|cpu| CpuId::new(cpu as u32));
        let extra = out.filter(|cpu| ran.contains(*cpu));
        cpus.iter().find(is_missing).or(extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_differs_as_one_too_few_does() {
        let churn = Churn::new();
        let difference = |ran| {
            let (epoch, cpus) = (churn.epoch.get(), CpuMask::<Cpus<4>>::first(2));
            churn.difference(Steady { epoch, cpus }, &CpuMask::first(ran))
        };
        churn.out.set(2 + 1);
        assert_eq!(difference(2), None);
        assert_eq!(difference(1), Some(CpuId::new(1)));
        assert_eq!(difference(3), Some(CpuId::new(2)));
        // One is on its way.
        churn.epoch.add(1);
        assert_eq!(difference(3), None);
    }
}
