//! [`fifo_limit`]: how fast anybody could be.

use alloc::vec;
use alloc::vec::Vec;

use shootdown::{Capacity, CpuMask};

/// When the last of the calls ends if nothing costs anything but the function, each target runs one at a time, first
/// come, first served, and each initiator makes its next call when the one before is complete. In the unit of `function_time`.
///
/// `calls` are the targets of each call of each initiator.
pub fn fifo_limit<C: Capacity>(calls: &[Vec<CpuMask<C>>], function_time: u64) -> u64 {
    let mut free_at = vec![0u64; C::CPUS];
    // When each initiator makes its next call, and which.
    let mut next: Vec<(u64, usize)> = vec![(0, 0); calls.len()];
    while let Some(initiator) = (0..calls.len())
        .filter(|initiator| next[*initiator].1 < calls[*initiator].len())
        .min_by_key(|initiator| next[*initiator].0)
    {
        let (now, call) = next[initiator];
        let mut end = now;
        for target in calls[initiator][call].iter() {
            let free_at = &mut free_at[target.index()];
            *free_at = (*free_at).max(now) + function_time;
            end = end.max(*free_at);
        }
        next[initiator] = (end, call + 1);
    }
    next.into_iter().map(|(end, _)| end).max().unwrap_or(0)
}
