//! Channel 2 of the 8254 timer, counting down once from its highest value.

use super::{port_read, port_write};

/// Counts a second.
pub const HZ: u64 = 1_193_182;
/// A poll takes some 100 ns or more: far more than 10 ms in all.
pub const POLL_LIMIT: u32 = 10_000_000;

const CHANNEL_2: u16 = 0x42;
const COMMAND: u16 = 0x43;
/// Gate and output of channel 2.
const CONTROL: u16 = 0x61;
const GATE: u8 = 1 << 0;
const SPEAKER: u8 = 1 << 1;
const OUTPUT: u8 = 1 << 5;
/// Channel 2, both bytes, mode 0 (the output rises at 0), binary.
const ONE_SHOT: u8 = 0b1011_0000;
/// Channel 2, hold the count for reading.
const LATCH: u8 = 0b1000_0000;

/// Counts in this many milliseconds.
pub const fn counts_for_ms(ms: u64) -> u16 {
    (HZ * ms / 1000) as u16
}

/// Starts the count, 55 ms long.
pub fn start() {
    let control = port_read(CONTROL) & !SPEAKER;
    port_write(CONTROL, control | GATE);
    port_write(COMMAND, ONE_SHOT);
    port_write(CHANNEL_2, 0xff);
    port_write(CHANNEL_2, 0xff);
}

/// The count now.
pub fn read() -> u16 {
    port_write(COMMAND, LATCH);
    let low = port_read(CHANNEL_2);
    let high = port_read(CHANNEL_2);
    u16::from_le_bytes([low, high])
}

/// Whether the count has passed 0 since [`start`].
pub fn expired() -> bool {
    port_read(CONTROL) & OUTPUT != 0
}
