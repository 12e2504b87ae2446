//! I/O ports of the timer and the clock.

use x86_64::instructions::port::Port;

/// A byte from one of them.
pub(super) fn read(port: u16) -> u8 {
    // SAFETY: reading the 8254, its gate port and the CMOS clock has no effect on memory.
    unsafe { Port::new(port).read() }
}

/// A byte to one of them.
pub(super) fn write(port: u16, value: u8) {
    // SAFETY: as for `read`.
    unsafe { Port::new(port).write(value) };
}
