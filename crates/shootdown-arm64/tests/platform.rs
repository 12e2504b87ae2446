//! The example, driven by an engine: what reaches the ports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use shootdown::tags::AsidSlot;
use shootdown::{
    AddressSpace, CpuId, CpuMask, CpuMemory, FlushRange, FreedTables, KernelRoot, LocalFlush,
    PageSize, Platform, Root, Shootdown,
};
use shootdown_arm64::gic::RangeSelector;
use shootdown_arm64::tlb::{Depth, Dsb, Granule, Reach, Tlbi};
use shootdown_arm64::{
    Affinity, AffinityMap, Asid, Errata, Features, Gic3, IdRegisters, IrqState, Sgi, Tlb, gic, irq,
    tlb,
};

#[path = "../examples/platform.rs"]
mod platform;
use platform::{CPUS, Machine, OfKernel, TAGS};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Dsb(Dsb),
    Isb,
    Tlbi(Reach, Tlbi),
    Ttbr0(u64),
    Sgi(u64),
}

/// The ports of whichever CPU `CURRENT` says.
#[derive(Debug)]
struct Recorder;

static OPS: Mutex<Vec<Op>> = Mutex::new(Vec::new());
static CURRENT: AtomicU32 = AtomicU32::new(0);
static TTBR0: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn push(op: Op) {
    OPS.lock().unwrap().push(op);
}

fn ttbr0() -> &'static AtomicU64 {
    &TTBR0[CURRENT.load(Ordering::Relaxed) as usize]
}

impl tlb::Port for Recorder {
    fn dsb(&self, kind: Dsb) {
        push(Op::Dsb(kind));
    }
    fn isb(&self) {
        push(Op::Isb);
    }
    unsafe fn tlbi(&self, reach: Reach, operation: Tlbi) {
        push(Op::Tlbi(reach, operation));
    }
    fn read_ttbr0(&self) -> u64 {
        ttbr0().load(Ordering::Relaxed)
    }
    unsafe fn write_ttbr0(&self, value: u64) {
        ttbr0().store(value, Ordering::Relaxed);
        push(Op::Ttbr0(value));
    }
    fn read_tcr(&self) -> u64 {
        0
    }
    unsafe fn write_tcr(&self, _: u64) {}
}

impl gic::Port for Recorder {
    fn fence(&self) {}
    unsafe fn write(&self, value: u64) {
        push(Op::Sgi(value));
    }
    fn synchronise(&self) {}
}

impl irq::Port for Recorder {
    fn save(&self) -> IrqState {
        IrqState::from_daif(0)
    }
    unsafe fn restore(&self, _: IrqState) {}
    fn wait(&self) {}
}

type Recorded = Machine<Recorder, Recorder, Recorder>;

static MAP: AffinityMap<CPUS> = AffinityMap::new();
static SLOTS: [[AsidSlot; TAGS]; CPUS] = [const { [const { AsidSlot::new() }; TAGS] }; CPUS];
static MEMORY: [CpuMemory<Recorded>; 2] = [const { CpuMemory::new() }; 2];

fn machine() -> Recorded {
    let features = Features::of(IdRegisters::default());
    let errata = Errata::of(&features);
    // SAFETY: recorded.
    let tlb = unsafe { Tlb::new(Recorder, &features, errata, Granule::Kib4, 0x1000) };
    // SAFETY: recorded.
    let gic = unsafe { Gic3::new(Recorder, RangeSelector::Absent) };
    let sgi = (&MAP, Sgi::new(1).unwrap());
    let kernel: OfKernel = (|| CURRENT.load(Ordering::Relaxed), || 0);
    // SAFETY: recorded.
    unsafe { Machine::new(tlb, gic, Recorder, sgi, &SLOTS, kernel) }
}

fn ops(act: impl FnOnce()) -> Vec<Op> {
    OPS.lock().unwrap().clear();
    act();
    OPS.lock().unwrap().clone()
}

fn on<R>(cpu: u32, act: impl FnOnce() -> R) -> R {
    CURRENT.store(cpu, Ordering::Relaxed);
    let result = act();
    CURRENT.store(0, Ordering::Relaxed);
    result
}

const FULL: Op = Op::Dsb(Dsb::Full);
const OWN: Op = Op::Dsb(Dsb::Own);

/// One test: the recorder is one.
#[test]
fn an_engine_on_the_example() {
    for cpu in 0..2 {
        MAP.insert(cpu, Affinity::from_mpidr(cpu as u64)).unwrap();
    }
    let engine = Shootdown::new(machine());
    engine.attach(CpuId::new(0), &MEMORY);
    (0..2).for_each(|cpu| on(cpu, || engine.online()));
    // SAFETY: no page tables.
    let space = AddressSpace::new(&engine, unsafe { Root::new(0x8000_0000) });
    let loaded = ops(|| (0..2).for_each(|cpu| on(cpu, || engine.switch_to(None, &space))));
    // Another tag was loaded: it is dropped before. Which one is the engine's.
    let Op::Ttbr0(value) = loaded[3] else {
        panic!("{loaded:x?}");
    };
    let tag = Asid::new((value >> 48) as u16);
    assert_ne!(tag, Asid::UNTAGGED);
    let load = [
        FULL,
        Op::Tlbi(Reach::Own, Tlbi::Tag(tag)),
        OWN,
        Op::Ttbr0(value),
        Op::Isb,
    ];
    assert_eq!(loaded, [load, load].concat());

    // A flush reaches CPU 1 by broadcast, nobody is interrupted, and this CPU flushes meanwhile.
    let range = FlushRange::new(0x40_0000, 0x40_1000, PageSize::SIZE_4K);
    let flushed = ops(|| engine.submit_flush(&space, range, FreedTables::Yes).wait());
    let page = Tlbi::Page(None, 0x40_0000, Depth::Tables);
    let nothing = Tlbi::Page(Some(Asid::UNTAGGED), 0, Depth::Leaf);
    let broadcast = [FULL, Op::Tlbi(Reach::Inner, page)];
    let own = [FULL, Op::Tlbi(Reach::Own, page), OWN, Op::Isb];
    let finished = [FULL, Op::Tlbi(Reach::Inner, nothing), FULL, Op::Isb];
    assert_eq!(flushed, [&broadcast[..], &own, &finished].concat());

    let platform = machine();
    let targets = CpuMask::<shootdown::Cpus<CPUS>>::first(2);
    let interrupted = ops(|| platform.send_ipi(CpuId::new(1)).unwrap());
    assert_eq!(interrupted, [Op::Sgi(0x0100_0002)]);
    let interrupted = ops(|| platform.send_ipi_mask(targets.as_set()).unwrap());
    assert_eq!(interrupted, [Op::Sgi(0x0100_0003)]);
    let everything = ops(|| platform.local_flush(LocalFlush::All));
    assert_eq!(
        everything,
        [FULL, Op::Tlbi(Reach::Own, Tlbi::All), OWN, Op::Isb]
    );
    assert_eq!(ops(|| platform.synchronise_here()), [Op::Isb]);
    // SAFETY: no page tables.
    let kernel = unsafe { KernelRoot::new(0x9000_0000) };
    (0..2).for_each(|cpu| on(cpu, || engine.switch_away(&space, kernel)));
}
