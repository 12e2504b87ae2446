//! [`RingReader`]: which announcements of its ring one CPU has read.

use crate::call::Ticket;
use crate::own_set::ones_from;
use crate::sync::OwnWord;

/// Which tickets one CPU has read; its own.
#[derive(Debug)]
pub(crate) struct RingReader {
    /// All before this one.
    next: OwnWord,
    /// And these: bit `i` is ticket `next + i`. A function waits while another runs, and the flushes behind it do not.
    later: OwnWord,
    /// Those of the others that are known to be functions, which wait for room, or for the one that runs: only flushes are looked
    /// for again.
    functions: OwnWord,
}

impl RingReader {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            next: OwnWord::new(),
            later: OwnWord::new(),
            functions: OwnWord::new(),
        }
    }

    /// Begins at `ticket`.
    #[inline]
    pub(crate) fn begin(&self, ticket: Ticket) {
        self.next.set(ticket.bits());
        self.later.set(0);
        self.functions.set(0);
    }

    /// Whether functions are left.
    #[inline]
    pub(crate) fn has_functions(&self) -> bool {
        self.functions.get() != 0
    }

    /// The bit of `ticket`, which [`next_from`](Self::next_from) returned.
    #[inline]
    fn bit(&self, ticket: Ticket) -> u64 {
        let ahead = ticket.ahead_of(self.next()).unwrap_or(0);
        1u64.checked_shl(ahead as u32).unwrap_or(0)
    }

    /// `ticket`, which [`next_from`](Self::next_from) returned, is a function that cannot run now.
    #[inline]
    pub(crate) fn leave(&self, ticket: Ticket) {
        self.functions.set(self.functions.get() | self.bit(ticket));
    }

    /// The ticket behind the last that was left.
    pub(crate) fn end_of_left(&self) -> Ticket {
        let ahead = u64::BITS - self.functions.get().leading_zeros();
        self.next().plus(u64::from(ahead))
    }

    /// Those before `end` that were left.
    pub(crate) fn left_before(&self, end: Ticket) -> impl Iterator<Item = Ticket> {
        let next = self.next();
        let left = ones_from(self.functions.get(), 0);
        left.map(move |ahead| next.plus(u64::from(ahead)))
            .take_while(move |ticket| ticket.is_before(end))
    }

    /// The first ticket that was not read.
    #[inline]
    pub(crate) fn next(&self) -> Ticket {
        Ticket::of_word(self.next.get())
    }

    /// The first ticket from `ticket` on that was not read, and with `skip_functions` is not known to be one; `None` beyond what a
    /// ring can hold.
    #[inline]
    pub(crate) fn next_from(&self, ticket: Ticket, skip_functions: bool) -> Option<Ticket> {
        let next = self.next();
        let ahead = u32::try_from(ticket.ahead_of(next).unwrap_or(0)).ok()?;
        let mut unread = u64::MAX.checked_shl(ahead)? & !self.later.get();
        if skip_functions {
            unread &= !self.functions.get();
        }
        (unread != 0).then(|| next.plus(u64::from(unread.trailing_zeros())))
    }

    /// `ticket`, which [`next_from`](Self::next_from) returned, has been read.
    #[inline]
    pub(crate) fn has_read(&self, ticket: Ticket) {
        let bit = self.bit(ticket);
        let later = self.later.get() | bit;
        self.later.set(later);
        self.functions.set(self.functions.get() & !bit);
        self.skip_to(self.next().plus(u64::from(later.trailing_ones())));
    }

    /// All before `ticket` have been read, or need not be.
    #[inline]
    pub(crate) fn skip_to(&self, ticket: Ticket) {
        let Some(ahead) = ticket.ahead_of(self.next()) else {
            return;
        };
        let shift = u32::try_from(ahead).unwrap_or(u32::MAX);
        for bits in [&self.later, &self.functions] {
            bits.set(bits.get().checked_shr(shift).unwrap_or(0));
        }
        self.next.set(ticket.bits());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::RingReader;
    use crate::call::Ticket;

    fn ticket(number: u64) -> Ticket {
        Ticket::of_word(0).plus(number)
    }

    #[test]
    fn tickets_are_read_once_in_any_order_and_round_the_end() {
        for first in [0, u64::from(u32::MAX) - 2, (1 << 48) - 3] {
            let first = ticket(first);
            let reader = RingReader::new();
            reader.begin(first);
            assert_eq!(reader.next_from(first, false), Some(first));
            reader.has_read(first.plus(2));
            assert_eq!(reader.next_from(first.plus(1), false), Some(first.plus(1)));
            assert_eq!(reader.next_from(first.plus(2), false), Some(first.plus(3)));
            reader.has_read(first);
            assert_eq!(reader.next(), first.plus(1));
            reader.has_read(first.plus(1));
            assert_eq!(reader.next(), first.plus(3));
            reader.skip_to(first);
            assert_eq!(reader.next(), first.plus(3), "never back");
        }
    }

    #[test]
    fn a_reader_that_slept_for_long_skips_all_that_is_gone() {
        let reader = RingReader::new();
        let far = ticket(1 << 33);
        assert_eq!(
            reader.next_from(far, false),
            None,
            "beyond what a ring can hold"
        );
        reader.has_read(ticket(1));
        reader.skip_to(far);
        assert_eq!(reader.next_from(far, false), Some(far));
        assert_eq!(reader.next_from(far.plus(1), false), Some(far.plus(1)));
    }
}
