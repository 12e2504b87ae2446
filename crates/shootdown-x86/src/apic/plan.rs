//! The fewest interrupt commands that reach exactly a set of CPUs.

use super::delivery::Delivery;
use super::error::SendError;
use super::icr::{ApicId, Destination};
use super::map::ApicMap;

const WORD_BITS: usize = u64::BITS as usize;
/// CPUs in an x2APIC cluster, hence the bound of a walk through one.
const CLUSTER_CPUS: usize = 16;

/// Iterator over the destinations for one set of targets; made by [`ApicMap::plan`].
///
/// * One target: its physical id.
/// * All online CPUs but the initiator, where permitted: the shorthand.
/// * xAPIC flat: one logical destination.
/// * x2APIC cluster: one logical destination for each cluster that has targets.
/// * Otherwise the physical id of each target.
///
/// Should a CPU come online just as the shorthand is chosen, it gets an interrupt that nobody
/// needed. No target is ever missed.
#[derive(Clone, Debug)]
pub struct MulticastPlan<'a, const N: usize> {
    map: &'a ApicMap<N>,
    targets: &'a [u64],
    rest: Rest,
}

/// What is still to be sent.
#[derive(Clone, Debug)]
enum Rest {
    Nothing,
    Once(Destination),
    /// The targets left in the word `index`, and all later words.
    Each {
        index: usize,
        word: u64,
        clustered: bool,
    },
}

/// What one look at the targets tells.
struct Survey {
    count: usize,
    first: usize,
    all_online: bool,
}

impl<const N: usize> ApicMap<N> {
    /// The commands that interrupt these CPUs (bit `i` of word `w` is CPU `64 * w + i`).
    ///
    /// # Errors
    ///
    /// [`SendError::Unmapped`] if a target is not in the map, rather than leaving it out.
    pub fn plan<'a>(
        &'a self,
        initiator: usize,
        targets: &'a [u64],
    ) -> Result<MulticastPlan<'a, N>, SendError> {
        let survey = Survey::of(self, targets)?;
        let rest = match survey.count {
            0 => Rest::Nothing,
            1 => Rest::Once(Destination::Physical(id_of(self, survey.first))),
            _ if survey.is_everyone_else(self, initiator, targets) => {
                Rest::Once(Destination::AllButSelf)
            }
            _ => match self.delivery() {
                Delivery::XapicFlat => Rest::Once(Destination::Logical(targets[0] as u32)),
                Delivery::XapicPhysical | Delivery::X2Physical => Rest::each(targets, false),
                Delivery::X2Cluster => Rest::each(targets, true),
            },
        };
        Ok(MulticastPlan {
            map: self,
            targets,
            rest,
        })
    }
}

impl<const N: usize> MulticastPlan<'_, N> {
    /// The destination for the cluster of `cpu`, unless an earlier target stood for it.
    fn cluster_of(&self, cpu: usize) -> Option<Destination> {
        let mut earlier = self.map.previous_in_cluster(cpu);
        for _ in 1..CLUSTER_CPUS {
            let Some(other) = earlier else { break };
            if contains(self.targets, other) {
                return None;
            }
            earlier = self.map.previous_in_cluster(other);
        }
        let id = id_of(self.map, cpu);
        let mut members = 0;
        let mut later = self.map.next_in_cluster(cpu);
        for _ in 1..CLUSTER_CPUS {
            let Some(other) = later else { break };
            if contains(self.targets, other) {
                members |= id_of(self.map, other).x2apic_logical().unwrap_or(0);
            }
            later = self.map.next_in_cluster(other);
        }
        Some(match id.x2apic_logical() {
            Some(own) if members != 0 => Destination::Logical(own | members),
            _ => Destination::Physical(id),
        })
    }
}

impl<const N: usize> Iterator for MulticastPlan<'_, N> {
    type Item = Destination;

    fn next(&mut self) -> Option<Destination> {
        loop {
            let (cpu, clustered) = match &mut self.rest {
                Rest::Nothing => return None,
                Rest::Once(destination) => {
                    let destination = *destination;
                    self.rest = Rest::Nothing;
                    return Some(destination);
                }
                Rest::Each {
                    index,
                    word,
                    clustered,
                } => {
                    while *word == 0 {
                        *index += 1;
                        *word = *self.targets.get(*index)?;
                    }
                    let bit = word.trailing_zeros() as usize;
                    *word &= *word - 1;
                    (*index * WORD_BITS + bit, *clustered)
                }
            };
            if !clustered {
                return Some(Destination::Physical(id_of(self.map, cpu)));
            }
            if let Some(destination) = self.cluster_of(cpu) {
                return Some(destination);
            }
        }
    }
}

impl<const N: usize> core::iter::FusedIterator for MulticastPlan<'_, N> {}

impl Rest {
    /// Starts at the first word; there is one, because there are targets.
    fn each(targets: &[u64], clustered: bool) -> Self {
        Self::Each {
            index: 0,
            word: targets[0],
            clustered,
        }
    }
}

impl Survey {
    fn of<const N: usize>(map: &ApicMap<N>, targets: &[u64]) -> Result<Self, SendError> {
        let mut survey = Self {
            count: 0,
            first: 0,
            all_online: true,
        };
        for (index, &word) in targets.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                let cpu = index * WORD_BITS + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if map.id(cpu).is_none() {
                    return Err(SendError::Unmapped(cpu));
                }
                if survey.count == 0 {
                    survey.first = cpu;
                }
                survey.count += 1;
                survey.all_online &= map.is_online(cpu);
            }
        }
        Ok(survey)
    }

    /// Whether the targets are all online CPUs but the initiator.
    fn is_everyone_else<const N: usize>(
        &self,
        map: &ApicMap<N>,
        initiator: usize,
        targets: &[u64],
    ) -> bool {
        map.shorthand_permitted()
            && self.all_online
            && self.count + 1 == map.online()
            && map.is_online(initiator)
            && !contains(targets, initiator)
    }
}

fn contains(targets: &[u64], cpu: usize) -> bool {
    targets
        .get(cpu / WORD_BITS)
        .is_some_and(|word| word >> (cpu % WORD_BITS) & 1 != 0)
}

/// The id of a CPU that the survey found in the map; nothing ever leaves it.
fn id_of<const N: usize>(map: &ApicMap<N>, cpu: usize) -> ApicId {
    map.id(cpu).expect("CPUs never leave the APIC map")
}
