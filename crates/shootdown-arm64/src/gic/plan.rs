//! From a set of CPUs to writes of ICC_SGI1R_EL1.
//!
//! Arm IHI 0069, 12.2, "ICC_SGI1R_EL1": Aff3 in bits 55:48, RS in 47:44, IRM in 40, Aff2 in 39:32, INTID in 27:24, Aff1 in 23:16, TargetList in 15:0. Bit n of the list is the CPU with
//! Aff0 = 16 * RS + n.

use super::affinity::{Affinity, AffinityMap};
use super::{SendError, Sgi};

/// Whether SGIs can be sent to CPUs whose affinity 0 is above 15.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeSelector {
    /// ICC_CTLR_EL1.RSS and GICD_TYPER.RSS are set (Arm IHI 0069, 12.2 and 12.9): RS means something.
    Present,
    /// RS is reserved, zero.
    Absent,
}

/// One write: CPUs that differ in the lowest four bits of affinity 0 only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Group {
    first: Affinity,
    list: u64,
}

impl Group {
    fn value(self, sgi: Sgi) -> u64 {
        let affinity = self.first.as_u64();
        let (aff3, aff2, aff1) = (
            affinity >> 32 & 0xff,
            affinity >> 16 & 0xff,
            affinity >> 8 & 0xff,
        );
        aff3 << 48
            | self.first.selector() << 44
            | aff2 << 32
            | sgi.bits() << 24
            | aff1 << 16
            | self.list
    }
}

/// Calls `write` with each value that has to be written, and says what the first CPU without one lacks; the others are written all the same.
///
/// CPUs of one group that follow each other in the set share a write. That is one write a group where numbers go by affinity, as firmware's tables do; Linux does the same
/// (`gic_compute_target_list`).
pub(super) fn writes<const N: usize>(
    map: &AffinityMap<N>,
    selector: RangeSelector,
    cpus: impl Iterator<Item = usize>,
    sgi: Sgi,
    mut write: impl FnMut(u64),
) -> Result<(), SendError> {
    let (mut open, mut result): (Option<Group>, _) = (None, Ok(()));
    for cpu in cpus {
        let affinity = match find(map, selector, cpu) {
            Ok(affinity) => affinity,
            Err(error) => {
                result = result.and(Err(error));
                continue;
            }
        };
        let bit = 1 << affinity.bit();
        open = match open {
            Some(group) if group.first.group() == affinity.group() => Some(Group {
                list: group.list | bit,
                ..group
            }),
            before => {
                before.into_iter().for_each(|group| write(group.value(sgi)));
                Some(Group {
                    first: affinity,
                    list: bit,
                })
            }
        };
    }
    open.into_iter().for_each(|group| write(group.value(sgi)));
    result
}

fn find<const N: usize>(
    map: &AffinityMap<N>,
    selector: RangeSelector,
    cpu: usize,
) -> Result<Affinity, SendError> {
    let affinity = map.affinity(cpu).ok_or(SendError::UnknownCpu(cpu))?;
    match selector {
        RangeSelector::Absent if affinity.selector() != 0 => Err(SendError::OutOfReach(cpu)),
        _ => Ok(affinity),
    }
}
