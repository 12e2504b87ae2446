//! The CMOS clock (Motorola MC146818 data sheet), in binary and UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const STATUS_B: u8 = 11;
/// Binary numbers, 24 hours.
const MODE: u8 = 1 << 2 | 1 << 1;

/// The device.
#[derive(Debug, Default)]
pub struct Rtc {
    index: u8,
}

impl Rtc {
    /// Chooses a register.
    pub fn choose(&mut self, index: u8) {
        self.index = index & 0x7f;
    }

    /// Reads it.
    pub fn read(&self) -> u8 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        register(self.index, since.map_or(0, |since| since.as_secs()))
    }
}

/// A register so many seconds after 1970.
fn register(index: u8, seconds: u64) -> u8 {
    let (year, month, day) = date(seconds / 86_400);
    let value = match index {
        0 => seconds % 60,
        2 => seconds / 60 % 60,
        4 => seconds / 3600 % 24,
        7 => day,
        8 => month,
        9 => year % 100,
        STATUS_B => u64::from(MODE),
        _ => 0,
    };
    value as u8
}

/// Year, month and day, so many days after 1970. Years begin in March here, so that a leap day is the last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (late, month) = match month {
        0..10 => (0, month + 3),
        _ => (1, month - 9),
    };
    (era * 400 + year + late, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        assert_eq!(date(0), (1970, 1, 1));
        assert_eq!(date(11_016), (2000, 2, 29));
        assert_eq!(date(11_017), (2000, 3, 1));
        assert_eq!(date(20_513), (2026, 3, 1));
        assert_eq!(
            [2, 4, 9].map(|index| register(index, 951_868_800 + 3720)),
            [2, 1, 0]
        );
    }
}
