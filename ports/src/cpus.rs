//! The CPUs of the machine: 0 is the one that boots.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::arch;
use crate::console::say;
use crate::platform::SHOOTDOWN;

/// Most CPUs.
pub const MAX_CPUS: usize = 8;
/// Bytes of each stack.
pub const STACK_BYTES: usize = 64 << 10;
/// A CPU that does not come in so many nanoseconds does not come.
const PATIENCE_NS: u64 = 5_000_000_000;

/// CPUs that are online.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The stacks of all CPUs.
#[repr(C, align(64))]
pub struct Stacks(core::cell::UnsafeCell<[[u8; STACK_BYTES]; MAX_CPUS]>);

// SAFETY: each CPU uses its own.
unsafe impl Sync for Stacks {}

/// The entry code reads its address.
#[unsafe(no_mangle)]
pub static STACKS: Stacks = Stacks(core::cell::UnsafeCell::new([[0; STACK_BYTES]; MAX_CPUS]));

/// How many there are.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Brings this CPU online, and then as many as are `wanted` together, if there are so many. Boot CPU.
pub fn start_all(wanted: usize) {
    come_online();
    for cpu in 1..wanted.min(MAX_CPUS) {
        if !arch::start_cpu(cpu) {
            break;
        }
        let start = arch::now_ns();
        // ORDERING: pairs with the release in `come_online`.
        while COUNT.load(Ordering::Acquire) == cpu {
            if arch::now_ns() - start > PATIENCE_NS {
                say!("ports: cpu{cpu} does not come");
                return;
            }
            core::hint::spin_loop();
        }
    }
}

/// Interrupts are off until it is.
fn come_online() {
    arch::prepare_cpu();
    SHOOTDOWN.online();
    arch::irq_restore(arch::IRQS_ON);
    // ORDERING: pairs with the acquire in `start_all`.
    COUNT.fetch_add(1, Ordering::Release);
}

/// Where another CPU than the boot CPU begins, on its stack.
pub fn begin() -> ! {
    come_online();
    crate::work()
}
