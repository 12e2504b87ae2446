//! The machine, as the engine sees it, and mistakes that it can be made to make.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use shootdown::remote::{FlushRequest, RemoteFlush, RemoteTargets};
use shootdown::tags::{Asid, AsidSlot, TagEntries};
use shootdown::watch::Stall;
use shootdown::{CpuId, CpuMemory, CpuSet, IpiRefused, LocalFlush, Platform, Shootdown};

use crate::arch::{self, IrqState};
use crate::console::say;
use crate::cpus::MAX_CPUS;
use crate::torture;

/// As the engine counts.
pub type Cpus = shootdown::Cpus<MAX_CPUS>;
/// The engine of the machine.
pub static SHOOTDOWN: Shootdown<Board> = Shootdown::new(Board);
/// Tags of each CPU besides the one of what has none.
const TAGS: usize = 64;

static MEMORY: [CpuMemory<Board>; MAX_CPUS] = [const { CpuMemory::new() }; MAX_CPUS];
static SLOTS: [[AsidSlot; TAGS]; MAX_CPUS] =
    [const { [const { AsidSlot::new() }; TAGS] }; MAX_CPUS];
/// Other CPUs are flushed without an interrupt where the architecture can.
static IS_REMOTE: AtomicBool = AtomicBool::new(false);
/// By CPU: it serves an interrupt of the engine's.
static IS_SERVING: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];
/// By CPU: its timer has to carry out a flush that it has acknowledged.
static IS_LATE: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Deliberate mistakes, which the torture must notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Break {
    /// None.
    Nothing,
    /// Flushes in the handler of the engine's interrupt are acknowledged, and not carried out. (Those of functions that others call there are left out, too.)
    NoRemote,
    /// They are acknowledged before they are carried out: nobody waits for them.
    NoWait,
    /// The frame of a page is given away before the flush.
    FreeEarly,
}

/// Every mistake by its name.
pub const BREAKS: [(&str, Break); 3] = [
    ("no-remote", Break::NoRemote),
    ("no-wait", Break::NoWait),
    ("free-early", Break::FreeEarly),
];

static BREAK: AtomicU8 = AtomicU8::new(Break::Nothing as u8);

/// From now on this mistake is made.
pub fn break_by(mistake: Break) {
    BREAK.store(mistake as u8, Ordering::Relaxed);
}

/// Whether this mistake is made.
pub fn is_broken_by(mistake: Break) -> bool {
    BREAK.load(Ordering::Relaxed) == mistake as u8
}

/// From now on other CPUs are flushed without an interrupt; false where the architecture cannot. Before any CPU is online.
pub fn flush_remotely() -> bool {
    IS_REMOTE.store(arch::FLUSHES_REMOTELY, Ordering::Relaxed);
    arch::FLUSHES_REMOTELY
}

/// Before any CPU is online.
pub fn attach() {
    SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
}

/// The handler of the engine's interrupt, which is acknowledged. Interrupts are off.
pub fn on_ipi() {
    let me = arch::this_cpu();
    IS_SERVING[me].store(true, Ordering::Relaxed);
    SHOOTDOWN.handle_ipi();
    IS_SERVING[me].store(false, Ordering::Relaxed);
}

/// The handler of the timer. Interrupts are off.
pub fn on_timer() {
    if IS_LATE[arch::this_cpu()].swap(false, Ordering::Relaxed) {
        arch::flush(LocalFlush::All);
    }
    torture::tick();
}

/// The board.
#[derive(Debug)]
pub struct Board;

// SAFETY: duties as numbered at the trait.
// 1. A register of the CPU has its number; nothing moves between CPUs. 2. The interrupt flag; there are no handlers that it does not keep out.
// 3. to 7. The architecture's crate, as `arch` calls it; the handler acknowledges first. 8. The number of tags never changes, and the slots are a static of this engine's. 9. A panic ends the
// machine. 10. `prefetch_write` is not there. 11. Roots are statics, and map the kernel alike. 12. Nobody loads another.
unsafe impl Platform for Board {
    type Cpus = Cpus;
    const CONFIG: shootdown::Config = shootdown::Config::FULL.with_reach(false);
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;
    type IrqState = IrqState;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId::new(arch::this_cpu() as u32)
    }

    #[inline]
    fn irq_save(&self) -> IrqState {
        arch::irq_save()
    }

    #[inline]
    unsafe fn irq_restore(&self, before: IrqState) {
        // SAFETY: 1. the caller's.
        unsafe { arch::irq_restore(before) };
    }

    /// Nothing preempts here.
    fn preempt_disable(&self) {}

    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        arch::send_ipi(&[1 << target.index()])
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        arch::send_ipi(targets.words())
    }

    fn local_flush(&self, operation: LocalFlush) {
        let me = arch::this_cpu();
        if IS_SERVING[me].load(Ordering::Relaxed) {
            if is_broken_by(Break::NoRemote) {
                return;
            }
            if is_broken_by(Break::NoWait) {
                return IS_LATE[me].store(true, Ordering::Relaxed);
            }
        }
        arch::flush(operation);
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. the caller's.
        unsafe { arch::load_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &SLOTS[cpu.index()][..TAGS.min(arch::tags())]
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        // SAFETY: 1. the caller's.
        unsafe { arch::load_root(root, asid, entries) };
    }

    fn flushes_remotely(&self) -> bool {
        IS_REMOTE.load(Ordering::Relaxed)
    }

    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        arch::flush_remote(targets, request)
    }

    fn finish_remote(&self, targets: &mut RemoteTargets<'_>, _: &FlushRequest) {
        arch::finish_remote(targets);
    }

    fn now_ns(&self) -> u64 {
        arch::now_ns()
    }

    fn on_stall(&self, stall: &Stall) {
        say!("ports: {stall}");
    }
}
