//! An instruction that drops translations on all CPUs by their tag, and one that waits for it (x86: INVLPGB, TLBSYNC).
//!
//! The pair costs the same wherever the CPUs are and however many: no source says how it depends on them.

use shootdown::{remote::FlushRequest, tags::Asid};

use crate::machine::Processor;
use crate::timed::Timed;

/// How the fabric between the CPUs carries broadcasts of several at a time. No source says it of INVLPGB, so both ends are here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fabric {
    /// They do not delay each other.
    Parallel,
    /// Each begins when the one before is over.
    Serial,
}

/// The instructions of one machine.
#[derive(Debug)]
pub(super) struct Broadcasts {
    fabric: Fabric,
    /// When the last one is over.
    free_ps: u64,
}

impl Timed {
    /// The CPUs have the instructions, and tags that are the same on all of them.
    #[must_use]
    pub fn with_broadcasts(mut self, fabric: Fabric) -> Self {
        self.broadcasts = Some(Broadcasts { fabric, free_ps: 0 });
        self
    }

    pub(crate) fn has_broadcasts(&self) -> bool {
        self.broadcasts.is_some()
    }

    /// Sets of eight tags that are the same on all CPUs.
    pub(crate) fn tag_sets(&self) -> usize {
        4 * usize::from(self.has_broadcasts())
    }

    /// The running CPU broadcasts and waits; false without the instructions.
    pub(crate) fn broadcast(&mut self, cpu: usize, processor: &mut Processor) -> bool {
        self.disturb(cpu);
        let Some(broadcasts) = &mut self.broadcasts else {
            return false;
        };
        if broadcasts.fabric == Fabric::Serial {
            processor.now_ps = processor.now_ps.max(broadcasts.free_ps);
        }
        processor.now_ps += self.costs.broadcast_ps;
        broadcasts.free_ps = processor.now_ps;
        true
    }

    /// The wait is over: no CPU has anything left that `request` names.
    pub(crate) fn drop_everywhere(&mut self, asid: Asid, request: &FlushRequest) {
        for tlb in &mut self.tlbs {
            for range in request.ranges() {
                match range.exceeds_ceiling() {
                    true => tlb.drop_tag(asid),
                    false => tlb.drop_pages(&self.costs, asid, range),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timed::Costs;

    #[test]
    fn broadcasts_wait_for_each_other_where_the_fabric_is_serial() {
        for (fabric, second_ps) in [(Fabric::Parallel, 110), (Fabric::Serial, 200)] {
            let costs = Costs {
                broadcast_ps: 100,
                ..Costs::default()
            };
            let mut timed = Timed::new(2, costs).with_broadcasts(fabric);
            let [mut first, mut second] = [Processor::new(), Processor::new()];
            second.now_ps = 10;
            assert!(timed.broadcast(0, &mut first) && timed.broadcast(1, &mut second));
            assert_eq!(
                (first.now_ps, second.now_ps),
                (100, second_ps),
                "{fabric:?}"
            );
        }
    }
}
