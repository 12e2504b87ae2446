//! The serial console: log lines and the raw output of programs, through COM1.

use core::fmt::{self, Write};

use log::{LevelFilter, Log, Metadata, Record};
use uart_16550::backend::PioBackend;
use uart_16550::{Config, Uart16550};

use crate::arch::{percpu, tsc};
use crate::platform::SHOOTDOWN;
use crate::sync::IrqMutex;

/// COM1.
const PORT: u16 = 0x3f8;
/// What the device takes at once.
const FIFO_BYTES: usize = 16;

static UART: IrqMutex<Uart> = IrqMutex::new(Uart(None));

/// The device; None when the machine has none, and output is dropped.
struct Uart(Option<Uart16550<PioBackend>>);

impl Uart {
    fn send(&mut self, bytes: &[u8]) {
        if let Some(device) = &mut self.0 {
            device.send_bytes_exact(bytes);
        }
    }
}

/// For panics and reports: bytes and nothing else.
impl Write for Uart {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}

/// For everybody else: interrupts are off while the lock is held, and a long line takes a second at
/// 115200 baud, so flushes are served in between. Functions that other CPUs have this one run wait until the lock is free.
struct Serving<'a>(&'a mut Uart);

impl Write for Serving<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}

impl Serving<'_> {
    fn send(&mut self, bytes: &[u8]) {
        for burst in bytes.chunks(FIFO_BYTES) {
            self.0.send(burst);
            SHOOTDOWN.poll();
        }
    }
}

/// Finds the device and makes it the target of `log`. Boot CPU, once.
pub fn init() {
    // SAFETY: COM1 by convention; this lock is its only user.
    if let Ok(mut device) = unsafe { Uart16550::new_port(PORT) }
        && device.init(Config::default()).is_ok()
    {
        UART.lock().0 = Some(device);
    }
    log::set_logger(&Logger).expect("the only logger");
    log::set_max_level(LevelFilter::Info);
}

/// Sets the log level from the value of `loglevel=`: error, warn, info, debug or trace.
pub fn set_level(name: Option<&str>) {
    match name.map(str::parse) {
        None => {}
        Some(Ok(level)) => log::set_max_level(level),
        Some(Err(_)) => log::warn!(
            "loglevel={} is none of error, warn, info, debug, trace; using info",
            name.unwrap_or_default()
        ),
    }
}

/// Writes bytes as they are, as one piece: output of other CPUs never lands in between.
pub fn write(bytes: &[u8]) {
    Serving(&mut UART.lock()).send(bytes);
}

/// Writes formatted text as one piece, without the prefix of log lines.
pub fn print(text: fmt::Arguments<'_>) {
    // Errors: `Uart` has none.
    let _ = Serving(&mut UART.lock()).write_fmt(text);
}

/// As [`print`], for a panic and for reports of CPUs that are stuck: takes the device even if the lock does not become free,
/// because its owner was stopped, is what is stuck, or is this CPU. Then output may be mixed.
pub fn print_regardless(text: fmt::Arguments<'_>) {
    /// Long enough for another CPU to finish its line at 115200 baud.
    const PATIENCE: u32 = 1_000_000;
    for _ in 0..PATIENCE {
        if let Some(mut uart) = UART.try_lock() {
            let _ = uart.write_fmt(text);
            return;
        }
        core::hint::spin_loop();
    }
    // SAFETY: COM1, a device of our own: whoever else writes to it now only sends bytes in between.
    if let Ok(device) = unsafe { Uart16550::new_port(PORT) } {
        let _ = Uart(Some(device)).write_fmt(text);
    }
}

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let us = tsc::now_ns() / 1000;
        print(format_args!(
            "[{:3}.{:06}] c{} {}: {}\n",
            us / 1_000_000,
            us % 1_000_000,
            percpu::cpu_id().as_u32(),
            Lowercase(record.level()),
            record.args()
        ));
    }

    fn flush(&self) {}
}

/// The level in small letters.
struct Lowercase(log::Level);

impl fmt::Display for Lowercase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            log::Level::Error => "error",
            log::Level::Warn => "warn",
            log::Level::Info => "info",
            log::Level::Debug => "debug",
            log::Level::Trace => "trace",
        })
    }
}
