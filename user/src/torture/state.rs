//! What a slot promises to whoever accesses it, published in one word.
//!
//! The word holds a sequence number that grows by one with each step, and the condition before and
//! after the change under way. Odd numbers are changes, even numbers are rest. Two equal words
//! read one after the other mean that nothing happened in between.

use std::fmt;

/// The condition of a slot's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Condition {
    /// Not mapped: every access faults.
    Absent,
    /// Mapped and writable, reading zero.
    Zero,
    /// Mapped and writable, reading the slot's content.
    Live,
    /// Reading the slot's content; a write faults.
    ReadOnly,
    /// The content is there, but every access faults.
    NoAccess,
}

use Condition::{Absent, Live, NoAccess, ReadOnly, Zero};

impl Condition {
    /// All of them.
    pub const ALL: [Self; 5] = [Absent, Zero, Live, ReadOnly, NoAccess];

    /// Whether a load faults.
    pub fn load_faults(self) -> bool {
        matches!(self, Absent | NoAccess)
    }

    /// Whether a store faults.
    pub fn store_faults(self) -> bool {
        matches!(self, Absent | NoAccess | ReadOnly)
    }

    /// Whether a load shows the slot's content.
    pub fn shows_content(self) -> bool {
        matches!(self, Live | ReadOnly)
    }

    fn from_bits(bits: u64) -> Self {
        Self::ALL[(bits & 0xff) as usize % Self::ALL.len()]
    }
}

/// A slot's state: a sequence number and one or two conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// The number of the step.
    pub sequence: u32,
    /// The condition before the change, or the condition.
    pub from: Condition,
    /// The condition after the change, or the same again.
    pub to: Condition,
}

impl State {
    /// The first state.
    pub const ABSENT: Self = Self {
        sequence: 0,
        from: Absent,
        to: Absent,
    };

    /// Whether no change is under way.
    pub fn at_rest(self) -> bool {
        self.sequence.is_multiple_of(2)
    }

    /// The state while the slot changes to `to`.
    ///
    /// # Panics
    /// If a change is under way.
    pub fn begin(self, to: Condition) -> Self {
        assert!(self.at_rest(), "two changes at once: {self}");
        Self {
            sequence: self.sequence.wrapping_add(1),
            from: self.to,
            to,
        }
    }

    /// The state after the change under way.
    ///
    /// # Panics
    /// If none is.
    pub fn finish(self) -> Self {
        assert!(!self.at_rest(), "no change under way: {self}");
        Self {
            sequence: self.sequence.wrapping_add(1),
            from: self.to,
            to: self.to,
        }
    }

    /// As stored in a shared word.
    pub fn to_bits(self) -> u64 {
        u64::from(self.sequence) << 32 | (self.from as u64) << 8 | self.to as u64
    }

    /// From a shared word.
    pub fn from_bits(bits: u64) -> Self {
        Self {
            sequence: (bits >> 32) as u32,
            from: Condition::from_bits(bits >> 8),
            to: Condition::from_bits(bits),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequence, from, to } = self;
        if self.at_rest() {
            write!(f, "{sequence}:{to:?}")
        } else {
            write!(f, "{sequence}:{from:?}->{to:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_takes_two_steps() {
        let changing = State::ABSENT.begin(Zero);
        let steps = (changing.sequence, changing.from, changing.to);
        assert_eq!(steps, (1, Absent, Zero));
        assert!(!changing.at_rest());
        let done = changing.finish();
        assert_eq!((done.sequence, done.from, done.to), (2, Zero, Zero));
        assert!(done.at_rest());
    }

    #[test]
    fn a_state_survives_its_word() {
        for from in Condition::ALL {
            for to in Condition::ALL {
                let state = State {
                    sequence: 0x8000_0001,
                    from,
                    to,
                };
                assert_eq!(State::from_bits(state.to_bits()), state);
            }
        }
    }
}
