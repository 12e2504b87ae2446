//! Time. ArceOS takes the frequency of the x86 time stamp counter from its configuration; here it is measured.

use core::sync::atomic::{AtomicU64, Ordering};

use axhal::time::monotonic_time_nanos;

use crate::arch;

/// How long the measurement takes.
const CALIBRATION_NS: u64 = 50_000_000;
/// The binary point of `SCALE`.
const POINT: u32 = 32;

/// Nanoseconds in one of ArceOS's, with `POINT` bits behind the binary point.
static SCALE: AtomicU64 = AtomicU64::new(1 << POINT);

/// Measures, where there is a clock to measure by.
pub fn calibrate() {
    let Some(begin) = arch::reference_ns() else {
        return;
    };
    let own_begin = monotonic_time_nanos();
    loop {
        let passed = arch::reference_ns().unwrap_or(u64::MAX) - begin;
        if passed >= CALIBRATION_NS {
            let own = monotonic_time_nanos() - own_begin;
            let scale = (u128::from(passed) << POINT) / u128::from(own.max(1));
            return SCALE.store(scale as u64, Ordering::Relaxed);
        }
    }
}

/// Nanoseconds since boot.
pub fn now_ns() -> u64 {
    let scale = SCALE.load(Ordering::Relaxed);
    ((u128::from(monotonic_time_nanos()) * u128::from(scale)) >> POINT) as u64
}

/// Spins for so long.
pub fn spin_ns(ns: u64) {
    let begin = now_ns();
    while now_ns() - begin < ns {
        core::hint::spin_loop();
    }
}
