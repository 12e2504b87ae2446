//! A whole platform for a kernel with tags and without preemption, whose code and stacks are in a direct-mapped window. `tests/platform.rs` runs it on a recorder; on the bare target the ports are `Hardware`.
#![cfg_attr(target_os = "none", no_std)]

use shootdown::tags::{self, AsidSlot};
use shootdown::{CpuId, CpuSet, IpiRefused, LocalFlush, Platform};
use shootdown_loongarch::tlb::{Asid, PageSize, Pages, TagEntries};
use shootdown_loongarch::{CoreId, Ipi, IrqState, Tlb, Vector, ipi, tlb};

/// CPUs, and tags of each besides 0.
pub const CPUS: usize = 64;
pub const TAGS: usize = 32;
/// What interrupts for the engine.
pub const SHOOTDOWN: Vector = Vector::new(1).unwrap();

/// What boot has made.
#[derive(Debug)]
pub struct Machine<I: ipi::Port, T: tlb::Port> {
    ipi: Ipi<I>,
    tlb: Tlb<T>,
    slots: &'static [[AsidSlot; TAGS]; CPUS],
    current_core: fn() -> CoreId,
    now_ns: fn() -> u64,
}

fn core_of(cpu: CpuId) -> CoreId {
    CoreId::new(cpu.as_u32() as u16).expect("no more than 64")
}

impl<I: ipi::Port, T: tlb::Port> Machine<I, T> {
    /// # Safety
    ///
    /// 1. `current_core` is CSR.CPUID of the CPU that calls, below [`CPUS`]; a CPU is online only after it has run [`prepare`](Self::prepare).
    /// 2. Nobody else uses `slots`, or vector [`SHOOTDOWN`].
    /// 3. Entries for pages of the kernel have G, both of a pair; all roots have the same root in CSR.PGDH.
    /// 4. The handler of ESTAT.IS bit 12 calls [`on_ipi`](Self::on_ipi), and a panic ends the machine.
    /// 5. `now_ns` never goes back.
    pub const unsafe fn new(
        ipi: Ipi<I>,
        tlb: Tlb<T>,
        slots: &'static [[AsidSlot; TAGS]; CPUS],
        current_core: fn() -> CoreId,
        now_ns: fn() -> u64,
    ) -> Self {
        Self {
            ipi,
            tlb,
            slots,
            current_core,
            now_ns,
        }
    }

    /// Makes this CPU ready for the engine, behind `Walk::apply`.
    ///
    /// # Safety
    ///
    /// 1. The CPU is not online, and interrupts are off.
    /// 2. `root` is one of the kernel's, which stays.
    pub unsafe fn prepare(&self, root: u64) {
        // SAFETY: 1. and 2. duty 1.
        unsafe { self.tlb.start() };
        // SAFETY: 1. duty 2. 2. direct-mapped.
        unsafe { self.tlb.load_root(root) };
        // SAFETY: 1. duty 1.
        unsafe { self.ipi.enable(SHOOTDOWN.mask()) };
    }

    /// In the handler of ESTAT.IS bit 12: acknowledged before the engine looks (contract 6).
    ///
    /// # Safety
    ///
    /// 1. `handle_ipi` is the engine's of this machine.
    pub unsafe fn on_ipi(&self, handle_ipi: impl FnOnce()) {
        // SAFETY: 1. there is no other vector, and duty 1.
        if unsafe { self.ipi.acknowledge() } & SHOOTDOWN.mask() != 0 {
            handle_ipi();
        }
    }
}

// SAFETY: contracts as numbered at the trait. 1. duty 1 of `new`. 2. CRMD.IE. 3. and 4. `Tlb`, with no root but those that the engine loads. 5. `Ipi` has the barrier. 6. `on_ipi`, by duty 4 of `new`. 7. nothing is flushed remotely.
// 8. slots and tags never change. 9. duty 4 of `new`. 10. nothing is prefetched. 11. direct-mapped, or behind CSR.PGDH. 12. nobody else writes ASID and PGDL, by the duties of `Tlb::with_port`.
unsafe impl<I: ipi::Port + Sync, T: tlb::Port + Sync> Platform for Machine<I, T> {
    type Cpus = shootdown::Cpus<CPUS>;
    type IrqState = IrqState;
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;
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
    unsafe fn load_tagged_root(&self, root: u64, asid: tags::Asid, entries: tags::TagEntries) {
        let asid = Asid::new(asid.as_u16()).expect("no more than 32");
        let entries = match entries {
            tags::TagEntries::Keep => TagEntries::Keep,
            tags::TagEntries::Drop => TagEntries::Drop,
        };
        // SAFETY: 1. and 2. as `load_root`. 3. the engine says so. 4. one of `asid_slots`, or none.
        unsafe { self.tlb.load_tagged_root(root, asid, entries) };
    }
    #[cfg(target_arch = "loongarch64")]
    fn synchronise_here(&self) {
        shootdown_loongarch::barrier::instructions();
    }
    fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}

/// The same on real CPUs.
#[cfg(target_arch = "loongarch64")]
pub type RealMachine = Machine<ipi::Hardware, tlb::Hardware>;
