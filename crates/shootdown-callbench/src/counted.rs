//! [`Counted`]: a platform that counts the interrupts it sends.

use shootdown::{
    Config, CpuId, CpuSet, IpiRefused, LocalFlush, Platform,
    tags::{Asid, AsidSlot, TagEntries},
    watch::Stall,
};

use crate::tally::Tallies;

/// The platform `P`, with its interrupts counted. Every contender has it, so counting costs all of them the same: one
/// addition on a line of the CPU's own for each time it sends. An engine on it is plain, or has all that it can have.
#[derive(Debug)]
pub struct Counted<P, const N: usize, const PLAIN: bool> {
    platform: P,
    tallies: &'static Tallies<N>,
}

impl<P: Copy, const N: usize, const PLAIN: bool> Clone for Counted<P, N, PLAIN> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Copy, const N: usize, const PLAIN: bool> Copy for Counted<P, N, PLAIN> {}

impl<P, const N: usize, const PLAIN: bool> Counted<P, N, PLAIN> {
    /// `platform`, which counts in `tallies`.
    pub const fn new(platform: P, tallies: &'static Tallies<N>) -> Self {
        Self { platform, tallies }
    }
}

// SAFETY: all methods are those of `P`, whose implementor has promised 1 to 10; counting changes nothing.
unsafe impl<P: Platform, const N: usize, const PLAIN: bool> Platform for Counted<P, N, PLAIN> {
    type Cpus = P::Cpus;
    const CONFIG: Config = if PLAIN { Config::PLAIN } else { Config::FULL };
    type IrqState = P::IrqState;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.platform.current_cpu()
    }

    #[inline]
    fn irq_save(&self) -> P::IrqState {
        self.platform.irq_save()
    }

    #[inline]
    unsafe fn irq_restore(&self, state: P::IrqState) {
        // SAFETY: 1. as here.
        unsafe { self.platform.irq_restore(state) };
    }

    #[inline]
    fn preempt_disable(&self) {
        self.platform.preempt_disable();
    }

    #[inline]
    unsafe fn preempt_enable(&self) {
        // SAFETY: 1. as here.
        unsafe { self.platform.preempt_enable() };
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.platform.send_ipi(target)?;
        let mine = self.tallies.of(self.platform.current_cpu());
        mine.sends.add(1);
        mine.ipis.add(1);
        Ok(())
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        self.platform.send_ipi_mask(targets)?;
        let mine = self.tallies.of(self.platform.current_cpu());
        mine.sends.add(1);
        mine.ipis.add(targets.len() as u64);
        Ok(())
    }

    fn local_flush(&self, operation: LocalFlush) {
        self.platform.local_flush(operation);
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. as here.
        unsafe { self.platform.load_root(root) };
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        self.platform.asid_slots(cpu)
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        // SAFETY: 1. as here.
        unsafe { self.platform.load_tagged_root(root, asid, entries) };
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.platform.now_ns()
    }

    #[inline]
    fn relax(&self) {
        self.platform.relax();
    }

    #[inline]
    fn prefetch_write(&self, address: usize) {
        self.platform.prefetch_write(address);
    }

    fn on_stall(&self, stall: &Stall) {
        self.platform.on_stall(stall);
    }
}
