//! [`ClosedForm`]: what one uncontended flush should take, by counting (as LogP does), to check the machine.
//!
//! Nothing here looks at the machine. Line transfers, locked operations, fences and interrupts are counted from
//! the protocol as `docs/protocol.md` tells it; accesses that the own cache serves are left out.

use shootdown::Policy;

use crate::timed::Costs;

/// One flush of one page from CPU 0 to the CPUs after it, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedForm {
    /// o, the initiator's part: from the call until the interrupts are sent.
    pub send_ps: u64,
    /// L: until the target's handler runs.
    pub latency_ps: u64,
    /// o, the target's part: from its handler's start to its acknowledgement.
    pub receive_ps: u64,
    /// The acknowledgement's way back.
    pub back_ps: u64,
    /// The local flush, and whether it runs meanwhile.
    local_ps: u64,
    overlaps: bool,
}

impl ClosedForm {
    /// Counts for `targets` of one core or socket with the initiator; the total holds for one target.
    pub fn new(costs: &Costs, policy: Policy, targets: u64) -> Self {
        let distance = costs.topology.distance(0, targets as usize);
        let transfer = costs.transfer_ps.at(distance);
        let locked = costs.locked_ps;
        let flush = costs.flush_page_ps;
        // The generation is bumped, then a fence; each target's inbox is taken over by a locked operation.
        let bump = locked + costs.fence_ps;
        let clusters = targets / costs.topology.cluster as u64 + 1;
        let announce = targets * locked + clusters * costs.icr_ps;
        // What the initiator writes were read by the targets last, and the other way round.
        let description = if policy.is_inline() { 0 } else { transfer };
        let request = match policy.prefetches() {
            true => targets * transfer,
            false => (1 + targets) * transfer,
        };
        // The target's inbox comes in two steps, read and then taken, and so does the slot, read and then
        // acknowledged; in one when it was asked for in advance.
        let steps = if policy.prefetches() { 1 } else { 2 };
        let look = steps * transfer + locked;
        let slot = steps * transfer + locked;
        let first = if policy.acknowledges_early() {
            0
        } else {
            flush
        };
        Self {
            send_ps: bump + description + request + announce,
            latency_ps: costs.delivery_ps.at(distance) + costs.relax_ps / 2 + costs.entry_ps,
            receive_ps: look + slot + description + first,
            back_ps: transfer,
            local_ps: flush,
            overlaps: policy.is_concurrent(),
        }
    }

    /// From the call of the flush to its return.
    pub fn total_ps(&self) -> u64 {
        let away_ps = self.latency_ps + self.receive_ps;
        // The initiator looks for the acknowledgement only when its own flush is done.
        self.send_ps
            + match self.overlaps {
                true => away_ps.max(self.local_ps) + self.back_ps,
                false => away_ps + self.back_ps + self.local_ps,
            }
    }
}
