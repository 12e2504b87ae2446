//! Who handles which vector, and what happens before every return to ring 3.

use core::sync::atomic::{AtomicBool, Ordering};

use super::fault;
use crate::addr::USER_END;
use crate::arch::trap::{TrapFrame, vectors};
use crate::arch::{apic, cpu, percpu, timer};
use crate::irq::{self, IrqState};
use crate::isolation;
use crate::latency;
use crate::platform::SHOOTDOWN;
use crate::task::{self, Mode, UserException};
use crate::{backtrace, calls, panic, quiet, syscall as syscalls, torture};

const SHOOTDOWN_VECTOR: u64 = vectors::SHOOTDOWN.as_u8() as u64;
const TIMER_VECTOR: u64 = vectors::TIMER.as_u8() as u64;
const RESCHEDULE_VECTOR: u64 = vectors::RESCHEDULE.as_u8() as u64;
const CALLS_VECTOR: u64 = vectors::CALLS.as_u8() as u64;
const SPURIOUS_VECTOR: u64 = vectors::SPURIOUS.as_u8() as u64;

/// Trap and resume flags: SYSRET would act on them too early or drop them.
const FLAGS_FOR_IRET: u64 = 1 << 8 | 1 << 16;

/// All vectors but NMI, #DF and #MC. Called by `entry.s` with interrupts off.
pub extern "C" fn trap(frame: &mut TrapFrame) {
    let was_quiet = quiet::leave();
    if frame.is_from_user() {
        isolation::left_user();
    }
    match frame.vector {
        SHOOTDOWN_VECTOR => {
            note_entry(frame);
            // First the end of interrupt, so that a request that comes during the handler
            // interrupts again (I7).
            apic::local().end_of_interrupt();
            SHOOTDOWN.handle_ipi();
        }
        TIMER_VECTOR => {
            note_entry(frame);
            apic::local().end_of_interrupt();
            timer_interrupt(mode_of(frame));
        }
        RESCHEDULE_VECTOR => {
            note_entry(frame);
            apic::local().end_of_interrupt();
            if timer::is_overdue() {
                timer_interrupt(mode_of(frame));
            }
            percpu::set_need_resched();
        }
        CALLS_VECTOR => {
            note_entry(frame);
            apic::local().end_of_interrupt();
            calls::interrupt();
        }
        SPURIOUS_VECTOR => {}
        vector if vector as usize >= vectors::FIRST_EXTERNAL => unexpected_interrupt(vector),
        // What it interrupted goes on, or the thread ends.
        _ => {
            note_entry(frame);
            fault::exception(frame);
        }
    }
    if frame.is_from_user() {
        prepare_user_return(frame);
    } else if IrqState::from_rflags(frame.rflags).is_enabled() {
        // Its own stack keeps what was interrupted until the thread runs again, perhaps on another CPU.
        task::preempt_interrupted();
    }
    note_exit(frame);
    // It may have interrupted the way out of a guest.
    if frame.is_from_user() {
        isolation::enter_user();
    }
    if was_quiet || frame.is_from_user() {
        quiet::enter();
    }
}

/// What an interrupt came to.
fn mode_of(frame: &TrapFrame) -> Mode {
    match frame.is_from_user() {
        true => Mode::User,
        false => Mode::Kernel,
    }
}

fn timer_interrupt(mode: Mode) {
    #[cfg(feature = "breaks")]
    if crate::mm::invalidate::breaks::loses_tick() {
        return;
    }
    let is_tick = timer::take_tick();
    if is_tick {
        // Under QEMU 7.2 the interrupt of a CPU that leaves a guest may get lost, and with it the tick that would end a guest's turn (docs/guests.md).
        if let Some(neighbour) = timer::overdue_neighbour() {
            apic::send_reschedule(neighbour);
        }
        percpu::count_tick();
        task::timer_tick(mode);
        SHOOTDOWN.watch().look();
        torture::tick();
    }
    timer::set(task::expire_deadlines());
}

/// The processor has turned interrupts off.
#[track_caller]
fn note_entry(frame: &TrapFrame) {
    if IrqState::from_rflags(frame.rflags).is_enabled() {
        latency::irqs_off();
    }
}

/// It is about to turn them on again.
fn note_exit(frame: &TrapFrame) {
    if IrqState::from_rflags(frame.rflags).is_enabled() {
        latency::irqs_on();
    }
}

/// System calls. True: the frame may be left by SYSRET.
pub extern "C" fn syscall(frame: &mut TrapFrame) -> bool {
    quiet::leave();
    isolation::left_user();
    task::defer_flushes();
    irq::enable();
    syscalls::dispatch(frame);
    irq::disable();
    prepare_user_return(frame);
    note_exit(frame);
    isolation::enter_user();
    quiet::enter();
    frame.vector == TrapFrame::SYSCALL
        && frame.rcx == frame.rip
        && frame.r11 == frame.rflags
        && frame.rflags & FLAGS_FOR_IRET == 0
        && frame.rip < USER_END as u64
}

/// NMI, #DF and #MC, on stacks of their own.
pub extern "C" fn trap_paranoid(frame: &mut TrapFrame) {
    let was_quiet = quiet::leave();
    panic::stop_if_asked();
    if frame.vector == vectors::NMI as u64 {
        // Two more kinds of senders: a CPU that wants backtraces, and one that wakes a parked CPU, which is done with the NMI itself.
        #[cfg(feature = "selftest")]
        crate::selftest::on_nmi();
        // It may have come between a page fault and the look at CR2, and probing pointers may fault itself.
        let faulted_at = cpu::fault_address();
        backtrace::answer(frame);
        cpu::set_fault_address(faulted_at);
        // Any other (a button, a debugger) is ignored; a message here could deadlock on the console.
        if was_quiet {
            quiet::enter();
        }
        return;
    }
    panic::exception(frame);
}

/// Runs the scheduler's hook until the frame can be loaded without a fault in ring 0: IRET and
/// SYSRET to a non-canonical address raise #GP in the kernel (SDM vol. 2, "IRET", "SYSRET").
fn prepare_user_return(frame: &mut TrapFrame) {
    irq::disable();
    loop {
        task::before_user_return(frame);
        if is_canonical(frame.rip) {
            break;
        }
        irq::enable();
        task::user_exception(frame, UserException::Protection { code: 0 });
        irq::disable();
    }
    // Interrupts stay off from here: nobody else begins anew.
    task::catch_up();
    frame.sanitize();
}

/// Bits 63 to 47 are equal.
const fn is_canonical(address: u64) -> bool {
    let top = address as i64 >> 47;
    top == 0 || top == -1
}

/// Nothing but the local APIC interrupts this kernel; legacy controllers are masked.
fn unexpected_interrupt(vector: u64) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!("unexpected interrupt {vector:#x}; further ones are not reported");
    }
    apic::local().end_of_interrupt();
}
