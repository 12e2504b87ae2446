//! What a worker did, counted.

use super::change::Change;

/// What a worker did under one policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Slots mapped, also over what was there.
    pub maps: u64,
    /// Slots filled.
    pub fills: u64,
    /// Changes of protection.
    pub protects: u64,
    /// Slots and private pages discarded.
    pub discards: u64,
    /// Slots unmapped.
    pub unmaps: u64,
    /// Accesses judged.
    pub accesses: u64,
    /// Those judged with the slot's condition known exactly.
    pub exact: u64,
    /// Faults that had to or could happen.
    pub faults: u64,
    /// Private pages touched.
    pub touches: u64,
    /// Children forked that found all well.
    pub forks: u64,
}

impl Tally {
    /// Changes of mappings.
    pub fn operations(&self) -> u64 {
        self.maps + self.fills + self.protects + self.discards + self.unmaps
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        let Self {
            maps,
            fills,
            protects,
            discards,
            unmaps,
            accesses,
            exact,
            faults,
            touches,
            forks,
        } = other;
        self.maps += maps;
        self.fills += fills;
        self.protects += protects;
        self.discards += discards;
        self.unmaps += unmaps;
        self.accesses += accesses;
        self.exact += exact;
        self.faults += faults;
        self.touches += touches;
        self.forks += forks;
    }

    /// Counts `change`.
    pub fn count(&mut self, change: Change) {
        match change {
            Change::Map | Change::Replace => self.maps += 1,
            Change::Fill => self.fills += 1,
            Change::Freeze | Change::Close | Change::Open => self.protects += 1,
            Change::Discard => self.discards += 1,
            Change::Unmap => self.unmaps += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_one_operation_and_sums_add_up() {
        use Change::{Close, Discard, Fill, Freeze, Map, Open, Replace, Unmap};
        let mut tally = Tally::default();
        for change in [Map, Fill, Freeze, Close, Open, Discard, Unmap, Replace] {
            tally.count(change);
        }
        assert_eq!((tally.operations(), tally.maps, tally.protects), (8, 2, 3));
        let other = tally;
        tally.add(&other);
        assert_eq!(tally.operations(), 16);
    }
}
