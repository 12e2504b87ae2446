//! A whole `Platform` for harts with or without ASIDs, for a kernel that does not preempt. It is generic over the ports, so that the tests run it (`tests/platform.rs`); a kernel has
//! `Machine<Hardware>`.
#![cfg_attr(target_os = "none", no_std)]

use shootdown::tags::{AsidSlot, TagEntries};
use shootdown::{CpuId, CpuSet, Cpus, FreedTables, IpiRefused, LocalFlush, Platform};
use shootdown_riscv::tlb::{self, Asid, Depth};
use shootdown_riscv::{Ipi, IrqState, Tlb, ipi, irq};

const CPUS: usize = 64;
/// Tags of each CPU, so many as the engine makes use of.
const TAGS: usize = 7;

/// What boot has found and made, and two functions of the kernel.
#[derive(Debug)]
pub struct Machine<P: ipi::Port + tlb::Port + irq::Port + Copy + Sync + 'static> {
    port: P,
    tlb: Tlb<P>,
    ipi: Ipi<'static, P, CPUS>,
    slots: [[AsidSlot; TAGS]; CPUS],
    current_cpu: fn() -> u32,
    now_ns: fn() -> u64,
}

impl<P: ipi::Port + tlb::Port + irq::Port + Copy + Sync> Machine<P> {
    /// The machine: interrupts by `ipi`, the number that a hart keeps in `tp` or behind it, `rdtime` in nanoseconds.
    ///
    /// # Safety
    ///
    /// 1. `port` acts on the hart that calls, as its traits say, and so do those of `tlb` and `ipi`.
    /// 2. `current_cpu` is the number of the hart that calls, below `CPUS`, and another one's on no other hart. Neither function unwinds.
    /// 3. `ipi` interrupts under each number the hart that has it; the handler calls [`Ipi::acknowledge`], or [`Ipi::claim`] until there is none, and then `handle_ipi`.
    /// 4. Roots are tables of the top level of `tlb`'s mode, which all have the kernel's half, with G in each of its leaves.
    /// 5. From `online` on nobody else writes `satp`, and one engine has this machine.
    pub const unsafe fn new(
        port: P,
        tlb: Tlb<P>,
        ipi: Ipi<'static, P, CPUS>,
        current_cpu: fn() -> u32,
        now_ns: fn() -> u64,
    ) -> Self {
        Self {
            port,
            tlb,
            ipi,
            slots: [const { [const { AsidSlot::new() }; TAGS] }; CPUS],
            current_cpu,
            now_ns,
        }
    }
}

// SAFETY: contracts as numbered at the trait, by the duties of `new`.
// 1. duty 2. 2. `sstatus.SIE`, by duty 1. 3. and 4. `Tlb`, whose fences order what this hart has seen, by duties 1 and 4. 5. `Ipi` fences, by duty 1. 6. interrupts stay pending; duty 3.
// 7. nothing is flushed remotely. 8. slots and tags never change. 9. nothing here unwinds: a send to a CPU that is not there is refused. 10. no hint. 11. duty 4. 12. duty 5.
unsafe impl<P: ipi::Port + tlb::Port + irq::Port + Copy + Sync> Platform for Machine<P> {
    type Cpus = Cpus<CPUS>;
    type IrqState = IrqState;
    /// Entries for pages of the kernel have G set.
    const KERNEL_PAGES_ARE_GLOBAL: bool = true;

    fn current_cpu(&self) -> CpuId {
        CpuId::new((self.current_cpu)())
    }
    fn irq_save(&self) -> IrqState {
        self.port.irq_save()
    }
    unsafe fn irq_restore(&self, before: IrqState) {
        // SAFETY: 1. of the matching `irq_save`, on this CPU.
        unsafe { self.port.irq_restore(before) };
    }
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}
    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        self.ipi.send(target.index()).map_err(|_| IpiRefused)
    }
    fn send_ipi_mask(&self, targets: CpuSet<'_>) -> Result<(), IpiRefused> {
        let sent = self.ipi.send_many(targets.words());
        sent.map_err(|_| IpiRefused)
    }
    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, freed) => {
                let depth = match freed {
                    FreedTables::No => Depth::Leaf,
                    FreedTables::Yes => Depth::Tables,
                };
                let stride = range.page_size().bytes();
                self.tlb
                    .flush_pages(range.start(), stride, range.page_count(), depth);
            }
            LocalFlush::Space => self.tlb.flush_loaded_tag(),
            LocalFlush::All => self.tlb.flush_all(),
        }
    }
    unsafe fn load_root(&self, root: u64) {
        // SAFETY: `Root::new` was told that the tables map the kernel, and stay.
        unsafe { self.tlb.load_root(root) };
    }
    fn asid_slots(&self, cpu: CpuId) -> &[AsidSlot] {
        let tags = TAGS.min(self.tlb.asid_bits().tags());
        &self.slots[cpu.index()][..tags]
    }
    unsafe fn load_tagged_root(&self, root: u64, asid: shootdown::tags::Asid, entries: TagEntries) {
        let entries = match entries {
            TagEntries::Keep => tlb::TagEntries::Keep,
            TagEntries::Drop => tlb::TagEntries::Drop,
        };
        // SAFETY: as `load_root`; the tag is 0 or one of the slots', and the engine knows what it holds.
        unsafe {
            self.tlb
                .load_tagged_root(root, Asid::new(asid.as_u16()), entries)
        };
    }
    fn region_of(&self, address: usize) -> usize {
        self.tlb.mode().top_index(address)
    }
    fn synchronise_here(&self) {
        self.port.synchronise();
    }
    fn now_ns(&self) -> u64 {
        (self.now_ns)()
    }
}

/// The same on real harts.
#[cfg(target_arch = "riscv64")]
pub type RealMachine = Machine<shootdown_riscv::Hardware>;
