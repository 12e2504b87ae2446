//! A whole platform for a kernel without preemption whose code and stacks are in a direct-mapped window. On the machine `I` is `ipi::Hardware` and `T` is `tlb::Hardware`.
#![cfg_attr(target_os = "none", no_std)]

use shootdown::tags::{Asid, AsidSlot, TagEntries};
use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform};
use shootdown_loongarch::irq::IrqState;
use shootdown_loongarch::tlb::{PageSize, Pages};
use shootdown_loongarch::{CoreId, Ipi, Tlb, Vector, ipi, tlb};

/// CPUs, and tags of each.
pub const CPUS: usize = 64;
pub const TAGS: usize = 32;
const SHOOTDOWN: Vector = Vector::new(1).unwrap();

/// What boot has made.
#[derive(Debug)]
pub struct Machine<I: ipi::Port, T: tlb::Port> {
    pub ipi: Ipi<I>,
    pub tlb: Tlb<T>,
    pub slots: &'static [[AsidSlot; TAGS]; CPUS],
    /// The kernel's own: CSR.CPUID, and RDTIME.D in nanoseconds.
    pub current_core: fn() -> CoreId,
    pub now_ns: fn() -> u64,
}

fn core_of(cpu: CpuId) -> CoreId {
    CoreId::new(cpu.as_u32() as u16).expect("no more than 64")
}

impl<I: ipi::Port, T: tlb::Port> Machine<I, T> {
    /// In the handler of ESTAT.IS bit 12: acknowledged before the engine looks (contract 6).
    pub fn on_ipi(&self, engine: impl FnOnce()) {
        if self.ipi.acknowledge() & SHOOTDOWN.mask() != 0 {
            engine(); // `handle_ipi`
        }
    }
}

// SAFETY: contracts as numbered at the trait.
// 1. CSR.CPUID is the number of the CPU. 2. CRMD.IE. 3. and 4. `Tlb`, with no root but those that the engine loads. 5. `Ipi` has the barrier. 6. `on_ipi`. 7. not used. 8. `slots` has always the same
// number. 9. a panic ends the machine. 10. not used. 11. direct-mapped. 12. nobody else writes ASID and PGDL.
unsafe impl<I: ipi::Port + Sync, T: tlb::Port + Sync> Platform for Machine<I, T> {
    type Cpus = shootdown::Cpus<CPUS>;
    type IrqState = IrqState;
    fn current_cpu(&self) -> CpuId {
        CpuId::new((self.current_core)().as_u16().into())
    }
    fn irq_save(&self) -> IrqState {
        self.tlb.port().irq_save()
    }
    unsafe fn irq_restore(&self, before: IrqState) {
        // SAFETY: 1. of the matching `irq_save`, on this CPU.
        unsafe { self.tlb.port().irq_restore(before) };
    }
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.ipi.send(core_of(target), SHOOTDOWN);
        Ok(())
    }
    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        self.ipi.send_many(targets.iter().map(core_of), SHOOTDOWN);
        Ok(())
    }
    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, _) => {
                let shift = range.page_size().bytes().trailing_zeros() as u8;
                let size = PageSize::from_shift(shift).expect("a page size");
                let pages = Pages::new(range.start(), size, range.page_count());
                self.tlb.flush_pages(pages);
            }
            LocalFlush::Space => self.tlb.flush_space(),
            LocalFlush::All => self.tlb.flush_all(),
        }
    }
    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. `Root::new` was told that the tables stay. 2. direct-mapped.
        unsafe { self.tlb.load_root(root) };
    }
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        let count = usize::from(self.tlb.width().slots()).min(TAGS);
        &self.slots[cpu.index()][..count]
    }
    unsafe fn load_tagged_root(&self, root: u64, asid: Asid, entries: TagEntries) {
        let asid = tlb::Asid::new(asid.as_u16()).expect("no more than 32");
        let entries = match entries {
            TagEntries::Keep => tlb::TagEntries::Keep,
            TagEntries::Drop => tlb::TagEntries::Drop,
        };
        // SAFETY: 1. and 2. as above. 3. the engine says so. 4. one of `asid_slots`, or none.
        unsafe { self.tlb.load_tagged_root(root, asid, entries) };
    }
    fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}
