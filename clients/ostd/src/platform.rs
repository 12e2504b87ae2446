//! OSTD, as the engine sees it.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ostd::arch::{read_tsc, tsc_freq};
use ostd::irq::IrqLine;
use ostd::mm::tlb::TlbFlushOp;
use ostd::task::{DisabledPreemptGuard, disable_preempt};
use shootdown::{
    CpuId, CpuMemory, Cpus, FreedTables, IpiRefused, LocalFlush, Platform, Shootdown, watch::Stall,
};
use shootdown_x86::apic::{self, Destination};
use shootdown_x86::irq::{self, IrqState};
use shootdown_x86::{ApicId, ApicMode, Features, IpiSender, Tlb, Vector};
use spin::Once;

use crate::machine;

/// Most CPUs.
pub const MAX_CPUS: usize = 8;

/// The engine of the machine.
pub static SHOOTDOWN: Shootdown<Ostd> = Shootdown::new(Ostd);

static MEMORY: [CpuMemory<Ostd>; MAX_CPUS] = [const { CpuMemory::new() }; MAX_CPUS];

/// What sends interrupts and drops translations, once it is known.
static MACHINE: Once<Machine> = Once::new();
/// The controllers of CPUs that are online.
static APIC_IDS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
/// A deliberate mistake.
static NO_FLUSH: AtomicBool = AtomicBool::new(false);

const NS_PER_S: u128 = 1_000_000_000;

#[derive(Debug)]
struct Machine {
    sender: IpiSender,
    vector: Vector,
    tlb: Tlb,
    /// Interrupts come as long as it lives.
    _line: IrqLine,
}

// SAFETY: the sender has the address of a page that every CPU has mapped; each reaches its own controller there.
unsafe impl Sync for Machine {}
// SAFETY: the same.
unsafe impl Send for Machine {}

/// Before anything else, on the boot CPU; `no_flush` makes `local_flush` do nothing.
pub fn prepare(no_flush: bool) {
    NO_FLUSH.store(no_flush, Ordering::Relaxed);
    SHOOTDOWN.attach(CpuId::new(0), &MEMORY);
    let features = Features::detect();
    let mut line = IrqLine::alloc().expect("a vector is free");
    line.on_active(|_| SHOOTDOWN.handle_ipi());
    MACHINE.call_once(|| Machine {
        sender: sender(&features),
        vector: Vector::new(line.num()).expect("OSTD gives out vectors from 32 on"),
        // SAFETY: 1. a kernel. 2. all CPUs are of one kind here, and OSTD does not switch PCIDs on.
        tlb: unsafe { Tlb::new(&features) },
        _line: line,
    });
}

/// OSTD takes x2APIC mode wherever it is there, and keeps its driver for itself.
fn sender(features: &Features) -> IpiSender {
    match ApicMode::detect(features) {
        // SAFETY: 1. a kernel. 2. every CPU that runs Rust of OSTD's has switched its controller to this mode.
        ApicMode::X2Apic => unsafe { IpiSender::new_x2apic() },
        ApicMode::XApic => {
            // SAFETY: a kernel.
            let physical = unsafe { apic::physical_base() } as usize;
            let page: Option<NonNull<u8>> = machine::find_device_page(physical);
            // SAFETY: 1. and 2. as above. 3. OSTD maps it uncacheable for its driver and never unmaps it. 4. OSTD sends with interrupts off.
            unsafe { IpiSender::new_xapic(page.expect("OSTD has mapped the local APIC")) }
        }
    }
}

/// Notes which controller this CPU has, and brings it online.
pub fn online() {
    let before = irq::save();
    // The initial identifiers (SDM vol. 2A, "CPUID"): OSTD does not change them.
    let id = match ApicMode::detect(&Features::detect()) {
        ApicMode::X2Apic => core::arch::x86_64::__cpuid_count(0xb, 0).edx,
        ApicMode::XApic => core::arch::x86_64::__cpuid(1).ebx >> 24,
    };
    APIC_IDS[this_cpu()].store(id, Ordering::Relaxed);
    SHOOTDOWN.online();
    // SAFETY: 1. from `save` above.
    unsafe { irq::restore(before) };
}

/// The number of this CPU.
pub fn this_cpu() -> usize {
    u32::from(ostd::cpu::CpuId::current_racy()) as usize
}

fn machine() -> &'static Machine {
    MACHINE.get().expect("`prepare` comes first")
}

/// The running machine.
#[derive(Debug)]
pub struct Ostd;

// SAFETY: duties as numbered at the trait.
// 1. GS leads to the CPU's own area, where its number is; OSTD moves tasks in its scheduler only, which its guard keeps out.
// 2. The interrupt flag, which is all that OSTD's own guard changes; it has no handlers of non-maskable interrupts.
// 3. INVLPG drops a page, CR3 all tables that are cached: INVLPG leaves some where EFER.TCE is set (APM vol. 2, "Extended Feature Enable
//    Register (EFER)"). CR3 and CR4.PGE do the rest (SDM vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches").
// 4. CR3 drops all that is not global, and no user page is.
// 5. `IpiSender` fences in x2APIC mode; in xAPIC mode the page is uncacheable.
// 6. A fixed interrupt stays pending in the IRR; OSTD calls the handler, then ends the interrupt: what comes in between is taken again.
// 7. Nothing is flushed remotely. 8. None of them is there. 9. A panic ends the machine. 10. PREFETCHW is a hint.
// 11. Every page table of OSTD has the kernel's top-level entries, all made at boot. 12. `spaces` is the only one that loads user roots; no tags.
unsafe impl Platform for Ostd {
    type Cpus = Cpus<MAX_CPUS>;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = IrqState;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        CpuId::new(this_cpu() as u32)
    }

    #[inline]
    fn irq_save(&self) -> IrqState {
        irq::save()
    }

    #[inline]
    unsafe fn irq_restore(&self, state: IrqState) {
        // SAFETY: 1. from `irq_save`, as the engine promises.
        unsafe { irq::restore(state) };
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
        let Machine { sender, vector, .. } = machine();
        let id = ApicId(APIC_IDS[target.index()].load(Ordering::Relaxed));
        sender
            .send(Destination::Physical(id), *vector)
            .map_err(|_| IpiRefused)
    }

    fn local_flush(&self, operation: LocalFlush) {
        if NO_FLUSH.load(Ordering::Relaxed) {
            return;
        }
        match operation {
            LocalFlush::Pages(range, freed) => {
                for address in range.iter_pages() {
                    TlbFlushOp::for_single(address).perform_on_current();
                }
                if freed == FreedTables::Yes {
                    TlbFlushOp::for_all().perform_on_current();
                }
            }
            LocalFlush::Space => TlbFlushOp::for_all().perform_on_current(),
            LocalFlush::All => machine().tlb.flush_all(),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. and 2. whoever made the `Root` has promised that.
        unsafe { machine().tlb.load_root(root) };
    }

    fn now_ns(&self) -> u64 {
        (u128::from(read_tsc()) * NS_PER_S / u128::from(tsc_freq())) as u64
    }

    fn on_stall(&self, stall: &Stall) {
        say!("ostd: {stall}");
        machine::end(false);
    }

    #[inline]
    fn prefetch_write(&self, address: usize) {
        shootdown_x86::cache::prefetch_write(address);
    }
}
