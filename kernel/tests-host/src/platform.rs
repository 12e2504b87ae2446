//! Shim of the platform: flushes are counted, and seen by [`witness`]; an interrupt comes when somebody waits for it.

use crate::arch::{percpu, top};
use crate::cpus::Cpus;
use crate::mm::layout::PhysAddr;
use crate::mm::nested;
use crate::preempt;
use crate::witness;
#[cfg(feature = "isolation")]
use crate::{
    arch::{cr3, tlb},
    isolation,
};
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicUsize, Ordering};
use shootdown::{
    CpuId, CpuMemory, FlushRange, IpiRefused, LocalFlush, Platform, Shootdown,
    remote::FlushRequest, secondary::SecondaryFlush, tags::AsidSlot,
};
#[cfg(feature = "isolation")]
use shootdown::{
    FreedTables,
    tags::{Asid, TagEntries},
};
#[cfg(feature = "isolation")]
use shootdown_x86::tlb as x86_tlb;

/// Those that threads play.
pub const PLAYED_CPUS: u32 = 4;

/// The kernel's engine, on a platform that counts its flushes.
pub static SHOOTDOWN: Shootdown<KernelPlatform> = Shootdown::new(KernelPlatform);

/// What the engine keeps for each of them.
pub static MEMORY: [CpuMemory<KernelPlatform>; PLAYED_CPUS as usize] =
    [const { CpuMemory::new() }; PLAYED_CPUS as usize];

/// A machine whose CPUs are played by whoever needs them.
#[derive(Debug)]
pub struct KernelPlatform;

/// What they remember of tags of guests, of which none runs.
static GUEST_SLOTS: [[AsidSlot; 4]; PLAYED_CPUS as usize] =
    [const { [const { AsidSlot::new() }; 4] }; PLAYED_CPUS as usize];

static FLUSHES: AtomicUsize = AtomicUsize::new(0);

/// How many local flushes there were so far, of all CPUs.
pub fn flushes() -> usize {
    FLUSHES.load(Ordering::Relaxed)
}

// SAFETY: 1. a thread is one CPU until it says otherwise, which it does outside the engine only, but to take interrupts while it
// waits. 2. those are the only interrupts. 3. 4. nobody translates through these tables; the witness's model of TLBs
// drops what it is told to. 5. 6. an interrupt is pending until somebody waits, who takes it on that CPU's behalf. 7. to 12. nothing
// is remote or prefetched, tags are those of a processor that a test makes, and nothing panics but a test that fails.
unsafe impl Platform for KernelPlatform {
    type Cpus = Cpus;
    const CONFIG: shootdown::Config = shootdown::Config::FULL;
    type IrqState = ();

    fn current_cpu(&self) -> CpuId {
        percpu::cpu_id()
    }

    fn irq_save(&self) {}

    unsafe fn irq_restore(&self, (): ()) {}

    fn preempt_disable(&self) {
        preempt::disable();
    }

    unsafe fn preempt_enable(&self) {
        preempt::enable();
    }

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        witness::interrupt(target);
        Ok(())
    }

    fn local_flush(&self, operation: LocalFlush) {
        FLUSHES.fetch_add(1, Ordering::Relaxed);
        witness::flushing(percpu::cpu_id(), operation);
    }

    unsafe fn load_root(&self, root: u64) {
        witness::loading(percpu::cpu_id(), root);
    }

    #[cfg(feature = "isolation")]
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        tlb::slots(cpu)
    }

    #[cfg(feature = "isolation")]
    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        cr3::note_root(PhysAddr::new(root), asid);
        let entries = match entries {
            TagEntries::Keep => x86_tlb::TagEntries::Keep,
            TagEntries::Drop => x86_tlb::TagEntries::Drop,
        };
        let pcid = cr3::pair(asid).kernel();
        // SAFETY: 1. to 3. as the engine says.
        unsafe { tlb::local().load_tagged_root(root, pcid, entries) };
        witness::loading(percpu::cpu_id(), root);
    }

    #[cfg(feature = "isolation")]
    fn splits_tags(&self) -> bool {
        true
    }

    #[cfg(feature = "isolation")]
    fn flush_user_side(&self, asid: Asid, range: FlushRange, freed: FreedTables) -> bool {
        let depth = match freed {
            FreedTables::No => x86_tlb::Depth::Leaf,
            FreedTables::Yes => x86_tlb::Depth::Tables,
        };
        isolation::flush_user_side(asid, range, depth)
    }

    fn guest_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        &GUEST_SLOTS[cpu.index()]
    }

    fn begin_secondary(
        &self,
        listener: u64,
        request: &FlushRequest,
        before: Option<NonZeroU64>,
    ) -> Option<NonZeroU64> {
        // SAFETY: 1. the engine says so.
        unsafe { nested::begin_notice(listener, request, before) }
    }

    fn finish_secondary(&self, token: NonZeroU64) -> SecondaryFlush {
        nested::finish_notice(token.get());
        SecondaryFlush::Done
    }

    fn now_ns(&self) -> u64 {
        0
    }

    fn relax(&self) {
        witness::waiting();
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
}
