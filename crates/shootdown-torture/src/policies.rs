//! Policies that change while everything goes on.

use shootdown::{Capacity, Cpus, Policy};

use crate::host::Host;
use crate::rng::Rng;
use crate::step::Step;

impl<H: Host<N>, const N: usize> Step<'_, H, N>
where
    Cpus<N>: Capacity,
{
    /// Another policy for all.
    pub(crate) fn set_policy(&self, rng: &mut Rng) -> bool {
        const POLICIES: [Policy; 7] = [
            Policy::BEFORE,
            Policy::PUBLISHED,
            Policy::BEST,
            Policy::BEST.with_lazy(false),
            Policy::BEST.with_out_of_order(false),
            Policy::BEST.with_broadcast_from(1),
            Policy::BEST.with_broadcast_from(3),
        ];
        let policy = POLICIES[rng.below(POLICIES.len() as u64) as usize];
        self.host.engine().set_policy(policy);
        true
    }
}
