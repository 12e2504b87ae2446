//! On, off, and intervals.

use core::sync::atomic::{AtomicU32, Ordering};

/// The number of the period of tracing, 0 while it is off.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Epochs so far.
static EPOCHS: AtomicU32 = AtomicU32::new(0);
/// The number of the interval: maxima of earlier ones do not count.
static INTERVAL: AtomicU32 = AtomicU32::new(0);

/// A period of tracing. Spans that began in another one are not believed: their end, or another beginning, was not seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Epoch(u16);

impl Epoch {
    /// The present one; None while tracing is off.
    #[inline]
    pub fn now() -> Option<Self> {
        match EPOCH.load(Ordering::Relaxed) as u16 {
            0 => None,
            number => Some(Self(number)),
        }
    }

    pub const fn number(self) -> u16 {
        self.0
    }
}

/// Starts tracing, and an interval, unless tracing is on already.
pub(super) fn turn_on() {
    if Epoch::now().is_some() {
        return;
    }
    begin_interval();
    // Never 0, which is off.
    let number = EPOCHS.fetch_add(1, Ordering::Relaxed) % u32::from(u16::MAX) + 1;
    EPOCH.store(number, Ordering::Relaxed);
}

/// Ends tracing; what was found stays to be read.
pub(super) fn turn_off() {
    EPOCH.store(0, Ordering::Relaxed);
}

/// Forgets what was found so far.
pub(super) fn begin_interval() {
    INTERVAL.fetch_add(1, Ordering::Relaxed);
}

/// The present interval.
pub(super) fn interval() -> u32 {
    INTERVAL.load(Ordering::Relaxed)
}
