//! Kernel stacks that exist from boot on: one main stack and three interrupt stacks for each CPU.
//!
//! The main stack runs the boot path and then the idle loop. The others belong to exceptions that
//! can strike when the stack pointer is not to be trusted: #DF (the stack overflowed), NMI and #MC
//! (between SYSCALL and the stack switch). Each lies above a page that [`paging`](super::paging)
//! leaves unmapped, so an overflow faults instead of corrupting a neighbour.
//!
//! Those of the boot CPU are part of the image. The others have addresses of their own, and memory only as far as there are CPUs: in
//! the image, those of [`MAX_CPUS`] would reach beyond 8 MiB, where UEFI firmware keeps things (OVMF does) and GRUB loads nothing.

use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ops::Range;

use crate::addr::{CPU_STACKS, PAGE_BYTES};
use crate::cpus::MAX_CPUS;

/// Bytes of the kernel stack of a thread, which comes from the heap.
pub const KERNEL_STACK_BYTES: usize = 32 * 1024;
const MAIN_BYTES: usize = 32 * 1024;
const INTERRUPT_BYTES: usize = 16 * 1024;
/// Main, #DF, NMI, #MC.
const STACKS_PER_CPU: usize = 4;

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
}

/// How the stacks of one CPU lie.
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

/// Bytes from one CPU's stacks to those of the next.
pub const STRIDE: usize = size_of::<CpuStacks>();
/// Distance from the start of one CPU's stacks to the end of its main stack.
pub const MAIN_STACK_END: usize = PAGE_BYTES + MAIN_BYTES;
/// Pages of one CPU's stacks that need memory.
pub const PAGES_PER_CPU: usize = STRIDE / PAGE_BYTES - STACKS_PER_CPU;
const _: () = assert!(MAX_CPUS * STRIDE <= 0usize.wrapping_sub(CPU_STACKS));

/// Those of the boot CPU.
pub static BOOT_STACKS: CpuStacks = CpuStacks {
    main: Guarded::new(),
    double_fault: Guarded::new(),
    nmi: Guarded::new(),
    machine_check: Guarded::new(),
};

/// The addresses of one CPU's stacks.
#[derive(Clone, Copy, Debug)]
pub struct Stacks(usize);

impl Stacks {
    /// Those of CPU `cpu`.
    pub fn of(cpu: usize) -> Self {
        match cpu {
            0 => Self((&raw const BOOT_STACKS).addr()),
            _ => Self(CPU_STACKS + cpu * STRIDE),
        }
    }

    /// End of the main stack.
    pub fn main_top(self) -> usize {
        self.0 + MAIN_STACK_END
    }

    /// The addresses of the main stack.
    pub fn main(self) -> Range<usize> {
        self.main_top() - MAIN_BYTES..self.main_top()
    }

    /// Ends of the interrupt stacks, in the order of the interrupt stack table.
    pub fn interrupt_tops(self) -> [usize; STACKS_PER_CPU - 1] {
        let [_, guards @ ..] = self.guards();
        guards.map(|guard| guard + size_of::<Guarded<INTERRUPT_BYTES>>())
    }

    /// Addresses of the pages that stay unmapped.
    fn guards(self) -> [usize; STACKS_PER_CPU] {
        [
            offset_of!(CpuStacks, main),
            offset_of!(CpuStacks, double_fault),
            offset_of!(CpuStacks, nmi),
            offset_of!(CpuStacks, machine_check),
        ]
        .map(|offset| self.0 + offset)
    }

    /// Addresses of the other pages.
    pub fn pages(self) -> impl Iterator<Item = usize> {
        let guards = self.guards();
        let all = (self.0..self.0 + STRIDE).step_by(PAGE_BYTES);
        all.filter(move |page| !guards.contains(page))
    }
}

/// Whether `address` lies in a guard page, and of which CPU: for the page tables, and for the panic message.
pub fn guard_owner(address: usize) -> Option<usize> {
    let page = address & !(PAGE_BYTES - 1);
    let cpu = page.checked_sub(CPU_STACKS).map_or(0, |at| at / STRIDE);
    (cpu < MAX_CPUS && Stacks::of(cpu).guards().contains(&page)).then_some(cpu)
}
