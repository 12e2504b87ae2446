//! The board's GICv3: an interrupt of the engine's, and the timer's.

use core::arch::asm;

use shootdown::IpiRefused;
use shootdown_arm64::gic::{Affinity, RangeSelector, SystemRegisters};
use shootdown_arm64::{AffinityMap, Gic3, Sgi};

use super::MEMORY;
use crate::cpus::MAX_CPUS;
use crate::platform;

const DISTRIBUTOR: usize = MEMORY + 0x0800_0000;
const REDISTRIBUTORS: usize = MEMORY + 0x080a_0000;
const REDISTRIBUTOR_BYTES: usize = 0x2_0000;
/// Registers (IHI 0069, 12.9 to 12.11): GICD_CTLR; GICR_WAKER; GICR_IGROUPR0 and GICR_ISENABLER0.
const CTLR: usize = 0;
const WAKER: usize = 0x14;
const IGROUPR0: usize = 0x1_0080;
const ISENABLER0: usize = 0x1_0100;
/// GICD_CTLR: group 1, routing by affinity. GICR_WAKER: processor sleep, children asleep.
const GROUP_1_BY_AFFINITY: u32 = 1 << 1 | 1 << 4;
const SLEEP: u32 = 1 << 1;
const ASLEEP: u32 = 1 << 2;
/// The board has so many CPUs with the same higher affinity.
const CLUSTER: usize = 16;
/// Interrupts by their numbers: the engine's, and that of the virtual timer (Base System Architecture).
const SHOOTDOWN: Sgi = Sgi::new(0).unwrap();
const SHOOTDOWN_ID: usize = 0;
const TIMER_ID: usize = 27;
/// From here on numbers are special.
const SPECIAL: usize = 1020;

static AFFINITIES: AffinityMap<MAX_CPUS> = AffinityMap::new();
// SAFETY: 1. `prepare` enables them on each CPU, before it sends.
const REGISTERS: SystemRegisters = unsafe { SystemRegisters::new() };
// SAFETY: 1. no affinity is above 15. 2. each CPU handles the interrupt. 3. they are the processor's.
static GIC: Gic3<SystemRegisters> = unsafe { Gic3::new(REGISTERS, RangeSelector::Absent) };

fn write(register: usize, value: u32) {
    // SAFETY: a register of the board's.
    unsafe { (register as *mut u32).write_volatile(value) };
}

fn read(register: usize) -> u32 {
    // SAFETY: as above.
    unsafe { (register as *const u32).read_volatile() }
}

/// Where a CPU is.
pub fn affinity(cpu: usize) -> Affinity {
    Affinity::from_mpidr(((cpu % CLUSTER) | ((cpu / CLUSTER) << 8)) as u64)
}

/// On each CPU, interrupts off.
pub fn prepare(cpu: usize) {
    // It is there already when it comes back.
    let _ = AFFINITIES.insert(cpu, affinity(cpu));
    if cpu == 0 {
        write(DISTRIBUTOR + CTLR, GROUP_1_BY_AFFINITY);
    }
    let own = REDISTRIBUTORS + cpu * REDISTRIBUTOR_BYTES;
    write(own + WAKER, read(own + WAKER) & !SLEEP);
    while read(own + WAKER) & ASLEEP != 0 {
        core::hint::spin_loop();
    }
    write(own + IGROUPR0, u32::MAX);
    write(own + ISENABLER0, 1 << SHOOTDOWN_ID | 1 << TIMER_ID);
    // SAFETY: system registers; all priorities, group 1.
    unsafe {
        asm!("msr icc_sre_el1, {one}", "isb", "msr icc_pmr_el1, {all}", "msr icc_igrpen1_el1, {one}", "isb",
            one = in(reg) 1_u64, all = in(reg) 0xff_u64);
    }
}

/// Contract 5.
pub fn send_ipi(targets: &[u64]) -> Result<(), IpiRefused> {
    let sent = GIC.send_many(&AFFINITIES, targets, SHOOTDOWN);
    sent.map_err(|_| IpiRefused)
}

/// The handler of interrupts: what is acknowledged and ended comes again if it is sent again.
pub fn serve() {
    let interrupt: usize;
    // SAFETY: acknowledges it, and waits until that is done: from then on another one is pending by itself.
    unsafe { asm!("mrs {}, icc_iar1_el1", "dsb sy", out(reg) interrupt) };
    let id = interrupt & 0xff_ffff;
    if id >= SPECIAL {
        return;
    }
    if id == TIMER_ID {
        super::stop_timer();
    }
    // SAFETY: ends it.
    unsafe { asm!("msr icc_eoir1_el1, {}", "isb", in(reg) interrupt) };
    match id {
        SHOOTDOWN_ID => platform::on_ipi(),
        TIMER_ID => platform::on_timer(),
        _ => panic!("interrupt {id}"),
    }
}
