//! [`Number`] and [`Ticket`]: which request of a slot it is, and which announcement of a ring.

/// A number that goes round. It stands in the bits of a word from bit `SHIFT` on, where it is kept beside other things; the bits below are zero
/// here, so the arithmetic of words goes round where the number does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Round<const SHIFT: u32>(u64);

/// The number of an announcement in one ring. Each has the next one.
pub(crate) type Ticket = Round<16>;

/// The number of a request. Those of one slot differ from one to the next. That of a call is the time at which it was published,
/// as far as the host's clocks agree, so that all its targets agree which of two calls is older.
pub(crate) type Number = Round<8>;

impl<const SHIFT: u32> Round<SHIFT> {
    /// The number in the upper bits of `word`.
    #[inline]
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word >> SHIFT << SHIFT)
    }

    /// As in a word.
    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// The number so many further.
    #[inline]
    pub(crate) const fn plus(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count << SHIFT))
    }

    /// The number so many before.
    #[inline]
    pub(crate) const fn minus(self, count: u64) -> Self {
        Self(self.0.wrapping_sub(count << SHIFT))
    }

    /// The number itself.
    #[inline]
    pub(crate) const fn count(self) -> u64 {
        self.0 >> SHIFT
    }

    /// How far this number is ahead of `other`; `None` if it is before it.
    #[inline]
    pub(crate) fn ahead_of(self, other: Self) -> Option<u64> {
        (!self.is_before(other)).then(|| Self(self.0.wrapping_sub(other.0)).count())
    }

    /// Whether this number is before `other`, that is, more than half a round ahead of it.
    #[inline]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i64) < 0
    }
}

impl Number {
    /// A slot's number may be ahead of its CPU's clock by so much, in ns: requests of one unit of time are counted on. Beyond it, it is the
    /// clock that has gone round.
    const AHEAD_NS: u64 = 1 << 44;
    /// A number stands so many bits higher in a word than its time in ns. A unit is 16 ns: the numbers go round in 36 years.
    const NS_SHIFT: u32 = 4;

    /// The number after this one at the time `now_ns`, on a clock that may be coarse or stand still; without a time, just the next.
    pub(crate) fn next(self, now_ns: Option<u64>) -> Self {
        let counted = self.plus(1);
        let Some(now_ns) = now_ns else {
            return counted;
        };
        let now = Self::of_word(now_ns << Self::NS_SHIFT);
        match counted.0.wrapping_sub(now.0) < Self::AHEAD_NS << Self::NS_SHIFT {
            true => counted,
            false => now,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Number, Ticket};

    #[test]
    fn tickets_go_round() {
        let first = Ticket::of_word(0);
        let last = first.minus(1);
        assert_eq!(last.plus(1), first);
        assert_eq!(Ticket::of_word(u64::MAX), last);
        assert!(last.is_before(last.plus(1)));
        assert!(!last.plus(1).is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(last.plus(3).ahead_of(last), Some(3));
        assert_eq!(last.ahead_of(last.plus(3)), None);
    }

    fn at(now_ns: u64) -> Number {
        Number::of_word(now_ns << 4)
    }

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
        numbers(at(0), [0; 5]);
        numbers(at(0), [1_000_000, 1_000_000, 1_000_015, 2_000_000]);
        numbers(at(epoch), [epoch; 3]);
        numbers(at(epoch), [epoch, epoch + 1_000_000_000]);
        // The clock goes round, and so does the count.
        numbers(at(0).minus(2), [u64::MAX, u64::MAX, 0, 0, 160, 161]);
        numbers(at(0).minus(1), [u64::MAX; 3]);
    }

    #[test]
    fn the_first_number_is_the_time_whatever_the_clock_says() {
        for now_ns in [1 << 20, 1_790_000_000_000_000_000, 1 << 59, u64::MAX / 3] {
            let number = at(0).next(Some(now_ns));
            assert_eq!(number, at(now_ns));
            assert_ne!(number.next(Some(now_ns)), number);
        }
    }
}
