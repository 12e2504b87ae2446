//! Page faults of the kernel: loads that may find nothing, and pages that come back.

use core::sync::atomic::{AtomicUsize, Ordering};

use axhal::trap::{PAGE_FAULT, PageFaultFlags, register_trap_handler};
use memory_addr::VirtAddr;

use crate::arch;
use crate::platform::{CPUS, SHOOTDOWN};
use crate::probe;

/// On each CPU: the stack of the load that may fail there, or 0.
static LOADS: [AtomicUsize; CPUS] = [const { AtomicUsize::new(0) }; CPUS];

/// The word at `address` as the running CPU's translations have it, or nothing if it has none. Interrupts are off.
pub fn load(address: usize) -> Option<u64> {
    let stack = &LOADS[axhal::percpu::this_cpu_id()];
    let mut word = 0;
    // SAFETY: 1. it stays on this CPU, where only a fault of this load looks at `stack`. 2. whoever asks has the addresses for itself.
    let is_there = unsafe { arch::load_or_abandon(address, stack, &mut word) };
    stack.store(0, Ordering::Relaxed);
    is_there.then_some(word)
}

#[register_trap_handler(PAGE_FAULT)]
fn on_page_fault(address: VirtAddr, _: PageFaultFlags) -> bool {
    let stack = LOADS[axhal::percpu::this_cpu_id()].load(Ordering::Relaxed);
    if stack != 0 {
        // SAFETY: `load_or_abandon` has just put it there, and waits for its load.
        unsafe { arch::abandon(stack) };
    }
    // Interrupts are off. The access is tried again, until the page has come back.
    SHOOTDOWN.poll();
    probe::owns(address)
}
