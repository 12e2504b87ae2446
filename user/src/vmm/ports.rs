//! Ports: which device is where.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pit::Pit;
use super::rtc::Rtc;
use super::serial::Serial;

const COM1: u16 = 0x3f8;
const COM1_LAST: u16 = 0x3ff;
const PIT_CHANNEL_0: u16 = 0x40;
const PIT_COMMAND: u16 = 0x43;
const KEYBOARD_COMMAND: u16 = 0x64;
const PULSE_RESET: u8 = 0xfe;
const RTC_INDEX: u16 = 0x70;
const RTC_DATA: u16 = 0x71;
/// QEMU's `isa-debug-exit`: a write of a number ends the machine with it.
const DEBUG_EXIT: u16 = 0xf4;
/// What a port reads as that belongs to nothing.
const NOTHING: u8 = 0xff;

/// How a guest ends its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a number.
    Exit(u8),
    /// By a reset.
    Reset,
}

/// The devices.
#[derive(Debug, Default)]
pub struct Ports {
    serial: Mutex<Serial>,
    pit: Mutex<Pit>,
    rtc: Mutex<Rtc>,
}

impl Ports {
    /// Reads a port, `now_ns` by the machine's clock.
    pub fn read(&self, port: u16, to: &mut [u8], now_ns: u64) {
        to.fill(NOTHING);
        let Some(first) = to.first_mut() else { return };
        *first = match port {
            COM1..=COM1_LAST => lock(&self.serial).read(port - COM1),
            PIT_CHANNEL_0 => lock(&self.pit).read(now_ns),
            RTC_DATA => lock(&self.rtc).read(),
            _ => NOTHING,
        };
    }

    /// Writes to one. What belongs to nothing takes anything.
    pub fn write(&self, port: u16, from: &[u8], now_ns: u64) -> Option<End> {
        let &value = from.first()?;
        match port {
            COM1..=COM1_LAST => lock(&self.serial).write(port - COM1, value),
            PIT_CHANNEL_0 => lock(&self.pit).write(value, now_ns),
            PIT_COMMAND => lock(&self.pit).command(value, now_ns),
            RTC_INDEX => lock(&self.rtc).choose(value),
            DEBUG_EXIT => return Some(End::Exit(value)),
            KEYBOARD_COMMAND if value == PULSE_RESET => return Some(End::Reset),
            _ => {}
        }
        None
    }

    /// Shows what is left of a line.
    pub fn drain(&self) {
        lock(&self.serial).drain();
    }
}

/// A lock that a panic has not spoilt: the process ends with any.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
