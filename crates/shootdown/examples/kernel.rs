//! The engine in one module of a kernel: the rest of the kernel names neither the engine nor its largest number of CPUs.
//!
//! It is built for bare targets, not run: what the processor does is in functions that the kernel has already. The kernel learns at boot how many
//! CPUs there are, and allocates for these.

#![no_std]
#![allow(missing_docs, missing_debug_implementations, reason = "an example")]

extern crate alloc;

use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use shootdown::Cpus;

use shootdown::watch::Stall;
use shootdown::*;

/// As many as the kernel could ever have. What is not there costs two words and a bit in each set.
const MOST_CPUS: usize = 1024;

pub type Space = AddressSpace<Cpus<MOST_CPUS>>;
pub type Frame = u64;

static ENGINE: Shootdown<Kernel> = Shootdown::new(Kernel);

/// What the kernel has: one processor's instructions each.
mod processor {
    use super::Frame;

    unsafe extern "Rust" {
        /// From a per-CPU register.
        pub safe fn current_cpu() -> u32;
        /// Turns interrupts off; whether they were on.
        pub safe fn irqs_off() -> bool;
        pub safe fn irqs_on_if(were_on: bool);
        /// False if the controller is busy.
        pub safe fn send_interrupt(cpu: u32) -> bool;
        pub safe fn drop_translation(address: usize);
        pub safe fn drop_all_translations(with_global: bool);
        pub fn write_root(root: u64);
        pub safe fn clock_ns() -> u64;
        pub safe fn print(text: core::fmt::Arguments<'_>);
        pub safe fn free_frame(frame: Frame);
    }
}

/// The engine's view of this kernel.
pub struct Kernel;

// SAFETY: the kernel answers the ten duties one by one here; `processor` does what its names say.
unsafe impl Platform for Kernel {
    type Cpus = Cpus<MOST_CPUS>;
    type IrqState = bool;

    fn current_cpu(&self) -> CpuId {
        CpuId::new(processor::current_cpu())
    }

    fn irq_save(&self) -> bool {
        processor::irqs_off()
    }

    unsafe fn irq_restore(&self, were_on: bool) {
        processor::irqs_on_if(were_on);
    }

    // This kernel's code is never preempted.
    fn preempt_disable(&self) {}
    unsafe fn preempt_enable(&self) {}

    fn send_ipi(&self, target: CpuId) -> Result<(), IpiRefused> {
        match processor::send_interrupt(target.as_u32()) {
            true => Ok(()),
            false => Err(IpiRefused),
        }
    }

    fn local_flush(&self, operation: LocalFlush) {
        match operation {
            LocalFlush::Pages(range, FreedTables::No) => {
                range.iter_pages().for_each(processor::drop_translation);
            }
            // Right on every architecture: some instructions for one page keep what leads to it.
            LocalFlush::Pages(_, FreedTables::Yes) | LocalFlush::All => {
                processor::drop_all_translations(true);
            }
            LocalFlush::Space => processor::drop_all_translations(false),
        }
    }

    unsafe fn load_root(&self, root: u64) {
        // SAFETY: 1. the tables are in place.
        unsafe { processor::write_root(root) };
    }

    fn now_ns(&self) -> u64 {
        processor::clock_ns()
    }

    fn on_stall(&self, stall: &Stall) {
        processor::print(format_args!("{stall}"));
    }
}

/// On the boot CPU, when the interrupt controller works: `cpus` have been found.
pub fn start(cpus: u32) {
    let memory: Vec<_> = (0..cpus).map(|_| CpuMemory::new()).collect();
    ENGINE.attach(CpuId::new(0), memory.leak());
    start_cpu();
}

/// On each CPU, with interrupts off.
pub fn start_cpu() {
    ENGINE.online();
}

/// The handler of the engine's vector: acknowledged, interrupts off.
pub fn on_interrupt() {
    ENGINE.handle_ipi();
}

/// Runs `function` on every CPU, and waits.
pub fn everywhere(function: &(dyn Fn(CpuId) + Sync)) {
    ENGINE.call_many(CallTargets::Online, &function);
}

/// A spin lock that is taken with interrupts off. Its waiters poll: the holder may wait for a flush of their CPU.
pub struct SpinLock<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one task at a time has the value.
unsafe impl<T: Send> Sync for SpinLock<T> {}

pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    irqs_were_on: bool,
}

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        Self {
            is_held: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> SpinGuard<'_, T> {
        let irqs_were_on = processor::irqs_off();
        // ORDERING: Acquire: what was done under the lock before; pairs with the Release at its end.
        while self.is_held.swap(true, Ordering::Acquire) {
            ENGINE.poll();
            core::hint::spin_loop();
        }
        SpinGuard {
            lock: self,
            irqs_were_on,
        }
    }
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        // ORDERING: Release: see `lock`.
        self.lock.is_held.store(false, Ordering::Release);
        processor::irqs_on_if(self.irqs_were_on);
    }
}

/// A process: its address space, and the page tables behind a lock.
pub struct Process<T> {
    pub space: Space,
    pub tables: SpinLock<T>,
}

/// What the kernel's page tables can do.
pub trait Tables {
    /// Clears the entry for a page: what it mapped.
    fn clear(&mut self, page: usize) -> Option<Frame>;
}

/// # Safety
/// As [`Root::new`]: `root` maps the kernel, and stays until the process is dropped.
pub unsafe fn new_process<T>(root: u64, tables: T) -> Process<T> {
    // SAFETY: the caller's.
    let root = unsafe { Root::new(root) };
    Process {
        space: AddressSpace::new(&ENGINE, root),
        tables: SpinLock::new(tables),
    }
}

/// Unmaps pages. Their frames are free when no CPU can reach them any more, and the lock is not held while that is awaited.
pub fn unmap<T: Tables>(process: &Process<T>, pages: impl Iterator<Item = usize>) {
    let free = |frames: Vec<_>| {
        let frames = frames.into_iter().map(ManuallyDrop::into_inner);
        frames.for_each(processor::free_frame);
    };
    let mut tables = ENGINE.guard(&process.space, process.tables.lock(), Vec::new(), free);
    for page in pages {
        if let Some(frame) = tables.clear(page) {
            tables.unlinked_page(page, PageSize::SIZE_4K, frame);
        }
    }
}

/// The scheduler's last step before it runs a task of `next`; `context_switch` writes the root itself.
///
/// # Safety
/// 1. `context_switch` loads the root of `next`, the kernel's for `None`, and drops what user memory the CPU has cached.
pub unsafe fn switch(
    previous: Option<&Space>,
    next: Option<&Space>,
    context_switch: impl FnOnce(),
) {
    let irqs_were_on = processor::irqs_off();
    if ENGINE.host_roots().begin_switch(previous, next) {
        context_switch();
        // SAFETY: 1. the caller's.
        unsafe { ENGINE.host_roots().end_switch(previous, next) };
    }
    processor::irqs_on_if(irqs_were_on);
}
