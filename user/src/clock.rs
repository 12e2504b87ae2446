//! Time stamps cheap enough for a measured loop: the time-stamp counter, calibrated once.
//!
//! A system call for each time stamp would be a good part of what is measured (the reference
//! kernel has no vDSO), so samples are counted in ticks and converted afterwards. All comparisons
//! happen on one pinned thread, so counters of different CPUs need not agree.

use std::arch::x86_64::_rdtsc;
use std::time::{Duration, Instant};

/// How long calibration compares the two clocks.
const CALIBRATION: Duration = Duration::from_millis(20);

/// Reads the time-stamp counter of the current CPU.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC, and no system these programs run on forbids it
    // to user mode.
    unsafe { _rdtsc() }
}

/// A number of ticks or nanoseconds as samples have it.
#[inline(always)]
pub fn narrow(ticks: u64) -> u32 {
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// Converts between time-stamp counter ticks and nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    ticks_per_second: u64,
}

impl Clock {
    /// Measures the counter against the monotonic clock; takes about 20 ms.
    pub fn calibrate() -> Self {
        let (start, start_ticks) = paired_stamp();
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (end, end_ticks) = paired_stamp();
        let elapsed_ns = end.duration_since(start).as_nanos().max(1);
        let elapsed_ticks = u128::from(end_ticks.wrapping_sub(start_ticks).max(1));
        Self {
            ticks_per_second: (elapsed_ticks * 1_000_000_000 / elapsed_ns).max(1) as u64,
        }
    }

    /// Ticks per second.
    pub fn frequency(&self) -> u64 {
        self.ticks_per_second
    }

    /// `ticks` in nanoseconds.
    pub fn to_ns(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.ticks_per_second)) as u64
    }

    /// The number of ticks in `duration`.
    pub fn to_ticks(&self, duration: Duration) -> u64 {
        (duration.as_nanos() * u128::from(self.ticks_per_second) / 1_000_000_000) as u64
    }
}

/// Both clocks at (nearly) one moment: the attempt least disturbed by interrupts wins.
fn paired_stamp() -> (Instant, u64) {
    const ATTEMPTS: usize = 16;
    let mut best = None;
    for _ in 0..ATTEMPTS {
        let before = ticks();
        let now = Instant::now();
        let width = ticks().wrapping_sub(before);
        if best.is_none_or(|(_, _, least)| width < least) {
            best = Some((now, before.wrapping_add(width / 2), width));
        }
    }
    let (instant, stamp, _) = best.expect("ATTEMPTS is not zero");
    (instant, stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_convert_both_ways() {
        let clock = Clock {
            ticks_per_second: 2_500_000_000,
        };
        assert_eq!(clock.to_ns(2_500), 1_000);
        assert_eq!(clock.to_ticks(Duration::from_micros(3)), 7_500);
    }

    #[test]
    fn calibration_agrees_with_the_monotonic_clock() {
        let clock = Clock::calibrate();
        let (start, stamp) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        let by_ticks = clock.to_ns(ticks() - stamp) as f64;
        let by_clock = start.elapsed().as_nanos() as f64;
        let is_close = (by_ticks / by_clock - 1.0).abs() < 0.1;
        assert!(is_close, "{by_ticks} against {by_clock}");
    }
}
