//! [`Shared`]: what the operations of the published system share besides page tables.
//!
//! Its table shows two things that have nothing to do with TLBs. Beyond twelve threads the throughput with the flag stays
//! at 1.7 million operations a second, whatever the number of CPUs: something serves one operation at a time, for about
//! 0.57 us. And already the second thread, when nothing is near that limit, makes each operation slower by 1.4 us, more
//! threads, which are on both sockets, by 2.1: cache lines move that stayed where they were for one thread. Both
//! are modelled here, in the open; a row may leave them out.

use std::cell::Cell;

use shootdown::sim::{AtomicU64, Ordering};

use crate::machine::Context;
use crate::timed::Costs;

/// A counter on a line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// Lines that each operation writes, and a stretch that one operation passes at a time.
pub(super) struct Shared {
    lines: Box<[Line]>,
    stretch_ps: u64,
    /// When those who have come so far are through.
    free_ps: Cell<u64>,
}

impl Shared {
    /// As the figures of the machine say.
    pub(super) fn new(costs: &Costs) -> Self {
        Self {
            lines: (0..costs.shared_lines)
                .map(|_| Line(AtomicU64::new(0)))
                .collect(),
            stretch_ps: costs.shared_serial_ps,
            free_ps: Cell::new(0),
        }
    }

    /// One operation passes: first come, first served.
    pub(super) fn pass(&self, context: Context<'_>) {
        for line in &self.lines {
            line.0.fetch_add(1, Ordering::Relaxed);
        }
        let asked_ps = context.now_ps();
        let through_ps = asked_ps.max(self.free_ps.get()) + self.stretch_ps;
        self.free_ps.set(through_ps);
        context.work(through_ps - asked_ps);
    }
}
