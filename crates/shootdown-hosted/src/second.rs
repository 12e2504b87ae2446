//! [`SecondPlatform`]: a second engine on the same CPUs.

use shootdown::{CpuId, IpiRefused, LocalFlush, Platform, watch::Stall};

use crate::cpu::SECOND;
use crate::machine::Machine;
use crate::thread;

/// How a CPU of a [`SecondPlatform`] waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relax {
    /// It spins: each CPU has a core.
    Spin,
    /// It lets another thread of the host run.
    Yield,
}

impl Relax {
    /// What suits a machine of so many CPUs on this host.
    pub fn for_cpus(cpus: usize) -> Self {
        match std::thread::available_parallelism() {
            Ok(cores) if cpus <= cores.get() => Self::Spin,
            _ => Self::Yield,
        }
    }

    /// One turn of a wait.
    #[inline]
    pub fn turn(self) {
        match self {
            Self::Spin => core::hint::spin_loop(),
            Self::Yield => std::thread::yield_now(),
        }
    }
}

/// The platform of a second engine, or of anything else that calls across CPUs, with an interrupt of its own
/// ([`Machine::on_second`]): for comparisons on one machine. It has no tags and loads no roots, so it is for calls only.
#[derive(Clone, Copy, Debug)]
pub struct SecondPlatform<const N: usize>
where
    shootdown::Cpus<N>: shootdown::Capacity,
{
    machine: &'static Machine<N>,
    relax: Relax,
}

impl<const N: usize> SecondPlatform<N>
where
    shootdown::Cpus<N>: shootdown::Capacity,
{
    /// On `machine`.
    pub fn new(machine: &'static Machine<N>, relax: Relax) -> Self {
        Self { machine, relax }
    }

    fn first(&self) -> &'static crate::Hosted<N> {
        self.machine.engine().platform()
    }
}

// SAFETY: 1 to 3 as `Hosted`, whose methods these are. 4: no root is ever loaded. 5 and 6 as `Hosted`: the same pending word,
// another bit, whose handler `Machine::on_second` names. 7 to 10 as `Hosted`.
unsafe impl<const N: usize> Platform for SecondPlatform<N>
where
    shootdown::Cpus<N>: shootdown::Capacity,
{
    type Cpus = shootdown::Cpus<N>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = bool;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.first().current_cpu()
    }

    #[inline]
    fn irq_save(&self) -> bool {
        self.first().irq_save()
    }

    #[inline]
    unsafe fn irq_restore(&self, were_on: bool) {
        // SAFETY: 1. as here.
        unsafe { self.first().irq_restore(were_on) };
    }

    fn preempt_disable(&self) {
        self.first().preempt_disable();
    }

    unsafe fn preempt_enable(&self) {
        // SAFETY: 1. as here.
        unsafe { self.first().preempt_enable() };
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        let cpu = &self.first().cpus[target.index()];
        if target.index() == thread::cpu() {
            cpu.interrupt_self(SECOND);
            return Ok(());
        }
        cpu.interrupt(SECOND)
    }

    fn local_flush(&self, operation: LocalFlush) {
        self.first().local_flush(operation);
    }

    unsafe fn load_root(&self, _: u64) {
        unreachable!("a second engine is for calls: it has no spaces");
    }

    fn now_ns(&self) -> u64 {
        self.first().now_ns()
    }

    fn relax(&self) {
        self.relax.turn();
    }

    fn on_stall(&self, stall: &Stall) {
        self.first().on_stall(stall);
    }
}
