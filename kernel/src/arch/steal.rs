//! This kernel as a guest of KVM: the steal-time records by which a hypervisor says which virtual CPUs do not run, and flushes them before they run
//! again.

use core::sync::atomic::{AtomicBool, Ordering};

use shootdown::CpuId;
use shootdown_x86::Features;
use shootdown_x86::pv::kvm::{KvmFeatures, StealTime};

use crate::addr::PhysAddr;
use crate::cpus::MAX_CPUS;

static RECORDS: [StealTime; MAX_CPUS] = [const { StealTime::new() }; MAX_CPUS];

/// Whether the records are used.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// Uses the records where the hypervisor has them. Boot CPU, once, before any CPU is online.
pub fn choose(features: &Features) {
    let has_it = KvmFeatures::detect(features).has_flush_before_entry();
    IS_USED.store(has_it, Ordering::Relaxed);
}

/// Whether CPUs can be flushed before they run again.
#[inline]
pub fn is_used() -> bool {
    IS_USED.load(Ordering::Relaxed)
}

/// Tells the hypervisor of this CPU's record. Before the CPU is online; interrupts off.
pub fn register(cpu: CpuId) {
    if is_used() {
        let record = &RECORDS[cpu.index()];
        let physical = PhysAddr::of(record).as_u64();
        // SAFETY: 1. the kernel, under KVM, as `choose` has found. 2. the image lies where `PhysAddr` says.
        unsafe { record.register(physical) };
    }
}

/// Has the hypervisor forget it. The CPU is offline; interrupts off.
pub fn unregister() {
    if is_used() {
        // SAFETY: 1. as in `register`.
        unsafe { StealTime::unregister() };
    }
}

/// Whether the CPU does not run, and drops all translations before it does.
pub fn flush_before_entry(cpu: CpuId) -> bool {
    RECORDS[cpu.index()].flush_before_entry()
}
