//! COM1.

use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};
use x86_64::instructions::port::Port;

/// The device.
pub(super) type Serial = Uart16550<PioBackend>;

/// Where it is, by convention.
const PORT: u16 = 0x3f8;
/// What the device takes at once.
pub(super) const FIFO_BYTES: usize = 16;

/// The line status, and its bit for "all is sent" (16550 data sheet).
const LINE_STATUS: u16 = PORT + 5;
const ALL_SENT: u8 = 1 << 6;
/// What a port reads as that belongs to nothing.
const NOTHING: u8 = 0xff;
/// Reads of it: a full FIFO takes 1.4 ms at 115200 baud and 67 ms at 2400, a read more than 100 ns.
const STATUS_READS: u32 = 1_000_000;

/// The device, ready to send; None where there is none, or one that sends nothing.
pub(super) fn find() -> Option<Serial> {
    if !sends() {
        return None;
    }
    let mut device = device()?;
    device.init(Config::default()).ok()?;
    Some(device)
}

/// The device as it is: somebody has found it before.
pub(super) fn device() -> Option<Serial> {
    // SAFETY: COM1 by convention; this module's parent is its only user.
    unsafe { Uart16550::new_port(PORT) }.ok()
}

/// Whether all that was written before has left. A device that never says so would be waited for without end.
fn sends() -> bool {
    (0..STATUS_READS).any(|_| {
        // SAFETY: reading the line status has no effect that matters now.
        let status: u8 = unsafe { Port::new(LINE_STATUS).read() };
        status != NOTHING && status & ALL_SENT != 0
    })
}
