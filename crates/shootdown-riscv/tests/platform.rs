//! The engine on the platform of the example, whose harts are emulated.

#[path = "../examples/platform.rs"]
mod example;

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use example::Machine;
use shootdown::{
    AddressSpace, CpuId, CpuMemory, FlushBatch, KernelRoot, PageSize, Root, Shootdown,
};
use shootdown_riscv::ipi::{SbiArguments, SbiReturn};
use shootdown_riscv::tlb::Fence;
use shootdown_riscv::{
    AsidBits, Features, HartMap, Ipi, IrqState, Mode, Processor, Tlb, Way, ipi, irq, tlb,
};

static SATP: AtomicU64 = AtomicU64::new(8 << 60 | 0x80);
static FENCES: Mutex<Vec<Fence>> = Mutex::new(Vec::new());
static HARTS: HartMap<64> = HartMap::new();

#[derive(Clone, Copy, Debug)]
struct Emulated;

impl tlb::Port for Emulated {
    fn sfence_vma(&self, what: Fence) {
        FENCES.lock().unwrap().push(what);
    }
    unsafe fn sfence_w_inval(&self) {}
    unsafe fn sinval_vma(&self, _: usize) {}
    unsafe fn sfence_inval_ir(&self) {}
    fn read_satp(&self) -> u64 {
        SATP.load(Ordering::Relaxed)
    }
    unsafe fn write_satp(&self, value: u64) {
        SATP.store(value, Ordering::Relaxed);
    }
}

impl ipi::Port for Emulated {
    fn fence(&self) {}
    unsafe fn sbi_call(&self, _: u64, _: u64, _: SbiArguments) -> SbiReturn {
        SbiReturn { error: 0, value: 0 }
    }
    unsafe fn write_word(&self, _: NonNull<u32>, _: u32) {}
    fn clear_software_interrupt(&self) {}
    unsafe fn claim_external_interrupt(&self) -> u64 {
        0
    }
}

impl irq::Port for Emulated {
    fn irq_save(&self) -> IrqState {
        IrqState::Enabled
    }
    unsafe fn irq_restore(&self, _: IrqState) {}
    fn wait_for_interrupt(&self) {}
    fn synchronise(&self) {}
}

static MEMORY: [CpuMemory<Machine<Emulated>>; 64] = [const { CpuMemory::new() }; 64];

fn fences() -> Vec<Fence> {
    std::mem::take(&mut FENCES.lock().unwrap())
}

#[test]
fn the_engine_loads_and_flushes_by_it() {
    let none = Processor {
        vendor: 0,
        architecture: 0,
        implementation: 0,
    };
    HARTS
        .insert(0, shootdown_riscv::HartId::new(4).unwrap())
        .unwrap();
    let bits = AsidBits::new(16).unwrap();
    // SAFETY: emulated.
    let tlb = unsafe { Tlb::new(Emulated, Mode::Sv39, bits, Features::NONE, none) };
    let ipi = Ipi::new(Emulated, Way::Sbi(&HARTS));
    // SAFETY: emulated, and this is the only thread.
    let machine = unsafe { Machine::new(Emulated, tlb, ipi, || 0, || 0) };
    let engine: &Shootdown<_> = Box::leak(Box::new(Shootdown::new(machine)));
    engine.attach(CpuId::new(0), &MEMORY);
    engine.online();
    assert_eq!(fences(), [Fence::All]);

    // SAFETY: emulated.
    let space = AddressSpace::new(engine, unsafe { Root::new(0x8000_1000) });
    engine.switch_to(None, &space);
    let tag = engine_tag();
    assert_ne!(tag, 0);
    assert_eq!(fences(), [Fence::Tag(tlb::Asid::new(tag))]);

    let mut batch = FlushBatch::<u64, 4>::new(&space);
    batch.page(0x7000_0000, PageSize::SIZE_4K, 1).unwrap();
    let frames: Vec<u64> = engine.submit_batch(&space, batch).wait().collect();
    assert_eq!(
        (frames, fences()),
        (vec![1], vec![Fence::Page(0x7000_0000)])
    );

    // SAFETY: emulated.
    engine.switch_away(&space, unsafe { KernelRoot::new(0x8000_0000) });
    assert_eq!(SATP.load(Ordering::Relaxed), 8 << 60 | 0x8_0000);
}

fn engine_tag() -> u16 {
    let satp = SATP.load(Ordering::Relaxed);
    assert_eq!(satp & 0xfff_ffff_ffff, 0x8_0001);
    (satp >> 44 & 0xffff) as u16
}
