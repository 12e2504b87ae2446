//! Kernel stacks that exist from boot on: one main stack and three interrupt stacks for each CPU.
//!
//! The main stack runs the boot path and then the idle loop. The others belong to exceptions that
//! can strike when the stack pointer is not to be trusted: #DF (the stack overflowed), NMI and #MC
//! (between SYSCALL and the stack switch). Each lies above a page that [`paging`](super::paging)
//! leaves unmapped, so an overflow faults instead of corrupting a neighbour.

use core::cell::UnsafeCell;
use core::ops::Range;

use crate::addr::PAGE_BYTES;
use crate::cpus::MAX_CPUS;

/// Bytes of the kernel stack of a thread, which comes from the heap.
pub const KERNEL_STACK_BYTES: usize = 32 * 1024;
const MAIN_BYTES: usize = 32 * 1024;
const INTERRUPT_BYTES: usize = 16 * 1024;
/// Main, #DF, NMI, #MC.
pub const STACKS_PER_CPU: usize = 4;

/// A stack and the page below it.
#[repr(C, align(4096))]
struct Guarded<const BYTES: usize> {
    guard: UnsafeCell<[u8; PAGE_BYTES]>,
    stack: UnsafeCell<[u8; BYTES]>,
}

impl<const BYTES: usize> Guarded<BYTES> {
    const fn new() -> Self {
        Self {
            guard: UnsafeCell::new([0; PAGE_BYTES]),
            stack: UnsafeCell::new([0; BYTES]),
        }
    }

    fn top(&self) -> usize {
        self.stack.get().addr() + BYTES
    }
}

/// The stacks of one CPU.
#[repr(C, align(4096))]
pub struct CpuStacks {
    main: Guarded<MAIN_BYTES>,
    double_fault: Guarded<INTERRUPT_BYTES>,
    nmi: Guarded<INTERRUPT_BYTES>,
    machine_check: Guarded<INTERRUPT_BYTES>,
}

// SAFETY: only the processor and the code that runs on a stack touch its bytes; Rust code takes
// addresses only.
unsafe impl Sync for CpuStacks {}

/// Distance from the start of one CPU's stacks to the end of its main stack.
pub const MAIN_STACK_END: usize = PAGE_BYTES + MAIN_BYTES;

/// All stacks.
pub static CPU_STACKS: [CpuStacks; MAX_CPUS] = [const {
    CpuStacks {
        main: Guarded::new(),
        double_fault: Guarded::new(),
        nmi: Guarded::new(),
        machine_check: Guarded::new(),
    }
}; MAX_CPUS];

impl CpuStacks {
    /// End of the main stack.
    pub fn main_top(&self) -> usize {
        self.main.top()
    }

    /// The addresses of the main stack.
    pub fn main(&self) -> Range<usize> {
        self.main_top() - MAIN_BYTES..self.main_top()
    }

    /// Ends of the interrupt stacks, in the order of the interrupt stack table.
    pub fn interrupt_tops(&self) -> [usize; 3] {
        [
            self.double_fault.top(),
            self.nmi.top(),
            self.machine_check.top(),
        ]
    }

    /// Addresses of the pages that stay unmapped.
    pub fn guards(&self) -> [usize; STACKS_PER_CPU] {
        [
            self.main.guard.get().addr(),
            self.double_fault.guard.get().addr(),
            self.nmi.guard.get().addr(),
            self.machine_check.guard.get().addr(),
        ]
    }
}

/// Whether `address` lies in a guard page, and of which CPU: for the panic message.
pub fn guard_owner(address: usize) -> Option<usize> {
    let page = address & !(PAGE_BYTES - 1);
    CPU_STACKS
        .iter()
        .position(|stacks| stacks.guards().contains(&page))
}
