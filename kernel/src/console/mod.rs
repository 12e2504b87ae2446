//! The console: log lines and the raw output of programs, through COM1 and, where the loader left one, on a screen.
//!
//! | file | what |
//! |---|---|
//! | `serial` | the serial port |
//! | `screen` | the display adapter's screen |
//! | `pixels` | text on a screen of pixels |
//! | `grid` | what is on it |

mod grid;
mod pixels;
mod screen;
mod serial;

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use log::{LevelFilter, Log, Metadata, Record};

use crate::arch::{percpu, tsc};
use crate::platform::SHOOTDOWN;
use crate::sync::IrqMutex;
use screen::Screen;
use serial::Serial;

pub use grid::{COLUMNS, ROWS};
pub use pixels::{PIXEL_BITS, Pixels};
pub use screen::{Adapter, MEMORY as SCREEN_MEMORY};

static OUTPUT: IrqMutex<Output> = IrqMutex::new(Output {
    serial: None,
    screen: Screen::new(),
});
/// Whether there is a serial port: for those who cannot wait for the lock.
static HAS_SERIAL: AtomicBool = AtomicBool::new(false);

/// Where output goes.
struct Output {
    /// None when the machine has none.
    serial: Option<Serial>,
    screen: Screen,
}

impl Output {
    fn send(&mut self, bytes: &[u8]) {
        if let Some(device) = &mut self.serial {
            device.send_bytes_exact(bytes);
        }
        self.screen.put(bytes);
    }
}

/// For panics and reports: bytes and nothing else.
impl Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        while self.screen.draw_row() {}
        Ok(())
    }
}

/// For everybody else: interrupts are off while the lock is held, and a long line takes a second at
/// 115200 baud, so flushes are served in between. Functions that other CPUs have this one run wait until the lock is free.
struct Serving<'a>(&'a mut Output);

impl Write for Serving<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.send(text.as_bytes());
        Ok(())
    }
}

impl Serving<'_> {
    fn send(&mut self, bytes: &[u8]) {
        for burst in bytes.chunks(serial::FIFO_BYTES) {
            self.0.send(burst);
            SHOOTDOWN.poll();
            while self.0.screen.draw_row() {
                SHOOTDOWN.poll();
            }
        }
    }
}

/// Finds the serial port and makes the console the target of `log`. Boot CPU, once.
pub fn init() {
    let serial = serial::find();
    HAS_SERIAL.store(serial.is_some(), Ordering::Relaxed);
    OUTPUT.lock().serial = serial;
    log::set_logger(&Logger).expect("the only logger");
    log::set_max_level(LevelFilter::Info);
}

/// From now on the adapter's screen shows what is printed. Boot CPU, once; a text screen has [`COLUMNS`] and [`ROWS`].
pub fn show_on(adapter: Adapter) {
    OUTPUT.lock().screen.switch_on(adapter);
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
    Serving(&mut OUTPUT.lock()).send(bytes);
}

/// Writes formatted text as one piece, without the prefix of log lines.
pub fn print(text: fmt::Arguments<'_>) {
    // Errors: `Output` has none.
    let _ = Serving(&mut OUTPUT.lock()).write_fmt(text);
}

/// As [`print`], for a panic and for reports of CPUs that are stuck: takes the serial port even if the lock does not become free,
/// because its owner was stopped, is what is stuck, or is this CPU. Then output may be mixed.
pub fn print_regardless(text: fmt::Arguments<'_>) {
    /// Long enough for another CPU to finish its line at 115200 baud.
    const PATIENCE: u32 = 1_000_000;
    for _ in 0..PATIENCE {
        if let Some(mut output) = OUTPUT.try_lock() {
            let _ = output.write_fmt(text);
            return;
        }
        core::hint::spin_loop();
    }
    if HAS_SERIAL.load(Ordering::Relaxed)
        && let Some(device) = serial::device()
    {
        // Whoever else writes to it now only sends bytes in between. The screen is left to its owner.
        let _ = Bare(device).write_fmt(text);
    }
}

/// The serial port without its lock.
struct Bare(Serial);

impl Write for Bare {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.send_bytes_exact(text.as_bytes());
        Ok(())
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
