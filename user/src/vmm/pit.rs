//! Channel 0 of the 8254 timer, counting down once (Intel 8254 data sheet): a kernel compares its other clocks with it. It interrupts nobody.

const HZ: u128 = 1_193_182;
const NS_PER_S: u128 = 1_000_000_000;

/// Of the command: what it is about, in the highest two bits.
const CHANNEL_SHIFT: u32 = 6;
const READ_BACK: u8 = 3;
/// Of a command for a channel: the bytes that follow; none, and the count is kept for reading.
const ACCESS_MASK: u8 = 0x30;
/// Of a read-back, active low: the status is wanted; and the channel.
const NO_STATUS: u8 = 1 << 4;
const CHANNEL_0: u8 = 1 << 1;
/// Of the status: the output pin.
const OUTPUT: u8 = 1 << 7;

/// The device.
#[derive(Debug, Default)]
pub struct Pit {
    /// When the count began, and where.
    began_ns: u64,
    initial: u16,
    command: u8,
    low_written: Option<u8>,
    /// What the next reads find.
    status: Option<u8>,
    latched: Option<u16>,
    high_is_next: bool,
}

impl Pit {
    /// Writes the command register.
    pub fn command(&mut self, value: u8, now_ns: u64) {
        match value >> CHANNEL_SHIFT {
            0 if value & ACCESS_MASK == 0 => {
                self.latched.get_or_insert(self.count(now_ns));
                self.high_is_next = false;
            }
            0 => {
                *self = Self {
                    command: value & 0x3f,
                    ..Self::default()
                }
            }
            READ_BACK if value & CHANNEL_0 != 0 && value & NO_STATUS == 0 => {
                let output = if self.has_expired(now_ns) { OUTPUT } else { 0 };
                self.status = Some(self.command | output);
            }
            _ => {}
        }
    }

    /// Writes the count: low byte, high byte.
    pub fn write(&mut self, value: u8, now_ns: u64) {
        match self.low_written.take() {
            None => self.low_written = Some(value),
            Some(low) => {
                self.initial = u16::from_le_bytes([low, value]);
                self.began_ns = now_ns;
            }
        }
    }

    /// Reads the status if it was asked for, else the count: low byte, high byte.
    pub fn read(&mut self, now_ns: u64) -> u8 {
        if let Some(status) = self.status.take() {
            return status;
        }
        let count = self.latched.unwrap_or_else(|| self.count(now_ns));
        let [low, high] = count.to_le_bytes();
        self.high_is_next = !self.high_is_next;
        if self.high_is_next {
            return low;
        }
        self.latched = None;
        high
    }

    fn count(&self, now_ns: u64) -> u16 {
        self.initial.wrapping_sub(self.counted(now_ns) as u16)
    }

    fn has_expired(&self, now_ns: u64) -> bool {
        let whole = match self.initial {
            0 => 1 << 16,
            count => u128::from(count),
        };
        self.counted(now_ns) >= whole
    }

    fn counted(&self, now_ns: u64) -> u128 {
        u128::from(now_ns.saturating_sub(self.began_ns)) * HZ / NS_PER_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_down_and_says_when_it_is_over() {
        let mut pit = Pit::default();
        pit.command(0x30, 0);
        pit.write(0xff, 0);
        pit.write(0xff, 1000);
        let mut read = |now_ns| {
            pit.command(0, now_ns);
            let bytes = [pit.read(now_ns), pit.read(now_ns + 9_000_000)];
            pit.command(0xe2, now_ns);
            (u16::from_le_bytes(bytes), pit.read(now_ns) & OUTPUT != 0)
        };
        assert_eq!(read(1000), (0xffff, false));
        assert_eq!(read(10_001_000), (0xffff - 11931, false));
        assert!(read(55_000_000).1);
    }
}
