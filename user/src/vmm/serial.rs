//! The first serial port, as far as it sends (16550 data sheet). What the guest writes comes out on standard output, whole lines at a time.

use std::io::Write;

const DATA: u16 = 0;
const INTERRUPT_ENABLE: u16 = 1;
const INTERRUPT_ID: u16 = 2;
const LINE_CONTROL: u16 = 3;
const MODEM_CONTROL: u16 = 4;
const LINE_STATUS: u16 = 5;
const MODEM_STATUS: u16 = 6;
const SCRATCH: u16 = 7;

/// Of the line control: the first two registers are the divisor.
const DIVISOR_LATCH: u8 = 1 << 7;
/// Of the modem control: what is sent comes back.
const LOOPBACK: u8 = 1 << 4;
/// Both FIFOs are on, and no interrupt waits.
const FIFO_ON: u8 = 0xc1;
/// Of the line status: something was received; all is sent.
const RECEIVED: u8 = 1 << 0;
const SENT: u8 = 0x60;
/// Of the modem status: carrier, the other side is ready, and clear to send.
const CONNECTED: u8 = 0xb0;
/// Longer lines come out in pieces.
const LINE_BYTES: usize = 1024;

/// The device.
#[derive(Debug, Default)]
pub struct Serial {
    line: Vec<u8>,
    divisor: [u8; 2],
    interrupt_enable: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    returned: Option<u8>,
}

impl Serial {
    /// Reads a register.
    pub fn read(&mut self, register: u16) -> u8 {
        match register {
            DATA | INTERRUPT_ENABLE if self.is_latched() => self.divisor[usize::from(register)],
            DATA => self.returned.take().unwrap_or(0),
            INTERRUPT_ENABLE => self.interrupt_enable,
            INTERRUPT_ID => FIFO_ON,
            LINE_CONTROL => self.line_control,
            MODEM_CONTROL => self.modem_control,
            LINE_STATUS => SENT | self.returned.map_or(0, |_| RECEIVED),
            MODEM_STATUS => CONNECTED,
            _ => self.scratch,
        }
    }

    /// Writes one.
    pub fn write(&mut self, register: u16, value: u8) {
        match register {
            DATA | INTERRUPT_ENABLE if self.is_latched() => {
                self.divisor[usize::from(register)] = value;
            }
            DATA if self.modem_control & LOOPBACK != 0 => self.returned = Some(value),
            DATA => self.send(value),
            INTERRUPT_ENABLE => self.interrupt_enable = value & 0xf,
            LINE_CONTROL => self.line_control = value,
            MODEM_CONTROL => self.modem_control = value,
            SCRATCH => self.scratch = value,
            _ => {}
        }
    }

    /// Shows what is left of a line.
    pub fn drain(&mut self) {
        let mut output = std::io::stdout().lock();
        // A reader that has gone away is no reason to end the guest early.
        let _ignored = output.write_all(&self.line).and_then(|()| output.flush());
        self.line.clear();
    }

    fn send(&mut self, byte: u8) {
        if byte != b'\r' {
            self.line.push(byte);
        }
        if byte == b'\n' || self.line.len() == LINE_BYTES {
            self.drain();
        }
    }

    fn is_latched(&self) -> bool {
        self.line_control & DIVISOR_LATCH != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_divisor_is_not_sent() {
        let mut serial = Serial::default();
        serial.write(LINE_CONTROL, DIVISOR_LATCH);
        serial.write(DATA, 1);
        assert_eq!((serial.read(DATA), serial.line.len()), (1, 0));
        serial.write(LINE_CONTROL, 3);
        serial.write(DATA, b'a');
        assert_eq!((serial.read(LINE_STATUS), &*serial.line), (SENT, &b"a"[..]));
    }

    #[test]
    fn a_loop_returns_what_is_sent() {
        let mut serial = Serial::default();
        serial.write(MODEM_CONTROL, LOOPBACK);
        serial.write(DATA, 0x42);
        assert_eq!(serial.read(LINE_STATUS), SENT | RECEIVED);
        assert_eq!((serial.read(DATA), serial.read(LINE_STATUS)), (0x42, SENT));
    }
}
