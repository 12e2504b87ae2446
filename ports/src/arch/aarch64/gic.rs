//! The GICv3 of the board: one software-generated interrupt.

use core::arch::asm;

use crate::platform::SHOOTDOWN;

const DISTRIBUTOR: usize = 0x0800_0000;
const REDISTRIBUTORS: usize = 0x080a_0000;
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
/// From here on interrupt numbers are special.
const SPECIAL: usize = 1020;

fn write(register: usize, value: u32) {
    // SAFETY: a register of the board's.
    unsafe { (register as *mut u32).write_volatile(value) };
}

fn read(register: usize) -> u32 {
    // SAFETY: as above.
    unsafe { (register as *const u32).read_volatile() }
}

/// MPIDR's affinity of a CPU.
pub fn affinity(cpu: usize) -> usize {
    cpu % CLUSTER | cpu / CLUSTER << 8
}

/// On each CPU, interrupts off.
pub fn prepare(cpu: usize) {
    if cpu == 0 {
        write(DISTRIBUTOR + CTLR, GROUP_1_BY_AFFINITY);
    }
    let own = REDISTRIBUTORS + cpu * REDISTRIBUTOR_BYTES;
    write(own + WAKER, read(own + WAKER) & !SLEEP);
    while read(own + WAKER) & ASLEEP != 0 {
        core::hint::spin_loop();
    }
    write(own + IGROUPR0, u32::MAX);
    write(own + ISENABLER0, 1);
    // SAFETY: system registers; all priorities, group 1.
    unsafe {
        asm!("msr icc_sre_el1, {one}", "isb", "msr icc_pmr_el1, {all}", "msr icc_igrpen1_el1, {one}", "isb",
            one = in(reg) 1_u64, all = in(reg) 0xff_u64);
    }
}

/// SGI 0 for one CPU; stores before it are seen by the handler.
pub fn send_ipi(cpu: usize) {
    let target = 1_u64 << (cpu % CLUSTER) | (cpu as u64 / CLUSTER as u64) << 16;
    // SAFETY: a barrier, and an interrupt of ours.
    unsafe { asm!("dsb ish", "msr icc_sgi1r_el1, {}", "isb", in(reg) target) };
}

/// The handler's part.
pub fn serve() {
    let interrupt: usize;
    // SAFETY: acknowledges it.
    unsafe { asm!("mrs {}, icc_iar1_el1", "dsb sy", out(reg) interrupt) };
    if interrupt & 0xff_ffff >= SPECIAL {
        return;
    }
    // SAFETY: ends it before the engine looks: what comes later interrupts again.
    unsafe { asm!("msr icc_eoir1_el1, {}", "isb", in(reg) interrupt) };
    SHOOTDOWN.handle_ipi();
}
