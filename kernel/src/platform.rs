//! What the engine needs from this kernel, and the one engine of the machine.

use core::num::NonZeroU64;
use core::ops::Range;

use shootdown::{
    CpuId, CpuMemory, CpuSet, FlushRange, FreedTables, IpiRefused, LocalFlush, Platform, Shootdown,
    remote::{FlushRequest, RemoteFlush, RemoteTargets},
    secondary::SecondaryFlush,
    tags::{Asid, AsidSlot, TagEntries},
    watch::{Stall, TraceEvent},
};
use shootdown_x86::apic::Destination;
use shootdown_x86::{Pcid, SendError, Vector, tlb as x86_tlb};
use spin::Once;

use crate::addr::{PAGE_BYTES, PhysAddr};
#[cfg(feature = "isolation")]
use crate::arch::cr3;
use crate::arch::stacks::Stacks;
use crate::arch::trap::vectors;
use crate::arch::{apic, paging, percpu, steal, svm, tlb, top, tsc};
use crate::cpus::{Cpus, MAX_CPUS};
use crate::irq::{self, IrqState};
use crate::preempt;

/// The engine type of this kernel.
pub type Engine = Shootdown<KernelPlatform>;

/// Cross-CPU calls and TLB shootdown for the whole kernel.
pub static SHOOTDOWN: Engine = Shootdown::new(KernelPlatform);

/// What the engine keeps for each CPU.
static MEMORY: [CpuMemory<KernelPlatform>; MAX_CPUS] = [const { CpuMemory::new() }; MAX_CPUS];

/// Whom the engine's watchdog tells.
pub static ON_STALL: Once<fn(&Stall)> = Once::new();

/// What keeps translations of spaces besides CPUs, and how it is told of a flush: as [`Platform::begin_secondary`] and [`Platform::finish_secondary`] say, but that `finish`
/// waits.
#[derive(Clone, Copy, Debug)]
pub struct SecondaryTlb {
    /// Begins to drop what the request names.
    pub begin: unsafe fn(
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64>,
    /// Returns when it is dropped.
    pub finish: fn(token: u64),
}

/// In self-tests: whether it takes an NMI to end guest mode on that CPU, which is in guest mode.
#[cfg(feature = "selftest")]
pub static TAKES_NMI: Once<fn(CpuId) -> bool> = Once::new();

/// Nested tables of virtual machines.
pub static SECONDARY: Once<SecondaryTlb> = Once::new();

/// Gives these CPUs what the engine keeps for them: before they use it in any way, and they do as they print, or spin for a lock.
/// Boot CPU, once for each.
pub fn attach(cpus: Range<usize>) {
    SHOOTDOWN.attach(CpuId::new(cpus.start as u32), &MEMORY[cpus]);
}

/// Ends the boot unless all roots map what other CPUs are lent, see [`paging`]. Boot CPU, when the kernel's root is loaded.
pub fn check_lent(cpus: usize) {
    let memory = MEMORY[..cpus].as_ptr_range();
    let pages = (memory.start.addr()..memory.end.addr()).step_by(PAGE_BYTES);
    let stacks = (0..cpus).flat_map(|cpu| Stacks::of(cpu).pages());
    for address in pages.chain([memory.end.addr() - 1]).chain(stacks) {
        assert!(
            paging::is_mapped(address),
            "{address:#x} is not in every root"
        );
    }
}

/// The running machine, as the engine sees it.
#[derive(Debug)]
pub struct KernelPlatform;

fn refused(error: SendError) -> IpiRefused {
    match error {
        SendError::Busy => IpiRefused,
        // Only CPUs that came online are targets, and those are in the map.
        SendError::Unmapped(cpu) => unreachable!("CPU {cpu} is online but not in the APIC map"),
    }
}

/// Sends `vector` to one CPU.
pub fn send_to(target: CpuId, vector: Vector) -> Result<(), IpiRefused> {
    let Some(id) = apic::MAP.id(target.index()) else {
        return Err(refused(SendError::Unmapped(target.index())));
    };
    apic::local()
        .send(Destination::Physical(id), vector)
        .map_err(refused)
}

/// Sends `vector` to all of them, in as few messages as the map allows.
pub fn send_to_mask(targets: CpuSet<'_>, vector: Vector) -> Result<(), IpiRefused> {
    let initiator = percpu::cpu_id().index();
    apic::local()
        .send_many(&apic::MAP, initiator, targets.words(), vector)
        .map_err(refused)
}

fn depth(freed: FreedTables) -> x86_tlb::Depth {
    match freed {
        FreedTables::No => x86_tlb::Depth::Leaf,
        FreedTables::Yes => x86_tlb::Depth::Tables,
    }
}

// SAFETY: duties as numbered at the trait.
// 1. GS holds the CPU's own number, and nothing changes it; threads move only with interrupts on.
// 2. CLI; NMI and machine-check handlers use nothing of the engine but what leaves and enters quiet.
// 3. INVLPG drops one page; `flush_pages` knows what else it takes to drop all paging-structure caches of the loaded tag; CR3 and
//    INVPCID or CR4.PGE do the rest (SDM vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches").
// 4. CR3 without PCIDs drops all that is not global, and user translations never are; with them
//    it selects the tag, and drops what that holds unless bit 63 is set. The slots are this kernel's
//    one engine's; the processor has as many tags, and `SvmTags` as many for guests. Nothing is mapped where windows are but by private roots.
// 5. `LocalApic` fences before the ICR in x2APIC mode; in xAPIC mode the page is uncacheable.
// 6. A fixed interrupt stays pending in the target's IRR; the vector's handler ends the interrupt,
//    then calls `handle_ipi`.
// 7. A hypervisor that takes a request from a record drops all that the virtual CPU has cached before it runs again. Nested tables have lost what was named when
//    `begin` returns, and guests are flushed when `finish` does. 8. Tags are split in kernels that are built so (`isolation`), and in no others; boot decides once whether there are slots, before any CPU is online.
// 9. A panic ends the machine. 10. PREFETCHW is a hint, and where a processor does not know it, it is a NOP.
// 11. Every root has the kernel's half, which never changes after boot: the image, the direct map with the heap, all stacks. 12. A CPU writes CR3 by itself
//     before it comes online only; VMRUN puts back what it found. `CallsPlatform`'s engine loads nothing.
unsafe impl Platform for KernelPlatform {
    type Cpus = Cpus;
    /// CPUs die, or are [quiet](crate::quiet), in self-tests only: elsewhere each call and flush would look whether one is.
    const CONFIG: shootdown::Config = shootdown::Config::FULL
        .with_deaths(cfg!(feature = "selftest"))
        .with_quiet(cfg!(feature = "selftest"));
    type IrqState = IrqState;

