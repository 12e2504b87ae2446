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
    pub(crate) initiator: CpuId,
    pub(crate) slot: usize,
    pub(super) ticket: Option<Ticket>,
}

impl Place {
    /// Where its initiator's inbox bit leads.
    #[inline]
    pub(super) fn in_slot(initiator: CpuId, slot: usize) -> Self {
        Self {
            initiator,
            slot,
            ticket: None,
        }
    }
}
