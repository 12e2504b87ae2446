//! Where a request is: [`RequestRef`] for its initiator, [`Place`] for a responder.

use crate::call::{Number, Ticket};
use crate::cpu::CpuId;

/// Names one request: whose slot, which, and the number it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RequestRef {
    pub(crate) initiator: CpuId,
    pub(crate) slot: usize,
    pub(crate) number: Number,
}

/// Where a responder found a request: in which slot of whom, and if in the ring, under which ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    initiator: CpuId,
    slot: u8,
    pub(super) is_in_ring: bool,
    pub(super) ticket: Ticket,
}

impl Place {
    #[inline]
    pub(crate) fn in_inbox(initiator: CpuId, slot: usize) -> Self {
        Self {
            initiator,
            slot: slot as u8,
            is_in_ring: false,
            ticket: Ticket::from_u64(0),
        }
    }

    #[inline]
    pub(crate) fn in_ring(initiator: CpuId, slot: usize, ticket: Ticket) -> Self {
        Self {
            initiator,
            slot: slot as u8,
            is_in_ring: true,
            ticket,
        }
    }

    #[inline]
    pub(crate) fn initiator(self) -> CpuId {
        self.initiator
    }

    #[inline]
    pub(crate) fn slot(self) -> usize {
        usize::from(self.slot)
    }
}
