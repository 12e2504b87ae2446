//! Ending the machine with a code that the host can see.

use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::port::{Port, PortWriteOnly};

use shootdown_x86::irq;

use super::idt;

/// Exit code for a panic.
pub const PANIC: u8 = 0x7e;
/// Exit code for a machine that cannot boot.
pub const BOOT_ERROR: u8 = 0x7d;

/// QEMU's `isa-debug-exit` device: a write of `v` ends the process with `v << 1 | 1`.
const DEBUG_EXIT: u16 = 0xf4;
/// Keyboard controller command port; 0xfe pulses the reset line.
const KEYBOARD_COMMAND: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;

/// Bochs's power switch: it ends when these bytes come, one after the other.
const BOCHS_SHUTDOWN: u16 = 0x8900;
const BOCHS_WORD: &[u8] = b"Shutdown";
/// COM1's line status, and its bit for "all is sent" (16550 data sheet).
const LINE_STATUS: u16 = 0x3fd;
const ALL_SENT: u8 = 1 << 6;
/// Reads of it: a full FIFO takes 1.4 ms at 115200 baud, a read more than 100 ns.
const STATUS_READS: u32 = 1_000_000;
/// Any port could belong to something on another machine, so Bochs must be named.
static IS_BOCHS: AtomicBool = AtomicBool::new(false);
/// Whether a machine that does not end stays as it is.
static HALTS: AtomicBool = AtomicBool::new(false);

/// From now on [`qemu_exit`] ends Bochs, which has no exit codes.
pub fn use_bochs() {
    IS_BOCHS.store(true, Ordering::Relaxed);
}

/// From now on [`qemu_exit`] leaves a machine that does not end as it is, with its last words on the screen.
pub fn halt_at_end() {
    HALTS.store(true, Ordering::Relaxed);
}

/// Ends QEMU with the process exit code `code << 1 | 1`; machines without that device halt if they were [told
/// to](halt_at_end), and are reset otherwise, by the keyboard controller, else by a triple fault. Any context.
pub fn qemu_exit(code: u8) -> ! {
    let _ = irq::save();
    // SAFETY: the device ends the emulator; without it the port belongs to nothing.
    unsafe { PortWriteOnly::new(DEBUG_EXIT).write(u32::from(code)) };
    if IS_BOCHS.load(Ordering::Relaxed) {
        end_bochs();
    }
    while HALTS.load(Ordering::Relaxed) {
        x86_64::instructions::hlt();
    }
    // SAFETY: resets the machine, which is what is wanted.
    unsafe { PortWriteOnly::new(KEYBOARD_COMMAND).write(PULSE_RESET) };
    idt::break_on_purpose()
}

fn end_bochs() {
    // What the serial line still holds would be lost.
    for _ in 0..STATUS_READS {
        // SAFETY: reading the line status has no effect that matters now.
        let status: u8 = unsafe { Port::new(LINE_STATUS).read() };
        if status & ALL_SENT != 0 {
            break;
        }
    }
    for &byte in BOCHS_WORD {
        // SAFETY: Bochs, as the command line says: the last byte ends it.
        unsafe { PortWriteOnly::new(BOCHS_SHUTDOWN).write(byte) };
    }
}
