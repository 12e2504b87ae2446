//! ArceOS, as the engine sees it. One file for all processors.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axhal::asm::{disable_irqs, enable_irqs, irqs_enabled};
use axstd::println;
use kernel_guard::{BaseGuard, IrqSave, NoPreempt};
use shootdown::{
    CpuId, CpuMemory, Cpus, FreedTables, IpiRefused, LocalFlush, Platform, Shootdown, watch::Stall,
};

use crate::arch::{self, Depth};
use crate::clock;

/// How many CPUs there are: ArceOS is built for a number.
pub const CPUS: usize = axconfig::plat::MAX_CPU_NUM;

/// The engine of the machine.
pub static SHOOTDOWN: Shootdown<ArceOs> = Shootdown::new(ArceOs);

static MEMORY: [CpuMemory<ArceOs>; CPUS] = [const { CpuMemory::new() }; CPUS];

/// On each CPU: how often the engine has disabled preemption there.
static DISABLED: [AtomicUsize; CPUS] = [const { AtomicUsize::new(0) }; CPUS];
/// On each CPU: how often ArceOS is still to be told that preemption is enabled.
static OWED: [AtomicUsize; CPUS] = [const { AtomicUsize::new(0) }; CPUS];
/// A deliberate mistake.
static NO_FLUSH: AtomicBool = AtomicBool::new(false);

/// Before anything else; `no_flush` makes `local_flush` do nothing.
pub fn prepare(no_flush: bool) {
    SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
    NO_FLUSH.store(no_flush, Ordering::Relaxed);
}

/// Whether the running thread may give its CPU away.
pub fn is_preemptible() -> bool {
    let irq = IrqSave::new();
    let is_disabled = DISABLED[this_cpu()].load(Ordering::Relaxed) > 0;
    drop(irq);
    !is_disabled && irqs_enabled()
}

/// Tells ArceOS what it is owed. At the end of an interrupt's hook, where preemption is disabled once more, so that it does not switch.
pub fn settle() {
    let owed = OWED[this_cpu()].swap(0, Ordering::Relaxed);
    (0..owed).for_each(|_| NoPreempt::release(()));
}

fn this_cpu() -> usize {
    axhal::percpu::this_cpu_id()
}

/// The running machine.
#[derive(Debug)]
pub struct ArceOs;

// SAFETY: duties as numbered at the trait.
// 1. A register of the CPU leads to its own area, where its number is; threads move in the scheduler only.
// 2. The interrupt flag; ArceOS has no handlers of non-maskable interrupts that use the engine. `NoPreempt` would switch threads as it
//    enables preemption, with interrupts off too, so that waits until they are on, or for the end of the interrupt.
// 3. to 5. The architecture's crate. There is one root, and nobody asks for another. Who sends is that crate, too, and not ArceOS's driver, which has no
//    barrier and does not say whether the controller was busy; on AArch64 it takes a lock besides.
// 6. Local APIC: one vector, ended before the hook runs; what arrives later is pending in the IRR. RISC-V: ArceOS clears SSIP behind the handler, and before
//    the hook; GICv2: it reads GICC_IAR before the handler. No barrier comes behind these. So `handle_ipi` is called in the hook, behind `acknowledge`, which has one.
// 7. Nothing is flushed remotely. 8. None of them is there. 9. A panic ends the machine. 10. `prefetch_write` is not there. 11. There is
// one root, which maps all that is in it from boot on. 12. Nobody loads another.
unsafe impl Platform for ArceOs {
    type Cpus = Cpus<CPUS>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = bool;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId::new(this_cpu() as u32)
    }

    #[inline]
    fn irq_save(&self) -> bool {
        let were_enabled = irqs_enabled();
        disable_irqs();
        were_enabled
    }

    unsafe fn irq_restore(&self, were_enabled: bool) {
        if were_enabled {
            let owed = OWED[this_cpu()].swap(0, Ordering::Relaxed);
            enable_irqs();
            (0..owed).for_each(|_| NoPreempt::release(()));
        }
    }

    fn preempt_disable(&self) {
        NoPreempt::acquire();
        DISABLED[this_cpu()].fetch_add(1, Ordering::Relaxed);
    }

    unsafe fn preempt_enable(&self) {
        DISABLED[this_cpu()].fetch_sub(1, Ordering::Relaxed);
        if irqs_enabled() {
            NoPreempt::release(());
        } else {
            OWED[this_cpu()].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        arch::send_ipi(target.index())
    }

    fn local_flush(&self, operation: LocalFlush) {
        if NO_FLUSH.load(Ordering::Relaxed) {
            return;
        }
        match operation {
            LocalFlush::Pages(range, FreedTables::No) => arch::flush_pages(range, Depth::Leaf),
            LocalFlush::Pages(range, FreedTables::Yes) => arch::flush_pages(range, Depth::Tables),
            LocalFlush::Space | LocalFlush::All => arch::TLB.flush_all(),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: interrupts are off. Whoever made the `Root` has promised that it maps the kernel, which on AArch64 is behind TTBR1_EL1 in any case.
        unsafe { arch::TLB.load_root(root) };
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn on_stall(&self, stall: &Stall) {
        println!("arceos: {stall}");
        arch::end(false);
    }
}
