//! The machine, as the engine sees it.

use core::sync::atomic::{AtomicU8, Ordering};

use shootdown::tags::{Asid, AsidSlot, TagEntries};
use shootdown::watch::Stall;
use shootdown::{CpuId, CpuMemory, IpiRefused, LocalFlush, Platform, Shootdown};

use crate::arch;
use crate::console::say;
use crate::cpus::MAX_CPUS;

/// As the engine counts.
pub type Cpus = shootdown::Cpus<MAX_CPUS>;
/// The engine of the machine.
pub static SHOOTDOWN: Shootdown<Board> = Shootdown::new(Board);
/// Tags of each CPU besides the one of what has none.
const TAGS: usize = 64;

static MEMORY: [CpuMemory<Board>; MAX_CPUS] = [const { CpuMemory::new() }; MAX_CPUS];
static SLOTS: [[AsidSlot; TAGS]; MAX_CPUS] =
    [const { [const { AsidSlot::new() }; TAGS] }; MAX_CPUS];

/// Deliberate mistakes, which the torture must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Break {
    /// None.
    Nothing,
    /// Flushes that others ask for are not carried out.
    NoFlush,
}

static BREAK: AtomicU8 = AtomicU8::new(Break::Nothing as u8);

/// From now on this mistake is made.
pub fn break_by(mistake: Break) {
    BREAK.store(mistake as u8, Ordering::Relaxed);
}

/// Before any CPU is online.
pub fn attach() {
    SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
}

/// The board.
#[derive(Debug)]
pub struct Board;

// SAFETY: duties as numbered at the trait.
// 1. A register of the CPU has its number; nothing moves between CPUs. 2. The interrupt flag; there are no handlers that it does not keep out.
// 3., 4. `arch` says why. 5. `arch::send_ipi` orders stores before it. 6. The handler clears what is pending, and asks the engine then.
// 7. Nothing is flushed remotely. 8. Tags are not split, and the slots are a static of this engine's. 9. A panic ends the machine.
// 10. `prefetch_write` is not there. 11. Roots are statics, and map the kernel alike. 12. Nobody loads another.
unsafe impl Platform for Board {
    type Cpus = Cpus;
    const CONFIG: shootdown::Config = shootdown::Config::FULL.with_reach(false);
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;
    type IrqState = usize;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId::new(arch::this_cpu() as u32)
    }

    #[inline]
    fn irq_save(&self) -> usize {
        arch::irq_save()
    }

    #[inline]
    unsafe fn irq_restore(&self, state: usize) {
        arch::irq_restore(state);
    }

    /// Nothing preempts here.
    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        arch::send_ipi(target.index());
        Ok(())
    }

    fn local_flush(&self, operation: LocalFlush) {
        if BREAK.load(Ordering::Relaxed) != Break::NoFlush as u8 {
            arch::flush(operation);
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: as the caller promises.
        unsafe { arch::load_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &SLOTS[cpu.index()][..TAGS.min(arch::tags())]
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        // SAFETY: as the caller promises.
        unsafe { arch::load_root(root, asid, entries) };
    }

    fn now_ns(&self) -> u64 {
        arch::now_ns()
    }

    fn on_stall(&self, stall: &Stall) {
        say!("ports: {stall}");
    }
}
