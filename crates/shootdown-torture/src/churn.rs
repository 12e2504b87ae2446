//! CPUs that come and go.

use shootdown::{Capacity, CpuMask, Cpus};

use crate::host::Host;
use crate::rng::Rng;
use crate::step::Step;
use crate::sync::Tally;
use crate::torture::Torture;

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
    cpus: CpuMask<N>,
}

impl Churn {
    pub(crate) const fn new() -> Self {
        Self {
            owner: Tally::new(0),
            epoch: Tally::new(0),
            out: Tally::new(0),
        }
    }
}

impl<const N: usize> Torture<N>
where
    Cpus<N>: Capacity,
{
    /// The CPU that comes back by bringing in what the last churn took out, at the end of a run.
    pub fn bring_all_online<H: Host<N>>(&self, host: &H) {
        if let Some(cpu) = self.churn.out.get().checked_sub(1) {
            host.bring_online(crate::mail::cpu(cpu as usize));
            self.churn.out.set(0);
        }
    }
}

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Takes a CPU out, or brings the one back that is out.
    pub(crate) fn churn(&self, rng: &mut Rng) -> bool {
        let churn = &self.torture.churn;
        if !churn.owner.take(1) {
            return false;
        }
        churn.epoch.add(1);
        let done = match churn.out.get().checked_sub(1) {
            Some(cpu) => {
                self.host.bring_online(crate::mail::cpu(cpu as usize));
                churn.out.set(0);
                true
            }
            None => {
                let cpu = self.some_cpu(rng);
                let gone = self.host.take_offline(cpu);
                if gone {
                    churn.out.set(u64::from(cpu.as_u32()) + 1);
                }
                gone
            }
        };
        churn.epoch.add(1);
        churn.owner.publish(0);
        done
    }

    /// The CPUs of `named` that are online, for [`left_out`](Self::left_out).
    pub(crate) fn steady(&self, named: &CpuMask<N>) -> Steady<N> {
        let epoch = self.torture.churn.epoch.get_published();
        let mut cpus = *named;
        cpus.intersect(&self.host.engine().ready_cpus());
        Steady { epoch, cpus }
    }

    /// Those of them that are missing in `ran` although nobody came or went meanwhile.
    pub(crate) fn left_out(&self, steady: Steady<N>, ran: &CpuMask<N>) -> CpuMask<N> {
        let Steady { epoch, mut cpus } = steady;
        if !epoch.is_multiple_of(2) || self.torture.churn.epoch.get_published() != epoch {
            return CpuMask::EMPTY;
        }
        cpus.subtract(ran);
        cpus
    }
}
