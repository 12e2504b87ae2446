//! [`Turn`]: one contender's calls of one row, and what an initiator writes down.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use shootdown::{Capacity, CpuMask, Cpus};

use crate::contender::Contender;
use crate::row::Row;

/// The masks of a row: by initiator, by call.
pub(crate) type Drawn<const N: usize> = Arc<Vec<Vec<CpuMask<Cpus<N>>>>>;

/// One contender's calls of one row.
pub(crate) struct Turn<const N: usize>
where
    Cpus<N>: Capacity,
{
    pub(crate) contender: Contender<N>,
    pub(crate) row: Row,
    pub(crate) masks: Drawn<N>,
    /// Of each initiator, the first ones of its masks.
    pub(crate) calls: usize,
}

impl<const N: usize> fmt::Debug for Turn<N>
where
    Cpus<N>: Capacity,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn")
            .field("row", &self.row)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

/// What an initiator writes down in a turn.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) calls_ns: Vec<u64>,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
    /// Calls after which not every target had run the function as it should.
    pub(crate) wrong: u64,
}

impl Log {
    pub(crate) const fn new() -> Self {
        Self {
            calls_ns: Vec::new(),
            first_ns: u64::MAX,
            last_ns: 0,
            wrong: 0,
        }
    }

    pub(crate) fn note(&mut self, start_ns: u64, end_ns: u64) {
        self.calls_ns.push(end_ns - start_ns);
        self.first_ns = self.first_ns.min(start_ns);
        self.last_ns = self.last_ns.max(end_ns);
    }
}
