//! The CMOS clock (Motorola MC146818 data sheet), read once. Taken to hold UTC.

use super::port;

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
const SECONDS: u8 = 0;
const MINUTES: u8 = 2;
const HOURS: u8 = 4;
const DAY: u8 = 7;
const MONTH: u8 = 8;
const YEAR: u8 = 9;
const STATUS_A: u8 = 10;
const STATUS_B: u8 = 11;
const UPDATING: u8 = 1 << 7;
const BINARY: u8 = 1 << 2;
const HOURS_24: u8 = 1 << 1;
const PM: u8 = 1 << 7;
/// An update takes 2 ms at most; after this many reads the clock is broken and any value does.
const UPDATE_POLLS: u32 = 10_000;

/// Nanoseconds since 1970-01-01; 0 if the clock holds no date.
pub fn read_ns() -> u64 {
    // Two equal readings in a row were not torn by an update.
    let mut before = read_once();
    for _ in 0..4 {
        let again = read_once();
        if again == before {
            break;
        }
        before = again;
    }
    seconds_since_1970(before) * 1_000_000_000
}

/// Second, minute, hour, day, month, year.
type Reading = [u64; 6];

fn read_once() -> Reading {
    for _ in 0..UPDATE_POLLS {
        if register(STATUS_A) & UPDATING == 0 {
            break;
        }
    }
    let mode = register(STATUS_B);
    let decode = |raw: u8| -> u64 {
        if mode & BINARY != 0 {
            u64::from(raw)
        } else {
            u64::from(raw >> 4) * 10 + u64::from(raw & 0xf)
        }
    };
    let raw_hour = register(HOURS);
    let mut hour = decode(raw_hour & !PM);
    if mode & HOURS_24 == 0 {
        hour = hour % 12 + if raw_hour & PM != 0 { 12 } else { 0 };
    }
    [
        decode(register(SECONDS)),
        decode(register(MINUTES)),
        hour,
        decode(register(DAY)),
        decode(register(MONTH)),
        2000 + decode(register(YEAR)),
    ]
}

fn register(index: u8) -> u8 {
    port::write(INDEX, index);
    port::read(DATA)
}

/// Days by counting March as the first month, so that the leap day is a year's last.
fn seconds_since_1970([second, minute, hour, day, month, year]: Reading) -> u64 {
    /// Days from 0000-03-01 to 1970-01-01.
    const EPOCH_DAYS: u64 = 719_468;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return 0;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    (days - EPOCH_DAYS) * 86_400 + hour * 3600 + minute * 60 + second
}
