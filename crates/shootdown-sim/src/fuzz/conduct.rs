//! [`Conduct`]: what the engine did in some schedules.

use std::collections::BTreeMap;
use std::fmt;

use shootdown::watch::Stats;

use crate::machine::State;

/// What the engine did, in numbers that are the same on every host: events, what it had its platform do, its own counters, and a
/// fingerprint of the order in which it did all that.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Conduct {
    counts: BTreeMap<&'static str, u64>,
    fingerprint: u64,
}

impl Conduct {
    pub(super) fn of(state: &State, stats: &Stats) -> Self {
        let events = [("schedules", 1), ("events", state.events)].into_iter();
        let waits = stats.waits_ns.iter().sum();
        let counts = events.chain(state.deeds.iter()).chain(stats.iter());
        Self {
            counts: counts.chain([("waits measured", waits)]).collect(),
            fingerprint: state.deeds.order(),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        // A sum, so that it does not matter which schedule ends first.
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }
}

impl fmt::Display for Conduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.counts {
            writeln!(f, "    {name}: {count}")?;
        }
        writeln!(f, "    fingerprint: {:016x}", self.fingerprint)
    }
}
