//! The CPUs of the machine: 0 is the one that boots.

use core::cell::{OnceCell, UnsafeCell};
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

/// How many have come online for the first time.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// One bit for each that is online.
static ONLINE: AtomicUsize = AtomicUsize::new(0);

/// What the boot CPU finds or makes before it starts others.
#[derive(Debug)]
pub struct AtBoot<T>(OnceCell<T>);

// SAFETY: duty 1 of `set_once`: it is written before another CPU runs.
unsafe impl<T: Sync> Sync for AtBoot<T> {}

impl<T> AtBoot<T> {
    /// Nothing so far.
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Makes it, unless it is there.
    ///
    /// # Safety
    /// 1. The first call has returned before another CPU is started.
    pub unsafe fn set_once(&self, make: impl FnOnce() -> T) {
        self.0.get_or_init(make);
    }

    /// What was made.
    ///
    /// # Panics
    /// Before.
    pub fn get(&self) -> &T {
        self.0.get().expect("made at boot")
    }
}

/// The stacks of all CPUs.
#[repr(C, align(64))]
pub struct Stacks(UnsafeCell<[[u8; STACK_BYTES]; MAX_CPUS]>);

// SAFETY: each CPU uses its own.
unsafe impl Sync for Stacks {}

/// The entry code reads its address.
#[unsafe(no_mangle)]
pub static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_BYTES]; MAX_CPUS]));

/// How many there are.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Brings this CPU online, and then so many that there are `wanted` together; false if there are fewer. Boot CPU.
pub fn start_all(wanted: usize) -> bool {
    come_online();
    COUNT.store(1, Ordering::Relaxed);
    if !(1..=MAX_CPUS).contains(&wanted) {
        say!("ports: cpus={wanted} is not from 1 to {MAX_CPUS}");
        return false;
    }
    for cpu in 1..wanted {
        if !start(cpu) {
            say!("ports: cpu{cpu} does not come; there are fewer than cpus={wanted}");
            return false;
        }
        COUNT.store(cpu + 1, Ordering::Relaxed);
    }
    true
}

/// Starts a CPU, and waits until it is online; false if it does not come. A CPU that stops may take a while until it can be started again.
pub fn start(cpu: usize) -> bool {
    let given_up = arch::now_ns() + PATIENCE_NS;
    let in_time = || arch::now_ns() < given_up;
    while !arch::start_cpu(cpu) {
        if !in_time() {
            return false;
        }
    }
    while in_time() {
        if is_online(cpu) {
            return true;
        }
        SHOOTDOWN.poll();
        core::hint::spin_loop();
    }
    false
}

/// Whether a CPU is online.
pub fn is_online(cpu: usize) -> bool {
    // ORDERING: pairs with the release in `come_online`.
    ONLINE.load(Ordering::Acquire) & 1 << cpu != 0
}

/// Interrupts are off until it is.
fn come_online() {
    arch::prepare_cpu();
    SHOOTDOWN.online();
    arch::irq_enable();
    // ORDERING: pairs with the acquire in `is_online`.
    ONLINE.fetch_or(1 << arch::this_cpu(), Ordering::Release);
}

/// Takes this CPU, which has no space loaded, offline, and says so by `told`; it [begins](begin) again when it is started. Interrupts are off.
pub fn stop(told: impl FnOnce()) -> ! {
    SHOOTDOWN.offline();
    // ORDERING: pairs with the acquire in `is_online`.
    ONLINE.fetch_and(!(1 << arch::this_cpu()), Ordering::Release);
    told();
    arch::stop_cpu()
}

/// Where another CPU than the boot CPU begins, on its stack, with interrupts off.
pub extern "C" fn begin() -> ! {
    come_online();
    crate::work()
}
