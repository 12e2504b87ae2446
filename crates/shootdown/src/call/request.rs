//! [`Request`]: what a slot carries; [`Number`]: which request it is, and how old.

use crate::call::Payload;
use crate::cpu::CpuId;

/// Runs what a payload holds on a CPU; without a payload it runs nothing. Returns the name of what it runs, for
/// reports: a slot's line has no room for it.
pub(crate) type Run = unsafe fn(Option<&Payload>, CpuId) -> &'static str;

/// What to run, and its argument bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Called with a copy of `payload` on the target; none for flushes, which the responder interprets.
    run: Option<Run>,
    pub(crate) payload: Payload,
}

impl Request {
    /// A function and its argument.
    pub(crate) const fn call(run: Run, payload: Payload) -> Self {
        Self {
            run: Some(run),
            payload,
        }
    }

    /// A request whose kind needs no function.
    pub(crate) const fn data(payload: Payload) -> Self {
        Self { run: None, payload }
    }

    /// The function, where there is one.
    pub(crate) const fn function(&self) -> Option<Run> {
        self.run
    }
}

/// Numbers have so many bits; they go round.
const NUMBER_BITS: u32 = 56;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;

/// The number of a request. Those of one slot differ from one to the next. That of a call is the time at which it was published,
/// as far as the host's clocks agree, so that all its targets agree which of two calls is older.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number(u64);

impl Number {
    /// A unit of 16 ns: the numbers go round in 36 years.
    const UNIT_SHIFT: u32 = 4;
    /// A slot's number may be ahead of its CPU's clock by so much: requests of one unit are counted on. Beyond it, it is the
    /// clock that has gone round.
    const AHEAD: u64 = 1 << 40;

    /// The number that stands in a header.
    pub(crate) const fn from_header(header: u64) -> Self {
        Self(header >> (u64::BITS - NUMBER_BITS))
    }

    /// As in a header.
    pub(crate) const fn bits(self) -> u64 {
        self.0 << (u64::BITS - NUMBER_BITS)
    }

    /// The number after this one at the time `now_ns`, on a clock that may be coarse or stand still; without a time, just the next.
    pub(crate) const fn next(self, now_ns: Option<u64>) -> Self {
        let counted = (self.0 + 1) & NUMBER_MASK;
        let Some(now_ns) = now_ns else {
            return Self(counted);
        };
        let now = (now_ns >> Self::UNIT_SHIFT) & NUMBER_MASK;
        match (counted.wrapping_sub(now) & NUMBER_MASK) < Self::AHEAD {
            true => Self(counted),
            false => Self(now),
        }
    }

    /// Whether the request with this number is older than the other one: less than half a round before it.
    pub(crate) const fn is_before(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0) & NUMBER_MASK;
        ahead != 0 && ahead < 1 << (NUMBER_BITS - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{NUMBER_MASK, Number};

    fn numbers(first: Number, clocks: impl IntoIterator<Item = u64>) {
        let mut before = first;
        for now_ns in clocks {
            let number = before.next(Some(now_ns));
            assert_ne!(number, before);
            assert!(
                before.is_before(number),
                "{before:?}, {number:?} at {now_ns}"
            );
            before = number;
        }
    }

    #[test]
    fn numbers_grow_on_any_clock() {
        let epoch = 1_790_000_000_000_000_000;
        numbers(Number(0), [0; 5]);
        numbers(Number(0), [1_000_000, 1_000_000, 1_000_015, 2_000_000]);
        numbers(Number(epoch >> 4 & NUMBER_MASK), [epoch; 3]);
        numbers(
            Number(epoch >> 4 & NUMBER_MASK),
            [epoch, epoch + 1_000_000_000],
        );
        // The clock goes round, and so does the count.
        numbers(
            Number(NUMBER_MASK - 1),
            [u64::MAX, u64::MAX, 0, 0, 160, 161],
        );
        numbers(Number(NUMBER_MASK), [u64::MAX; 3]);
    }

    #[test]
    fn the_first_number_is_the_time_whatever_the_clock_says() {
        for now_ns in [1 << 20, 1_790_000_000_000_000_000, 1 << 59, u64::MAX / 3] {
            let number = Number(0).next(Some(now_ns));
            assert_eq!(number, Number(now_ns >> 4 & NUMBER_MASK));
            assert_ne!(number.next(Some(now_ns)), number);
        }
    }
}
