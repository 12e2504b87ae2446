//! Channel 0 of the 8254 timer, counting down once from its highest value. Its interrupt is masked.
//!
//! Channel 2 would need the gate in port 0x61, which QEMU's `microvm` does not have.

use super::port;

/// Counts a second.
pub const HZ: u64 = 1_193_182;
/// A poll takes some 100 ns or more: far more than 10 ms in all.
pub const POLL_LIMIT: u32 = 10_000_000;

const CHANNEL_0: u16 = 0x40;
const COMMAND: u16 = 0x43;
/// Channel 0, both bytes, mode 0 (the output rises at 0), binary.
const ONE_SHOT: u8 = 0b0011_0000;
/// Channel 0, hold the count for reading.
const LATCH: u8 = 0b0000_0000;
/// Read back the status of channel 0, not the count.
const READ_STATUS: u8 = 0b1110_0010;
/// The output pin, in the status.
const OUTPUT: u8 = 1 << 7;

/// Counts in this many milliseconds.
pub const fn counts_for_ms(ms: u64) -> u16 {
    (HZ * ms / 1000) as u16
}

/// Starts the count, 55 ms long.
pub fn start() {
    port::write(COMMAND, ONE_SHOT);
    port::write(CHANNEL_0, 0xff);
    port::write(CHANNEL_0, 0xff);
}

/// The count now.
pub fn read() -> u16 {
    port::write(COMMAND, LATCH);
    let low = port::read(CHANNEL_0);
    let high = port::read(CHANNEL_0);
    u16::from_le_bytes([low, high])
}

/// Whether the count has passed 0 since [`start`].
pub fn expired() -> bool {
    port::write(COMMAND, READ_STATUS);
    port::read(CHANNEL_0) & OUTPUT != 0
}
