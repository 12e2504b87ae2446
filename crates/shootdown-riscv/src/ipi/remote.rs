//! Fences for other harts by the firmware, without an interrupt that the kernel sees.

use super::hart::{HartMap, cpus};
use super::port::Port;
use super::sbi::Extension;
use super::send::SendError;
use crate::features::Processor;

/// Fences by SBI's RFENCE extension (SBI, "RFENCE Extension"), for `Platform::flush_remote`.
///
/// **Without ASIDs.** The extension has a function that takes one, and it is not used: "the meaning of an ASID is local to a hart" (Privileged, "Supervisor Memory-Management Fence
/// Instruction"), so the number that is a space's here is another space's there, and the fence would miss. The other function fences under every tag, global translations too.
///
/// Firmware fences in machine mode: a target's `sstatus.SIE` keeps nothing away, and a walk of page tables with interrupts off needs another protection.
#[derive(Clone, Copy, Debug)]
pub struct RemoteFences<'a, P: Port, const CPUS: usize> {
    port: P,
    map: &'a HartMap<CPUS>,
    /// Fences that name an address work.
    is_exact: bool,
}

impl<'a, P: Port, const CPUS: usize> RemoteFences<'a, P, CPUS> {
    /// "Remote SFENCE.VMA".
    const SFENCE_VMA: u64 = 1;
    /// The size that stands for "the entire address space".
    const ENTIRE: u64 = u64::MAX;

    /// Fences for the harts of `map`.
    ///
    /// # Safety
    ///
    /// 1. The firmware has the extension, and returns only when the targets have executed their fences. OpenSBI does (`tlb_sync`, `lib/sbi/sbi_tlb.c`). SBI's text says of success no more than "IPI was sent to all the
    ///    targeted harts": of a firmware that is not known to wait, or of one that leaves its wait after some time, ask nothing here.
    /// 2. No hart of the map has erratum CIP-1200, or `processor` is one that [has](Processor::has_cip_1200): the firmware's fences are SFENCE.VMA, too.
    /// 3. `port` acts on the hart that calls, as [`Port`] says.
    pub const unsafe fn new(port: P, map: &'a HartMap<CPUS>, processor: Processor) -> Self {
        let is_exact = !processor.has_cip_1200();
        Self {
            port,
            map,
            is_exact,
        }
    }

    /// Has every CPU of `targets` drop the leaves of `bytes` bytes from `start` on, under all tags, global too. Stores of this hart before are seen by their walks after. Not for
    /// freed tables: that is [`RemoteFences::flush_all`], as a fence with an address [drops leaves](crate::tlb). With the erratum it is that, too.
    ///
    /// It waits for the firmware, and that for the targets' machine mode, which no kernel can hold up. Interrupts off or on.
    ///
    /// # Errors
    ///
    /// [`SendError`]: then count nobody as flushed, and interrupt.
    pub fn flush_range(&self, targets: &[u64], start: u64, bytes: u64) -> Result<(), SendError> {
        // To the firmware no bytes from 0 on are the entire address space.
        if bytes == 0 {
            return Ok(());
        }
        if !self.is_exact {
            return self.flush_all(targets);
        }
        self.call(targets, start, bytes)
    }

    /// The same of everything, entries of tables too.
    ///
    /// # Errors
    ///
    /// As [`RemoteFences::flush_range`].
    pub fn flush_all(&self, targets: &[u64]) -> Result<(), SendError> {
        self.call(targets, 0, Self::ENTIRE)
    }

    fn call(&self, targets: &[u64], start: u64, bytes: u64) -> Result<(), SendError> {
        let map = self.map;
        if let Some(cpu) = cpus(targets).find(|&cpu| map.hart(cpu).is_none()) {
            return Err(SendError::NoSuchCpu(cpu));
        }
        self.port.fence();
        map.masks(targets).try_for_each(|harts| {
            let arguments = [harts.mask, harts.base, start, bytes];
            // SAFETY: 1. dropping a translation never changes what memory holds.
            let answer = unsafe {
                self.port
                    .sbi_call(Extension::RFENCE, Self::SFENCE_VMA, arguments)
            };
            answer.result().map(drop).map_err(SendError::Refused)
        })
    }
}
