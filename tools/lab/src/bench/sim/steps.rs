//! [`Steps`]: how a simulation gets on, and [`Counted`]: rows that count as they are measured.

use std::sync::Mutex;

use shootdown_sim::timed::Costs;
use shootdown_sim::workload::Row;

use crate::progress::Progress;

/// Steps of one kind, of which threads may take several at a time.
pub struct Steps {
    label: &'static str,
    total: u64,
    done: Mutex<(u64, Progress)>,
}

impl Steps {
    /// None of so many is done.
    pub fn new(total: usize, label: &'static str) -> Self {
        Self {
            label,
            total: total as u64,
            done: Mutex::new((0, Progress::new())),
        }
    }

    /// One more is.
    pub fn one_is_done(&self) {
        if let Ok(mut done) = self.done.lock() {
            let (done, display) = &mut *done;
            *done += 1;
            display.step(*done, self.total, self.label);
        }
    }
}

/// A row that is a step each time it is measured.
#[derive(Clone)]
pub struct Counted<'a, R> {
    /// The row.
    pub row: R,
    /// Those of which it is one.
    pub steps: &'a Steps,
}

impl<R: Row> Row for Counted<'_, R> {
    fn costs(&mut self) -> &mut Costs {
        self.row.costs()
    }

    fn figure_ns(&self) -> f64 {
        let figure_ns = self.row.figure_ns();
        self.steps.one_is_done();
        figure_ns
    }
}
