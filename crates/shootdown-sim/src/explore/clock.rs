//! [`Clock`]: the clocks that virtual CPUs read in exploration, as odd as the platform's contract allows.

/// Nanoseconds of an event on a clock that runs.
const EVENT_NS: u64 = 7;
/// Beginnings of clocks: of a machine that has just booted, the UNIX epoch's of today, and just before each power of two that
/// something may be masked or compared by.
const ORIGINS: [u64; 6] = [
    0,
    1_790_000_000_000_000_000,
    (1 << 44) - SHORTLY_NS,
    (1 << 60) - SHORTLY_NS,
    (1 << 63) - SHORTLY_NS,
    u64::MAX - SHORTLY_NS,
];
/// A run is longer.
const SHORTLY_NS: u64 = 6_000;
/// Ticks of clocks: one that stands still has none.
const TICKS_NS: [u64; 4] = [0, 1, 400, 1 << 20];

/// One CPU's clock. It never goes backwards, but round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    origin_ns: u64,
    /// It shows multiples of this; 0 if it stands still.
    tick_ns: u64,
}

impl Clock {
    /// Stands still at 0.
    pub const STILL: Self = Self {
        origin_ns: 0,
        tick_ns: 0,
    };

    /// Begins at 0, and shows every event.
    pub const RUNNING: Self = Self {
        origin_ns: 0,
        tick_ns: 1,
    };

    /// One that a host may have.
    pub(crate) fn draw(random: &mut fastrand::Rng) -> Self {
        Self {
            origin_ns: ORIGINS[random.usize(..ORIGINS.len())],
            tick_ns: TICKS_NS[random.usize(..TICKS_NS.len())],
        }
    }

    /// What it says after so many events.
    pub fn now_ns(self, events: u64) -> u64 {
        let elapsed_ns = events * EVENT_NS;
        let shown_ns = elapsed_ns.checked_div(self.tick_ns).unwrap_or(0) * self.tick_ns;
        self.origin_ns.wrapping_add(shown_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, SHORTLY_NS};

    #[test]
    fn clocks_stand_still_tick_and_go_round() {
        let clock = |origin_ns, tick_ns| Clock { origin_ns, tick_ns };
        assert_eq!(clock(5, 0).now_ns(1000), 5);
        assert_eq!(clock(5, 400).now_ns(100), 405);
        assert_eq!(clock(u64::MAX - SHORTLY_NS, 1).now_ns(1000), 999);
    }
}
