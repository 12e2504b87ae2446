//! Per-CPU data, found through GS.
//!
//! In the kernel the GS base points at this CPU's [`PerCpu`]; `entry.s` says how it gets there. Only
//! its own CPU writes an entry, so plain instructions with a GS prefix are enough: each is one
//! instruction and cannot be torn by an interrupt or a migration.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;

use shootdown::CpuId;
use x86_64::VirtAddr;
use x86_64::registers::model_specific::{GsBase, KernelGsBase};

use super::descriptors;
#[cfg(feature = "isolation")]
use super::isolation::EntryPage;
use crate::cpus::MAX_CPUS;

/// What one CPU keeps for itself. Reached by offset from `entry.s` and below.
#[repr(C, align(128))]
pub struct PerCpu {
    /// On a page of its own, which user roots map.
    #[cfg(feature = "isolation")]
    pub(super) entry: EntryPage,
    cpu: u32,
    preempt_count: u32,
    /// Not 0: the scheduler is to choose a thread anew at the next chance.
    need_resched: u32,
    /// Stack pointer at entry from ring 3.
    kernel_stack: usize,
    /// SYSCALL keeps the user's stack pointer here for three instructions.
    #[cfg(not(feature = "isolation"))]
    user_rsp: usize,
    current_thread: *mut (),
    ticks: u64,
    /// Not 0: the engine leaves flushes of user pages to this CPU, see `task::catch_up`.
    deferring: u32,
}

/// Where `entry.s` finds the kernel stack.
pub const KERNEL_STACK: usize = offset_of!(PerCpu, kernel_stack);
/// Where `entry.s` puts the user's stack pointer.
#[cfg(not(feature = "isolation"))]
pub const USER_RSP: usize = offset_of!(PerCpu, user_rsp);
/// Where `entry.s` puts the user's stack pointer.
#[cfg(feature = "isolation")]
pub const USER_RSP: usize = offset_of!(PerCpu, entry.user_rsp);

struct Slot(UnsafeCell<PerCpu>);

// SAFETY: after `install` each slot is accessed by its own CPU alone, through GS.
unsafe impl Sync for Slot {}

impl PerCpu {
    const fn new(cpu: u32) -> Self {
        Self {
            #[cfg(feature = "isolation")]
            entry: EntryPage::new(),
            cpu,
            preempt_count: 0,
            need_resched: 0,
            kernel_stack: 0,
            #[cfg(not(feature = "isolation"))]
            user_rsp: 0,
            current_thread: core::ptr::null_mut(),
            ticks: 0,
            deferring: 0,
        }
    }
}

static PER_CPU: [Slot; MAX_CPUS] = [const { Slot(UnsafeCell::new(PerCpu::new(0))) }; MAX_CPUS];

/// Reads a field of this CPU with one instruction.
macro_rules! gs_read {
    ($($field:ident).+, $register:ident, $format:literal, $type:ty) => {{
        let value: $type;
        // SAFETY: GS points at this CPU's `PerCpu` since `install`; the field has this width.
        unsafe {
            asm!(concat!("mov {", $format, "}, gs:[{offset}]"), out($register) value,
                 offset = const offset_of!(PerCpu, $($field).+),
                 options(nostack, preserves_flags, readonly));
        }
        value
    }};
}

/// Writes a field of this CPU with one instruction.
macro_rules! gs_write {
    ($($field:ident).+, $value:expr) => {{
        // SAFETY: as for `gs_read`; the fields written are 8 bytes wide.
        unsafe {
            asm!("mov gs:[{offset}], {value}", value = in(reg) $value,
                 offset = const offset_of!(PerCpu, $($field).+),
                 options(nostack, preserves_flags));
        }
    }};
}

/// Makes slot `cpu` this CPU's. Once after each reset, before anything else here.
pub fn install(cpu: usize) {
    let slot = PER_CPU[cpu].0.get();
    // SAFETY: in bounds; no other CPU uses this slot, and this CPU only begins to.
    unsafe { *slot = PerCpu::new(cpu as u32) };
    GsBase::write(VirtAddr::from_ptr(slot));
    // The user's: always 0, as nothing lets programs change it.
    KernelGsBase::write(VirtAddr::zero());
    #[cfg(feature = "isolation")]
    {
        let top = super::isolation::entry_stack_top(cpu);
        gs_write!(entry.iret_frame, top - super::isolation::IRET_FRAME_BYTES);
        descriptors::set_ring0_stack(cpu, top);
    }
}

/// The address of what CPU `cpu` keeps for itself; with its first page begins what user roots map.
#[cfg(feature = "isolation")]
pub(super) fn address(cpu: usize) -> usize {
    (&raw const PER_CPU[cpu]).addr()
}

/// What entries write to CR3, and what exits do. Interrupts are off.
#[cfg(feature = "isolation")]
pub(super) fn set_cr3((kernel, user): (u64, u64)) {
    gs_write!(entry.kernel_cr3, kernel);
    gs_write!(entry.user_cr3, user);
}

