//! A whole platform for a kernel on GICv3, with tags, broadcasts and no preemption. `tests/platform.rs` runs it on a recorder; on the bare target the ports are `Hardware` and `SystemRegisters`.
#![cfg_attr(target_os = "none", no_std)]

use shootdown::remote::{FlushRequest, RemoteFlush, RemoteTargets};
use shootdown::tags::{self, AsidSlot};
use shootdown::{CpuId, CpuSet, FlushRange, FreedTables, IpiRefused, LocalFlush, Platform};
use shootdown_arm64::tlb::{self, Depth, Pages, TagEntries};
use shootdown_arm64::{AffinityMap, Asid, Gic3, IrqState, Sgi, Tlb, gic, irq};

/// CPUs, and tags of each besides 0: at most `1 <<` what `Tlb::start` returned, less one, on the CPU with the fewest.
pub const CPUS: usize = 64;
pub const TAGS: usize = 255;

/// `current_cpu` and `now_ns`: TPIDR_EL1, say, and CNTVCT_EL0.
pub type OfKernel = (fn() -> u32, fn() -> u64);

/// What boot has made.
#[derive(Debug)]
pub struct Machine<T: tlb::Port, G: gic::Port, I: irq::Port> {
    tlb: Tlb<T>,
    gic: Gic3<G>,
    irq: I,
    map: &'static AffinityMap<CPUS>,
    sgi: Sgi,
    slots: &'static [[AsidSlot; TAGS]; CPUS],
    current_cpu: fn() -> u32,
    now_ns: fn() -> u64,
}

impl<T: tlb::Port, G: gic::Port, I: irq::Port> Machine<T, G, I> {
    /// # Safety
    ///
    /// 1. `tlb` is started on every CPU before that is online, and returned enough bits for [`TAGS`].
    /// 2. `irq` does on the CPU that calls what [`irq::Port`] says. (Those of `tlb` and `gic` do, by their constructors.)
    /// 3. `current_cpu` has the number of the calling CPU, below [`CPUS`]; `now_ns` does not run backwards.
    /// 4. `map` has every CPU before that is online. `sgi` is enabled there, and its handler calls `handle_ipi` behind the read of ICC_IAR1_EL1 and a DSB SY.
    /// 5. The kernel is behind TTBR1_EL1, its pages are global, and nobody else writes TTBR0_EL1 or TCR_EL1.
    /// 6. The kernel is not preempted, and a panic ends the machine.
    /// 7. `slots` are no other engine's.
    pub const unsafe fn new(
        tlb: Tlb<T>,
        gic: Gic3<G>,
        irq: I,
        (map, sgi): (&'static AffinityMap<CPUS>, Sgi),
        slots: &'static [[AsidSlot; TAGS]; CPUS],
        (current_cpu, now_ns): OfKernel,
    ) -> Self {
        Self {
            tlb,
            gic,
            irq,
            map,
            sgi,
            slots,
            current_cpu,
            now_ns,
        }
    }
}

fn pages(range: FlushRange) -> Pages {
    Pages {
        start: range.start(),
        stride_bytes: range.page_size().bytes(),
        count: range.page_count(),
    }
}

fn depth(freed: FreedTables) -> Depth {
    match freed {
        FreedTables::No => Depth::Leaf,
        FreedTables::Yes => Depth::Tables,
    }
}

// SAFETY: contracts as numbered at the trait, duties at `new`. 1. duty 3. 2. DAIF, by duty 2. 3., 4., 7. `Tlb`, whose barriers are part of it, by duties 1 and 7; a broadcast is by address under all tags, or of everything. 5. `Gic3` has a
// DSB before; duty 4. 6. SGIs stay pending, and are acknowledged, which takes read and DSB, before their handler calls `handle_ipi`: duty 4. 8. nothing changes. 9. duty 6. 10. nothing is prefetched. 11., 12. duty 5.
unsafe impl<T: tlb::Port + Sync, G: gic::Port + Sync, I: irq::Port + Sync> Platform
    for Machine<T, G, I>
{
    type Cpus = shootdown::Cpus<CPUS>;
    type IrqState = IrqState;
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;
    fn current_cpu(&self) -> CpuId {
        CpuId::new((self.current_cpu)())
    }
    fn irq_save(&self) -> IrqState {
        self.irq.save()
    }
    unsafe fn irq_restore(&self, before: IrqState) {
        // SAFETY: 1. of the matching `irq_save`, on this CPU.
        unsafe { self.irq.restore(before) };
    }
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        let sent = self.gic.send(self.map, target.index(), self.sgi);
        sent.map_err(|_| IpiRefused)
    }
    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        let sent = self.gic.send_many(self.map, targets.words(), self.sgi);
        sent.map_err(|_| IpiRefused)
    }
    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, freed) => self.tlb.flush_pages(pages(range), depth(freed)),
            LocalFlush::Space => self.tlb.flush_space(),
            LocalFlush::All => self.tlb.flush_all(),
        }
    }
    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. the engine's. 2. `Root::new` was told that the tables stay. 3. and 4. tag 0 is dropped.
        unsafe { self.tlb.load_root(root) };
    }
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &self.slots[cpu.index()]
    }
    unsafe fn load_tagged_root(&self, root: u64, asid: tags::Asid, entries: tags::TagEntries) {
        let entries = match entries {
            tags::TagEntries::Keep => TagEntries::Keep,
            tags::TagEntries::Drop => TagEntries::Drop,
        };
        // SAFETY: 1. and 2. as `load_root`. 3. there are no more slots. 4. the engine's promise.
        unsafe {
            self.tlb
                .load_tagged_root(root, Asid::new(asid.as_u16()), entries)
        };
    }
    fn flushes_remotely(&self) -> bool {
        self.tlb.broadcast().is_some()
    }
    fn flush_remote(&self, _: &mut RemoteTargets<'_>, request: &FlushRequest) -> RemoteFlush {
        let Some(broadcast) = self.tlb.broadcast() else {
            return RemoteFlush::Done;
        };
        match request.ranges().any(|range| range == FlushRange::WHOLE) {
            true => broadcast.begin_all(),
            false => broadcast.begin(
                None,
                request.ranges().map(pages),
                depth(request.freed_tables()),
            ),
        }
        RemoteFlush::Unfinished
    }
    fn finish_remote(&self, targets: &mut RemoteTargets<'_>, _: &FlushRequest) {
        if let Some(broadcast) = self.tlb.broadcast() {
            broadcast.finish();
            targets.take_all();
        }
    }
    fn synchronise_here(&self) {
        self.tlb.synchronise();
    }
    fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}
