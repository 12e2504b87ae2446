//! What the engine's watchdog says: one line, and the backtrace of the target.

use core::sync::atomic::{AtomicU32, Ordering};

use shootdown::watch::Stall;

use crate::backtrace;
use crate::boot::fail::boot_fail;
use crate::console;
use crate::platform::SHOOTDOWN;

/// Waits longer than this are reported, in milliseconds. An emulator with more virtual CPUs than the host has
/// stops some of them for tens of milliseconds at a time, so it is long.
const STALL_MS: u64 = 10_000;
const NS_PER_MS: u64 = 1_000_000;

static REPORTS: AtomicU32 = AtomicU32::new(0);

/// Starts it with the value of `stall_ms=`; 0 leaves it off.
pub fn start(option: Option<&str>) {
    let stall_ms = match option.map(str::parse) {
        None => STALL_MS,
        Some(Ok(stall_ms)) => stall_ms,
        Some(Err(_)) => boot_fail!(
            "stall_ms={} is not a number of milliseconds",
            option.unwrap_or_default()
        ),
    };
    SHOOTDOWN
        .watch()
        .set_stall_ns(stall_ms.saturating_mul(NS_PER_MS));
}

/// Prints the report, whoever has the console: the waiter may be inside its own line, and the console's owner may be what is
/// stuck, as it serves others while it prints.
pub fn report(stall: &Stall) {
    console::print_regardless(format_args!("stall: {stall}\n"));
    backtrace::print_of(stall.target);
    REPORTS.fetch_add(1, Ordering::Relaxed);
}

/// How many reports have been printed.
#[cfg(feature = "selftest")]
pub fn reports() -> u32 {
    REPORTS.load(Ordering::Relaxed)
}
