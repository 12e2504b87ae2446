//! The engine inside OSTD: a platform of what OSTD's own modules use, on any of its processors.

use core::ptr::NonNull;

use shootdown::{
    CpuId, CpuMemory, Cpus, FreedTables, IpiRefused, LocalFlush, Platform, Shootdown, watch::Stall,
};

use super::HW_CPU_IDS;
use crate::{
    arch::{irq as arch_irq, mm},
    irq,
    task::{DisabledPreemptGuard, disable_preempt},
    timer::Jiffies,
};

/// Most CPUs.
pub(crate) const MAX_CPUS: usize = 64;

/// The engine of the machine.
pub(crate) static SHOOTDOWN: Shootdown<Ostd> = Shootdown::new(Ostd);

pub(super) static MEMORY: [CpuMemory<Ostd>; MAX_CPUS] =
    [const { CpuMemory::new() }; MAX_CPUS];

/// The running machine.
#[derive(Debug)]
pub(crate) struct Ostd;

// SAFETY: duties as numbered at the trait.
// 1. It is in the CPU's own area; tasks move in the scheduler only, which the guard keeps out.
// 2. The interrupt flag. 3. and 4. OSTD's own flushes and loads; it uses no tags. 5. and 6. Its controller's driver: it calls
//    `do_inter_processor_call`, then ends the interrupt. 7. Nothing is flushed remotely. 8. None of them is there. 9. OSTD's tests unwind
//    where they panic, but nothing here panics after the boot. 10. `prefetch_write` is not there. 11. The kernel's top-level entries are in every page table. 12. No space is
//    given to this engine, so what OSTD loads is no concern of its.
unsafe impl Platform for Ostd {
    type Cpus = Cpus<MAX_CPUS>;
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(crate::cpu::CpuId::current_racy().into())
    }

    fn irq_save(&self) -> bool {
        let was_enabled = arch_irq::is_local_enabled();
        if was_enabled {
            arch_irq::disable_local();
        }
        was_enabled
    }

    unsafe fn irq_restore(&self, was_enabled: bool) {
        if was_enabled {
            arch_irq::enable_local();
        }
    }

    fn preempt_disable(&self) {
        core::mem::forget(disable_preempt());
    }

    unsafe fn preempt_enable(&self) {
        const { assert!(size_of::<DisabledPreemptGuard>() == 0) };
        // SAFETY: a guard is a promise without content. `preempt_disable` has forgotten one on this CPU, and this is that one.
        drop(unsafe { NonNull::<DisabledPreemptGuard>::dangling().read() });
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        let ids = HW_CPU_IDS.get().ok_or(IpiRefused)?;
        let guard = irq::disable_local();
        arch_irq::send_ipi(ids[target.index()], &guard as _).map_err(|_| IpiRefused)
    }

    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, freed) => {
                mm::tlb_flush_addr_range(&(range.start()..range.end()));
                // By addresses, tables that do not lead there may stay cached.
                if freed == FreedTables::Yes {
                    mm::tlb_flush_all_excluding_global();
                }
            }
            LocalFlush::Space => mm::tlb_flush_all_excluding_global(),
            LocalFlush::All => mm::tlb_flush_all_including_global(),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: whoever made the `Root` has promised that it maps the kernel.
        unsafe { mm::activate_page_table(root as usize) };
    }

    fn now_ns(&self) -> u64 {
        Jiffies::elapsed().as_duration().as_nanos() as u64
    }

    fn on_stall(&self, stall: &Stall) {
        crate::console::early_print(format_args!("{stall}\n"));
    }
}
