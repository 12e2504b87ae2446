//! Interrupting CPUs, and taking note of interrupts.

use super::doorbell::{DoorbellMap, ImsicIdentity};
use super::hart::{HartMap, HartMask, cpus};
use super::port::Port;
use super::sbi::{Extension, SbiError};

/// How CPUs are interrupted.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a, const CPUS: usize> {
    /// By the firmware, which [has](super::probe) the extension.
    Sbi(&'a HartMap<CPUS>),
    /// By words of devices.
    Doorbells(&'a DoorbellMap<CPUS>),
}

/// Why a CPU was not interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SendError {
    /// A CPU that is not in the map. Nobody was interrupted.
    NoSuchCpu(usize),
    /// The firmware refused. Some may have been interrupted: send to all of them again.
    Refused(SbiError),
}

/// Interrupts for other CPUs, and for this one.
#[derive(Clone, Copy, Debug)]
pub struct Ipi<'a, P: Port, const CPUS: usize> {
    port: P,
    way: Way<'a, CPUS>,
}

impl<'a, P: Port, const CPUS: usize> Ipi<'a, P, CPUS> {
    /// Interrupts by this way. Safe, because no unsafe code in here relies on `port`; an `unsafe impl` of `shootdown::Platform` does (contract 5), and answers for its acting on the hart that calls, as
    /// [`Port`] says.
    pub const fn new(port: P, way: Way<'a, CPUS>) -> Self {
        Self { port, way }
    }

    /// Interrupts CPU `cpu`, which may be this one. What this hart has stored before is visible to the handler. Any context.
    ///
    /// # Errors
    ///
    /// [`SendError`]; then it is not interrupted.
    pub fn send(&self, cpu: usize) -> Result<(), SendError> {
        let unknown = SendError::NoSuchCpu(cpu);
        match self.way {
            Way::Sbi(map) => {
                let hart = map.hart(cpu).ok_or(unknown)?;
                self.port.fence();
                self.send_mask(HartMask::only(hart))
            }
            Way::Doorbells(map) => {
                map.register(cpu).ok_or(unknown)?;
                self.port.fence();
                self.ring(map, cpu);
                Ok(())
            }
        }
    }

    /// Interrupts every CPU of `targets`, which has bit `cpu % 64` of word `cpu / 64` for each: as [`Ipi::send`] of each, with as few operations as the way allows. Any context.
    ///
    /// # Errors
    ///
    /// [`SendError`].
    pub fn send_many(&self, targets: &[u64]) -> Result<(), SendError> {
        let is_known = |cpu: usize| match self.way {
            Way::Sbi(map) => map.hart(cpu).is_some(),
            Way::Doorbells(map) => map.register(cpu).is_some(),
        };
        if let Some(cpu) = cpus(targets).find(|&cpu| !is_known(cpu)) {
            return Err(SendError::NoSuchCpu(cpu));
        }
        // Once is enough: nothing is stored in between that a target must see.
        self.port.fence();
        match self.way {
            Way::Sbi(map) => map.masks(targets).try_for_each(|mask| self.send_mask(mask)),
            Way::Doorbells(map) => {
                cpus(targets).for_each(|cpu| self.ring(map, cpu));
                Ok(())
            }
        }
    }

    fn send_mask(&self, HartMask { base, mask }: HartMask) -> Result<(), SendError> {
        // SAFETY: 1. an interrupt breaks nothing: who has it enabled handles it.
        let answer = unsafe { self.port.sbi_call(Extension::IPI, 0, [mask, base, 0, 0]) };
        answer.result().map(drop).map_err(SendError::Refused)
    }

    fn ring(&self, map: &DoorbellMap<CPUS>, cpu: usize) {
        if let Some(register) = map.register(cpu) {
            // SAFETY: 1. duty 1 of `insert`. 2. an interrupt breaks nothing.
            unsafe { self.port.write_word(register, map.kind().value()) };
        }
    }

    /// Takes note of a supervisor software interrupt. To be called by its handler *before* it looks for work: who sends later interrupts again. Interrupts off.
    pub fn acknowledge(&self) {
        self.port.clear_software_interrupt();
        self.port.fence();
    }

    /// Takes note of the external interrupt with the highest priority, and says which it is: for the handler of external interrupts where the hart has an IMSIC, *before* it
    /// looks for work; it calls this until there is none. Interrupts off.
    ///
    /// # Safety
    ///
    /// 1. This hart has [Ssaia](crate::Features::SSAIA) and an IMSIC.
    pub unsafe fn claim(&self) -> Option<ImsicIdentity> {
        // SAFETY: 1. the caller's.
        let top = unsafe { self.port.claim_external_interrupt() };
        self.port.fence();
        // Bits 26:16 ("Top external interrupt CSRs"); zero if there is none.
        ImsicIdentity::new((top >> 16 & 0x7ff) as u16)
    }
}
