//! CPUs that go out of service and come back.

use std::sync::atomic::{AtomicBool, Ordering};

use shootdown::{Capacity, CpuId, Cpus};

use crate::config::Refused;
use crate::cpu::Service;
use crate::machine::Machine;
use crate::thread;

impl<const N: usize> Machine<N>
where
    Cpus<N>: Capacity,
{
    /// Takes `cpu` out of service; returns when it is. Its task goes elsewhere. From any thread and
    /// task.
    ///
    /// # Errors
    /// [`Refused::Offline`], [`Refused::Last`]; [`Refused::Pinned`] inside [`run_on`](Self::run_on).
    pub fn take_offline(&self, cpu: CpuId) -> Result<(), Refused> {
        let index = cpu.index();
        let _owner = self.own_churn(cpu)?;
        if !self.inner.cpus.contains(cpu) {
            return Err(Refused::Offline(cpu));
        }
        let state = &self.inner.platform().cpus[index];
        if !state.is(Service::Online) {
            return Err(Refused::Offline(cpu));
        }
        let states = self.inner.states();
        let online = states.filter(|state| state.is(Service::Online));
        if online.count() == 1 {
            return Err(Refused::Last(cpu));
        }
        state.want(Service::Offline);
        self.call_idle(index);
        self.await_service(index, Service::Offline);
        Ok(())
    }

    /// Brings `cpu` back; returns when it is a target again. From any thread and task.
    ///
    /// # Errors
    /// [`Refused::Online`]; [`Refused::Pinned`] inside [`run_on`](Self::run_on); [`Refused::Offline`] if the machine has no such CPU.
    pub fn bring_online(&self, cpu: CpuId) -> Result<(), Refused> {
        let index = cpu.index();
        let _owner = self.own_churn(cpu)?;
        if !self.inner.cpus.contains(cpu) {
            return Err(Refused::Offline(cpu));
        }
        let state = &self.inner.platform().cpus[index];
        if state.is(Service::Online) {
            return Err(Refused::Online(cpu));
        }
        state.want(Service::Online);
        self.await_service(index, Service::Online);
        Ok(())
    }

    /// Who changes what is online, one at a time.
    fn own_churn(&self, cpu: CpuId) -> Result<ChurnOwner<'_>, Refused> {
        if !thread::is_preemptible() {
            // The CPU that is to go may be the caller's.
            return Err(Refused::Pinned(cpu));
        }
        // ORDERING: Acquire pairs with the Release of the last owner.
        while self.inner.churning.swap(true, Ordering::Acquire) {
            self.pause();
        }
        Ok(ChurnOwner(&self.inner.churning))
    }
}

struct ChurnOwner<'a>(&'a AtomicBool);

impl Drop for ChurnOwner<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; see `own_churn`.
        self.0.store(false, Ordering::Release);
    }
}
