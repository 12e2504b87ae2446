//! The CPUs that hold a line for reading, as words of a set, and how far they are.

use std::ops::Range;

use crate::timed::{Distance, Topology};

/// Whether a CPU is in the set.
pub(super) fn has(set: &[u64], cpu: usize) -> bool {
    set[cpu / 64] & (1 << (cpu % 64)) != 0
}

/// Puts a CPU into the set.
pub(super) fn insert(set: &mut [u64], cpu: usize) {
    set[cpu / 64] |= 1 << (cpu % 64);
}

/// How far the nearest other holder is.
pub(super) fn nearest(set: &[u64], topology: Topology, cpu: usize) -> Distance {
    if has_other_in(set, topology.core_of(cpu), cpu) {
        Distance::Core
    } else if has_other_in(set, topology.socket_of(cpu), cpu) {
        Distance::Socket
    } else {
        Distance::Machine
    }
}

/// How far the farthest other holder is.
pub(super) fn farthest(set: &[u64], topology: Topology, cpu: usize) -> Distance {
    let (core, socket) = (topology.core_of(cpu), topology.socket_of(cpu));
    let all = 0..set.len() * 64;
    if has_other_in(set, all.start..socket.start, cpu)
        || has_other_in(set, socket.end..all.end, cpu)
    {
        Distance::Machine
    } else if has_other_in(set, socket.start..core.start, cpu)
        || has_other_in(set, core.end..socket.end, cpu)
    {
        Distance::Socket
    } else {
        Distance::Core
    }
}

/// Whether a CPU of the range other than `cpu` is in the set.
fn has_other_in(set: &[u64], range: Range<usize>, cpu: usize) -> bool {
    let end = range.end.min(set.len() * 64);
    let mut at = range.start;
    while at < end {
        let (word, bit) = (at / 64, at % 64);
        let bits = (end - at).min(64 - bit);
        let mut mask = (u64::MAX >> (64 - bits)) << bit;
        if cpu / 64 == word {
            mask &= !(1 << (cpu % 64));
        }
        if set[word] & mask != 0 {
            return true;
        }
        at += bits;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_sets_are_searched_by_range() {
        let mut set = [0u64; 3];
        insert(&mut set, 130);
        insert(&mut set, 5);
        assert!(has_other_in(&set, 0..192, 5));
        assert!(!has_other_in(&set, 0..130, 5));
        assert!(has_other_in(&set, 6..500, 5));
        assert!(!has_other_in(&set, 131..192, 5));
        assert!(!has_other_in(&set, 7..7, 5));
    }
}
