//! [`Cores`]: what the engine and its peers run on.

use shootdown::{Config, CpuId, Cpus, IpiRefused, LocalFlush, Platform};

use crate::cpu::{self, MOST_NAMES};
use crate::turn;

/// The cores of this host, for an engine with all that it can have, or a plain one.
#[derive(Clone, Copy, Debug)]
pub struct Cores<const PLAIN: bool>;

// SAFETY: 1 to 3. a thread is bound to its core and has one name at a time; interrupts are taken by itself, where it looks for them. 4 to 12. there are no
// page tables and no translations: a local flush takes its time and is counted. Its memory is the process's.
unsafe impl<const PLAIN: bool> Platform for Cores<PLAIN> {
    type Cpus = Cpus<MOST_NAMES>;
    const CONFIG: Config = if PLAIN { Config::PLAIN } else { Config::FULL };

    type IrqState = bool;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId::new(cpu::name())
    }

    #[inline]
    fn irq_save(&self) -> bool {
        cpu::turn_off()
    }

    #[inline]
    unsafe fn irq_restore(&self, is_on: bool) {
        cpu::restore(is_on);
    }

    #[inline]
    fn preempt_disable(&self) {}

    #[inline]
    unsafe fn preempt_enable(&self) {}

    #[inline]
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        cpu::ring(target.index());
        Ok(())
    }

    #[inline]
    fn local_flush(&self, operation: LocalFlush) {
        turn::flush(operation);
    }

    unsafe fn load_root(&self, _: u64) {}

    #[inline]
    fn prefetch_write(&self, address: usize) {
        // SAFETY: a prefetch of any address does nothing that a program sees; processors without it ignore it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
        }
    }

    /// As of a counter of 2.5 GHz, which is near enough for what waits make of it.
    #[inline]
    fn now_ns(&self) -> u64 {
        cpu::cycles() * 2 / 5
    }

    #[inline]
    fn relax(&self) {
        cpu::look();
        core::hint::spin_loop();
    }
}
