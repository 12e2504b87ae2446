//! Ending the machine with a code that the host can see.

use x86_64::instructions::port::PortWriteOnly;

use super::{idt, irq};

/// Exit code for a panic.
pub const PANIC: u8 = 0x7e;
/// Exit code for a machine that cannot boot.
pub const BOOT_ERROR: u8 = 0x7d;

/// QEMU's `isa-debug-exit` device: a write of `v` ends the process with `v << 1 | 1`.
const DEBUG_EXIT: u16 = 0xf4;
/// Keyboard controller command port; 0xfe pulses the reset line.
const KEYBOARD_COMMAND: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;

/// Ends QEMU with the process exit code `code << 1 | 1`; machines without that device are reset,
/// by the keyboard controller, else by a triple fault. Any context.
pub fn qemu_exit(code: u8) -> ! {
    irq::disable();
    // SAFETY: the device ends the emulator; without it the port belongs to nothing.
    unsafe { PortWriteOnly::new(DEBUG_EXIT).write(u32::from(code)) };
    // SAFETY: resets the machine, which is what is wanted.
    unsafe { PortWriteOnly::new(KEYBOARD_COMMAND).write(PULSE_RESET) };
    idt::break_on_purpose()
}