/// What exits write to CR3 on this CPU.
#[cfg(feature = "isolation")]
pub(super) fn user_cr3() -> u64 {
    gs_read!(entry.user_cr3, reg, "0:r", u64)
}

/// Changes it. Interrupts are off.
#[cfg(feature = "isolation")]
pub(super) fn set_user_cr3(value: u64) {
    gs_write!(entry.user_cr3, value);
}

/// The running CPU. Stale at once when the caller can be moved.
#[inline]
pub fn cpu_id() -> CpuId {
    CpuId::new(gs_read!(cpu, reg, "0:e", u32))
}

/// What [`set_current_thread`] stored on this CPU; null before.
#[inline]
pub fn current_thread() -> *mut () {
    gs_read!(current_thread, reg, "0:r", *mut ())
}

/// Remembers the running thread of this CPU. Opaque here.
#[inline]
pub fn set_current_thread(thread: *mut ()) {
    gs_write!(current_thread, thread);
}

/// Where this CPU's stack pointer starts on entry from ring 3 (interrupts, exceptions, SYSCALL).
/// 16-byte aligned. Interrupts are off.
pub fn set_kernel_stack(top: usize) {
    assert!(
        top.is_multiple_of(16),
        "kernel stack {top:#x} is not aligned"
    );
    gs_write!(kernel_stack, top);
    #[cfg(not(feature = "isolation"))]
    descriptors::set_ring0_stack(cpu_id().index(), top);
}

/// What [`set_kernel_stack`] stored on this CPU.
#[inline]
pub fn kernel_stack() -> usize {
    gs_read!(kernel_stack, reg, "0:r", usize)
}

/// Counts one more reason to keep the running thread on this CPU, and others off it. For [`preempt`](crate::preempt) alone.
#[inline]
pub fn raise_preempt_count() {
    // SAFETY: as for `gs_read`; one instruction, so an interrupt cannot split it. Not `nomem`: what
    // follows stays behind it.
    unsafe {
        asm!("inc dword ptr gs:[{offset}]", offset = const offset_of!(PerCpu, preempt_count),
             options(nostack));
    }
}

/// Undoes one [`raise_preempt_count`]; whether it was the last. For [`preempt`](crate::preempt) alone.
#[inline]
pub fn lower_preempt_count() -> bool {
    let is_last: u8;
    // SAFETY: as for `raise_preempt_count`.
    unsafe {
        asm!("dec dword ptr gs:[{offset}]", "sete {is_last}",
             offset = const offset_of!(PerCpu, preempt_count), is_last = out(reg_byte) is_last,
             options(nostack));
    }
    is_last != 0
}

/// Asks this CPU to choose a thread anew: on the way out of the interrupt, at the last `preempt::enable`, or on the
/// way to user mode, whichever comes first. Interrupts or preemption must be off.
#[inline]
pub fn set_need_resched() {
    // SAFETY: as for `raise_preempt_count`.
    unsafe {
        asm!("mov dword ptr gs:[{offset}], 1", offset = const offset_of!(PerCpu, need_resched),
             options(nostack, preserves_flags));
    }
}

/// The scheduler does what [`set_need_resched`] asked for. Interrupts are off.
#[inline]
pub fn clear_need_resched() {
    // SAFETY: as for `raise_preempt_count`.
    unsafe {
        asm!("mov dword ptr gs:[{offset}], 0", offset = const offset_of!(PerCpu, need_resched),
             options(nostack, preserves_flags));
    }
}

/// Whether this CPU is to choose a thread anew.
#[inline]
pub fn need_resched() -> bool {
    gs_read!(need_resched, reg, "0:e", u32) != 0
}

/// Whether flushes are left to this CPU. Stale at once when the caller can be moved.
#[inline]
pub fn is_deferring() -> bool {
    gs_read!(deferring, reg, "0:e", u32) != 0
}

/// Says so, or that it is over. Interrupts are off.
#[inline]
pub fn set_deferring(deferring: bool) {
    // SAFETY: as for `raise_preempt_count`.
    unsafe {
        asm!("mov dword ptr gs:[{offset}], {value:e}", value = in(reg) u32::from(deferring),
             offset = const offset_of!(PerCpu, deferring), options(nostack, preserves_flags));
    }
}

/// How many `preempt::disable` are open on this CPU.
#[inline]
pub fn preempt_count() -> u32 {
    gs_read!(preempt_count, reg, "0:e", u32)
}

/// Counts a timer tick of this CPU.
#[inline]
pub fn count_tick() {
    // SAFETY: as for `raise_preempt_count`.
    unsafe {
        asm!("inc qword ptr gs:[{offset}]", offset = const offset_of!(PerCpu, ticks),
             options(nostack));
    }
}

/// Timer ticks of any CPU so far; may be a little old.
pub fn ticks(cpu: usize) -> u64 {
    let slot = PER_CPU[cpu].0.get();
    // SAFETY: in bounds and aligned.
    let ticks = unsafe { &raw const (*slot).ticks };
    // SAFETY: valid; the owner's increments are single aligned stores, never torn.
    unsafe { ticks.read_volatile() }
}
