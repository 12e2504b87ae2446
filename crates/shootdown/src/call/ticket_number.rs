//! [`Ticket`]: the number of an announcement in a ring.

/// Tickets have so many bits; they go round.
const BITS: u32 = 48;
const MASK: u64 = (1 << BITS) - 1;

/// The number of an announcement in one ring. Each has the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// The lower bits of `raw`.
    #[inline]
    pub(crate) const fn from_u64(raw: u64) -> Self {
        Self(raw & MASK)
    }

    #[inline]
    pub(crate) const fn as_u64(self) -> u64 {
        self.0
    }

    /// The ticket so many further.
    #[inline]
    pub(crate) const fn plus(self, count: u64) -> Self {
        Self(self.0.wrapping_add(count) & MASK)
    }

    /// The ticket so many before.
    #[inline]
    pub(crate) const fn minus(self, count: u64) -> Self {
        Self(self.0.wrapping_sub(count) & MASK)
    }

    /// How far this ticket is ahead of `other`; `None` if it is before it, that is, more than half a round ahead.
    #[inline]
    pub(crate) const fn ahead_of(self, other: Self) -> Option<u64> {
        let ahead = self.0.wrapping_sub(other.0) & MASK;
        match ahead <= MASK / 2 {
            true => Some(ahead),
            false => None,
        }
    }

    #[inline]
    pub(crate) const fn is_before(self, other: Self) -> bool {
        self.ahead_of(other).is_none()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{MASK, Ticket};

    #[test]
    fn tickets_go_round() {
        let last = Ticket::from_u64(MASK);
        assert_eq!(last.plus(1), Ticket::from_u64(0));
        assert_eq!(Ticket::from_u64(0).minus(1), last);
        assert!(last.is_before(last.plus(1)));
        assert!(!last.plus(1).is_before(last));
        assert!(!last.is_before(last));
        assert_eq!(last.plus(3).ahead_of(last), Some(3));
        assert_eq!(last.ahead_of(last.plus(3)), None);
    }
}