    #[inline]
    fn current_cpu(&self) -> CpuId {
        percpu::cpu_id()
    }

    #[inline]
    #[track_caller]
    fn irq_save(&self) -> IrqState {
        irq::save()
    }

    #[inline]
    unsafe fn irq_restore(&self, state: IrqState) {
        irq::restore(state);
    }

    #[inline]
    #[track_caller]
    fn preempt_disable(&self) {
        preempt::disable();
    }

    #[inline]
    unsafe fn preempt_enable(&self) {
        preempt::enable();
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        #[cfg(feature = "selftest")]
        if TAKES_NMI.get().is_some_and(|takes| takes(target)) {
            return apic::send_nmi(target).map_err(refused);
        }
        send_to(target, vectors::SHOOTDOWN)
    }

    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        #[cfg(feature = "selftest")]
        if TAKES_NMI.is_completed() {
            return targets.iter().try_for_each(|target| self.send_ipi(target));
        }
        send_to_mask(targets, vectors::SHOOTDOWN)
    }

    fn synchronise_here(&self) {
        shootdown_x86::cache::synchronise();
    }

    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, freed) => {
                let (stride, pages) = (range.page_size().bytes(), range.page_count());
                tlb::local().flush_pages(range.start(), stride, pages, depth(freed));
            }
            LocalFlush::Space => tlb::local().flush_non_global(),
            LocalFlush::All => tlb::local().flush_all(),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. the same.
        unsafe { self.load_tagged_root(root, Asid::UNTAGGED, TagEntries::Drop) };
    }

    /// `paging` maps the kernel's part with the global bit, the local APIC's page and the torture's pages too; INVLPG drops such a
    /// translation under every tag (SDM vol. 3A, "Operations that Invalidate TLBs and Paging-Structure Caches"), and where an
    /// erratum says otherwise, `tlb::choose` uses no tags. With isolation nothing is global.
    const KERNEL_PAGES_ARE_GLOBAL: bool = !cfg!(feature = "isolation");

    #[inline]
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        tlb::slots(cpu)
    }

    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let pcid = Pcid::new(asid.as_u16()).expect("there are fewer slots than PCIDs");
        let entries = match entries {
            TagEntries::Keep => x86_tlb::TagEntries::Keep,
            TagEntries::Drop => x86_tlb::TagEntries::Drop,
        };
        #[cfg(feature = "isolation")]
        cr3::note_root(PhysAddr::new(root), asid);
        // SAFETY: 1. every root of this kernel has the kernel's half. 2. roots are frames. 3. the
        // engine compared generations.
        unsafe { tlb::local().load_tagged_root(root, pcid, entries) };
    }

    #[cfg(feature = "isolation")]
    fn splits_tags(&self) -> bool {
        true
    }

    #[cfg(feature = "isolation")]
    fn flush_user_side(&self, asid: Asid, range: FlushRange, freed: FreedTables) -> bool {
        crate::isolation::flush_user_side(asid, range, depth(freed))
    }

    #[inline]
    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        svm::slots(cpu)
    }

    #[inline]
    fn flushes_remotely(&self) -> bool {
        steal::is_used()
    }

    fn flush_remote(&self, targets: &mut RemoteTargets<'_>, _: &FlushRequest) -> RemoteFlush {
        targets.take_if(steal::flush_before_entry);
        RemoteFlush::Done
    }

    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        let told = SECONDARY.get()?;
        // SAFETY: 1. the engine says so.
        unsafe { (told.begin)(listener, request, before) }
    }

    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        if let Some(told) = SECONDARY.get() {
            (told.finish)(token.get());
        }
        SecondaryFlush::Done
    }

    fn now_ns(&self) -> u64 {
        tsc::now_ns()
    }

    fn on_stall(&self, stall: &Stall) {
        if let Some(report) = ON_STALL.get() {
            report(stall);
        }
    }

    #[inline]
    fn on_trace(&self, event: TraceEvent) {
        match event {
            TraceEvent::WaitStarted { .. } => crate::latency::wait_started(),
            TraceEvent::WaitFinished { .. } => crate::latency::wait_finished(),
            _ => {}
        }
    }

    const HAS_WINDOWS: bool = true;

    unsafe fn copy_shared_top(&self, shared: u64, private: u64, range: FlushRange) {
        let [shared, private] = [shared, private].map(PhysAddr::new);
        top::copy_top(shared, private, range);
    }

    fn region_of(&self, address: usize) -> usize {
        top::region_of(address)
    }

    unsafe fn clear_top(&self, private: u64, range: FlushRange) {
        top::clear_top(PhysAddr::new(private), range);
    }

    #[inline]
    fn prefetch_write(&self, address: usize) {
        shootdown_x86::cache::prefetch_write(address);
    }
}
