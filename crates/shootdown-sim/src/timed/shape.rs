//! [`TlbShape`]: how large the TLB is; [`TlbCounts`]: what it counts.

use crate::timed::Replacement;

/// How large the TLB is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlbShape {
    /// Sets of the first level.
    pub l1_sets: usize,
    /// Ways of the first level.
    pub l1_ways: usize,
    /// Sets of the second level.
    pub l2_sets: usize,
    /// Ways of the second level.
    pub l2_ways: usize,
    /// Entries of the paging-structure cache, for each upper level.
    pub walk_entries: usize,
    /// Tags of which the processor keeps entries at a time: loading one more drops what the tag loaded least
    /// recently has.
    pub tags: usize,
    /// How both levels replace entries. No figure: for comparison only, real ones do neither.
    pub replacement: Replacement,
}

impl Default for TlbShape {
    /// The smallest: one entry everywhere.
    fn default() -> Self {
        Self {
            l1_sets: 1,
            l1_ways: 1,
            l2_sets: 1,
            l2_ways: 1,
            walk_entries: 1,
            tags: 1,
            replacement: Replacement::LeastRecent,
        }
    }
}

impl TlbShape {
    /// Sets and ways of the first level.
    pub(crate) fn first(&self) -> (usize, usize) {
        (self.l1_sets, self.l1_ways)
    }

    /// Sets and ways of the second level.
    pub(crate) fn second(&self) -> (usize, usize) {
        (self.l2_sets, self.l2_ways)
    }
}

/// What translations cost, counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TlbCounts {
    /// Accesses that the first level did not serve.
    pub l1_misses: u64,
    /// Accesses that neither level served: walks. Intel counts them as DTLB_LOAD_MISSES.MISS_CAUSES_A_WALK.
    pub walks: u64,
    /// Page-table entries that those walks read.
    pub walk_steps: u64,
}

impl TlbCounts {
    /// What was counted since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            l1_misses: self.l1_misses - earlier.l1_misses,
            walks: self.walks - earlier.walks,
            walk_steps: self.walk_steps - earlier.walk_steps,
        }
    }
}
