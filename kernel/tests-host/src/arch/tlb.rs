//! Shim of `arch::tlb`: the adapter for x86 on a processor that has what a test says, and whose TLB remembers which PCID has what.

use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use shootdown::{CpuId, tags::AsidSlot};
use shootdown_x86::features::FeatureFlags;
use shootdown_x86::irq::IrqState;
use shootdown_x86::tlb::{InvpcidKind, Port};
use shootdown_x86::{Features, Tlb};

use crate::platform::PLAYED_CPUS;

const PAGE_SHIFT: u32 = 12;
const PCID: u64 = (1 << 12) - 1;
const KEEPS: u64 = 1 << 63;
/// PGE and PCIDE.
const CR4: u64 = 1 << 7 | 1 << 17;

/// What a TLB has, by PCID and page, and CR3.
#[derive(Debug, Default)]
pub struct Processor {
    cr3: Cell<u64>,
    cached: RefCell<BTreeMap<(u64, usize), u64>>,
}

thread_local! {
    static PROCESSOR: &'static Processor = Box::leak(Box::default());
    static TLB: Cell<Option<&'static Tlb<&'static Processor>>> = const { Cell::new(None) };
}

/// The processor of the thread.
pub fn processor() -> &'static Processor {
    PROCESSOR.with(|processor| *processor)
}

/// From now on the thread's has PCIDs, and these features. Before it is online.
pub fn use_pcids(flags: FeatureFlags) {
    // SAFETY: nothing translates through this processor. The same, and PCIDE is set.
    let tlb = unsafe { new(flags).with_pcids() };
    TLB.set(Some(Box::leak(Box::new(tlb))));
}

fn new(flags: FeatureFlags) -> Tlb<&'static Processor> {
    // SAFETY: as above.
    unsafe { Tlb::with_port(processor(), &Features::with_flags(flags)) }
}

/// As in the kernel.
pub fn local() -> &'static Tlb<&'static Processor> {
    TLB.get().unwrap_or_else(|| {
        let tlb: &Tlb<_> = Box::leak(Box::new(new(FeatureFlags::empty())));
        TLB.set(Some(tlb));
        tlb
    })
}

/// As in the kernel.
pub fn slots(cpu: CpuId) -> &'static [AsidSlot] {
    static SLOTS: [[AsidSlot; 4]; PLAYED_CPUS as usize] =
        [const { [const { AsidSlot::new() }; 4] }; PLAYED_CPUS as usize];
    match local().has_pcids() {
        true => &SLOTS[cpu.index()],
        false => &[],
    }
}

impl Processor {
    /// Translates a page, which is in the page tables as `now`, unless it is cached under the loaded PCID.
    pub fn translate(&self, address: usize, now: u64) -> u64 {
        let key = (self.cr3.get() & PCID, address >> PAGE_SHIFT);
        *self.cached.borrow_mut().entry(key).or_insert(now)
    }

    /// Writes CR3, as code between kernel and user mode does.
    pub fn load(&self, value: u64) {
        self.cr3.set(value & !KEEPS);
        if value & KEEPS == 0 {
            self.keep(|(pcid, _)| pcid != value & PCID);
        }
    }

    fn keep(&self, keeps: impl Fn((u64, usize)) -> bool) {
        self.cached.borrow_mut().retain(|&key, _| keeps(key));
    }
}

impl Port for &Processor {
    fn invlpg(&self, address: usize) {
        self.keep(|key| key != (self.cr3.get() & PCID, address >> PAGE_SHIFT));
    }

    unsafe fn invpcid(&self, kind: InvpcidKind) {
        self.keep(|(pcid, page)| match kind {
            InvpcidKind::Page(of, address) => {
                (pcid, page) != (of.as_u16().into(), address >> PAGE_SHIFT)
            }
            InvpcidKind::Context(of) => pcid != u64::from(of.as_u16()),
            InvpcidKind::All | InvpcidKind::AllNonGlobal => false,
        });
    }

    fn read_cr3(&self) -> u64 {
        self.cr3.get()
    }

    unsafe fn write_cr3(&self, value: u64) {
        self.load(value);
    }

    fn read_cr4(&self) -> u64 {
        CR4
    }

    unsafe fn write_cr4(&self, _: u64) {
        self.keep(|_| false);
    }

    fn irq_save(&self) -> IrqState {
        IrqState::Disabled
    }

    unsafe fn irq_restore(&self, _: IrqState) {}
}
