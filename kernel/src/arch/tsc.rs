//! The time stamp counter: nanoseconds since kernel entry.
//!
//! It is taken to run at one rate and in step on all CPUs, as on every machine with an invariant TSC and in QEMU.

use core::sync::atomic::{AtomicU64, Ordering};

const NS_PER_S: u64 = 1_000_000_000;
/// Fraction bits of `NS_PER_TICK`.
const SHIFT: u32 = 32;

/// TSC at kernel entry is `boot_tsc`; nanoseconds for each count since, as a binary fraction. 0 until
/// calibrated.
static NS_PER_TICK: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    /// Written by `start/entry.s`.
    static boot_tsc: u64;
}

/// Nanoseconds since kernel entry, 0 before calibration. Any context.
#[inline]
pub fn now_ns() -> u64 {
    // SAFETY: written once before any Rust code ran.
    let entry = unsafe { boot_tsc };
    let ticks = read().saturating_sub(entry);
    let fraction = u128::from(NS_PER_TICK.load(Ordering::Relaxed));
    ((u128::from(ticks) * fraction) >> SHIFT) as u64
}

/// Waits. Any context, after calibration.
pub fn spin_ns(span_ns: u64) {
    let end = now_ns() + span_ns;
    while now_ns() < end {
        core::hint::spin_loop();
    }
}

/// The counter itself.
pub fn read() -> u64 {
    // SAFETY: every x86-64 processor has it, and CR4.TSD is clear.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// From now on the clock runs, at so many counts a second.
pub fn set_rate(hz: u64) {
    let ns_per_tick = (u128::from(NS_PER_S) << SHIFT) / u128::from(hz);
    NS_PER_TICK.store(ns_per_tick as u64, Ordering::Relaxed);
}
