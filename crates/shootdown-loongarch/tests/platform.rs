//! The example, driven by an engine: what reaches the ports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use shootdown::tags::AsidSlot;
use shootdown::{
    AddressSpace, CpuId, CpuMask, CpuMemory, FlushRange, FreedTables, KernelRoot, LocalFlush,
    PageSize, Platform, Root, Shootdown,
};
use shootdown_loongarch::ipi::Register;
use shootdown_loongarch::tlb::Invtlb;
use shootdown_loongarch::{Asid, AsidWidth, CoreId, Ipi, IrqState, Tlb, ipi, tlb};

#[path = "../examples/platform.rs"]
mod platform;
use platform::{CPUS, Machine, SHOOTDOWN, TAGS};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Dbar,
    Invtlb(Invtlb),
    Asid(u16),
    Pgdl(u64),
    Write(Register, u32),
    Handle,
}

/// The ports of the one CPU.
#[derive(Debug)]
struct Recorder;

static OPS: Mutex<Vec<Op>> = Mutex::new(Vec::new());
static ASID: AtomicU16 = AtomicU16::new(7);
static PGDL: AtomicU64 = AtomicU64::new(0);

fn push(op: Op) {
    OPS.lock().unwrap().push(op);
}

impl tlb::Port for Recorder {
    fn dbar(&self) {
        push(Op::Dbar);
    }
    fn invtlb(&self, operation: Invtlb) {
        push(Op::Invtlb(operation));
    }
    fn read_asid(&self) -> u32 {
        10 << 16 | u32::from(ASID.load(Ordering::Relaxed))
    }
    unsafe fn write_asid(&self, asid: Asid) {
        ASID.store(asid.as_u16(), Ordering::Relaxed);
        push(Op::Asid(asid.as_u16()));
    }
    fn read_pgdl(&self) -> u64 {
        PGDL.load(Ordering::Relaxed)
    }
    unsafe fn write_pgdl(&self, root: u64) {
        PGDL.store(root, Ordering::Relaxed);
        push(Op::Pgdl(root));
    }
    fn irq_save(&self) -> IrqState {
        IrqState::Enabled
    }
    unsafe fn irq_restore(&self, _: IrqState) {}
}

impl ipi::Port for Recorder {
    fn dbar(&self) {
        push(Op::Dbar);
    }
    fn read32(&self, _: Register) -> u32 {
        SHOOTDOWN.mask()
    }
    unsafe fn write32(&self, register: Register, value: u32) {
        push(Op::Write(register, value));
    }
    fn read64(&self, _: Register) -> u64 {
        0
    }
    unsafe fn write64(&self, _: Register, _: u64) {}
}

type Recorded = Machine<Recorder, Recorder>;

static SLOTS: [[AsidSlot; TAGS]; CPUS] = [const { [const { AsidSlot::new() }; TAGS] }; CPUS];
static MEMORY: [CpuMemory<Recorded>; 1] = [const { CpuMemory::new() }; 1];

fn machine() -> Recorded {
    let base = tlb::PageSize::SIZE_16K;
    let core = || CoreId::new(0).unwrap();
    // SAFETY: recorded.
    let ipi = unsafe { Ipi::with_port(Recorder) };
    // SAFETY: recorded.
    let tlb = unsafe { Tlb::with_port(Recorder, base, AsidWidth::new(10)) };
    // SAFETY: recorded.
    unsafe { Machine::new(ipi, tlb, &SLOTS, core, || 0) }
}

fn ops(act: impl FnOnce()) -> Vec<Op> {
    OPS.lock().unwrap().clear();
    act();
    OPS.lock().unwrap().clone()
}

/// A load, by way of the reserved tag.
fn load(root: u64, tag: u16) -> Vec<Op> {
    let drop = |tag| Op::Invtlb(Invtlb::Tag(Asid::new(tag).unwrap()));
    let begin = [Op::Dbar, drop(0x3ff), Op::Asid(0x3ff), Op::Pgdl(root)];
    [&begin[..], &[drop(tag), Op::Asid(tag)]].concat()
}

const ROOT: u64 = 0x8000_0000;
const KERNEL_ROOT: u64 = 0x9000_0000;

/// One test: the recorder is one.
#[test]
fn an_engine_on_the_example() {
    let platform = machine();
    // SAFETY: recorded.
    let prepared = ops(|| unsafe { platform.prepare(KERNEL_ROOT) });
    let started = [Op::Dbar, Op::Invtlb(Invtlb::All), Op::Asid(0)];
    let enabled = [
        Op::Write(Register::Clear, u32::MAX),
        Op::Write(Register::Enable, 1 << 1),
    ];
    let expected = [&started[..], &load(KERNEL_ROOT, 0), &enabled].concat();
    assert_eq!(prepared, expected);

    let engine = Shootdown::new(machine());
    engine.attach(CpuId::new(0), &MEMORY);
    engine.online();
    // SAFETY: no page tables.
    let space = AddressSpace::new(&engine, unsafe { Root::new(ROOT) });
    let loaded = ops(|| engine.switch_to(None, &space));
    // Which tag it has is the engine's.
    let tag = ASID.load(Ordering::Relaxed);
    assert_ne!(tag, 0);
    assert_eq!(loaded, load(ROOT, tag));

    let range = FlushRange::new(0x40_4000, 0x40_c000, PageSize::SIZE_16K);
    let flushed = ops(|| engine.flush(&space, range, FreedTables::No));
    let page = |address| Op::Invtlb(Invtlb::Page(Asid::new(tag).unwrap(), address));
    assert_eq!(flushed, [Op::Dbar, page(0x40_0000), page(0x40_8000)]);

    // SAFETY: no page tables.
    let away = ops(|| engine.switch_away(&space, unsafe { KernelRoot::new(KERNEL_ROOT) }));
    assert_eq!(away, load(KERNEL_ROOT, 0));

    let send = |target: u32| Op::Write(Register::IpiSend, target << 16 | 1);
    let interrupted = ops(|| platform.send_ipi(CpuId::new(1)).unwrap());
    assert_eq!(interrupted, [Op::Dbar, send(1)]);
    let targets = CpuMask::<shootdown::Cpus<CPUS>>::first(2);
    let interrupted = ops(|| platform.send_ipi_mask(targets.as_set()).unwrap());
    assert_eq!(interrupted, [Op::Dbar, send(0), send(1)]);
    let everything = ops(|| platform.local_flush(LocalFlush::All));
    assert_eq!(everything, [Op::Dbar, Op::Invtlb(Invtlb::All)]);
    // SAFETY: recorded.
    let taken = ops(|| unsafe { platform.on_ipi(|| push(Op::Handle)) });
    let acknowledged = [Op::Write(Register::Clear, 1 << 1), Op::Dbar];
    assert_eq!(taken, [&acknowledged[..], &[Op::Handle]].concat());
}
