//! Beginning in the middle of a long life, for the simulator.

use crate::call::{Number, Ticket};
use crate::engine::Shootdown;
use crate::platform::Platform;

/// From where an engine counts, so that long lives and short rings are explored too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Start {
    /// The first ticket of each ring; the lower 48 bits count.
    pub ticket: u64,
    /// The number of the request that each slot had last; the lower 56 bits count.
    pub number: u64,
    /// Entries of a ring: 1, 2, 4 or 8.
    pub ring_len: usize,
}

impl<P: Platform> Shootdown<P> {
    /// Has counts begin as after a long life, and rings be shorter; before the engine is used.
    pub fn begin_at(&self, start: &Start) {
        for ring in self.rings() {
            ring.begin(Ticket::of_word(0).plus(start.ticket), start.ring_len);
        }
        for slot in self.states().flat_map(|(_, memory)| &memory.slots) {
            slot.begin(Number::of_word(0).plus(start.number));
        }
    }
}
