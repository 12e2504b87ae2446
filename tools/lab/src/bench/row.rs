//! [`Row`]: one row of a result, from any machine: its keys in the order in which they are written. Ratios are taken here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cli::MachineKind;
use crate::failure::{Failure, Outcome};
use crate::protocol::{self, Message, Object};

/// The policy that ratios refer to.
pub const REFERENCE: &str = "before";
/// What tells rows apart; none has all of these.
pub const AXES: [&str; 6] = [
    "machine",
    "policy",
    "threads",
    "spaces",
    "pages",
    "operation",
];
/// What tells how heavy a row's load was: where a program cannot keep interrupts off, it is lighter.
const LOAD: &str = "keepers";

/// One row of a result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Row(pub Object);

/// Axes of another row that are not this one's.
pub type Change = &'static [(&'static str, &'static str)];

/// A ratio to another row of the same boot.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    key: &'static str,
    of: &'static str,
    to: Change,
}

impl Ratio {
    /// To `REFERENCE`, on the same machine.
    pub const fn to_before(key: &'static str, of: &'static str) -> Self {
        Self::new(key, of, &[("policy", REFERENCE)])
    }

    /// Written as `key`: the figure `of` this row by that of the other.
    pub const fn new(key: &'static str, of: &'static str, to: Change) -> Self {
        Self { key, of, to }
    }

    /// The other row's axes.
    pub fn changes(&self) -> Vec<(&'static str, Value)> {
        let value = |to: &str| to.parse::<u64>().map_or_else(|_| to.into(), Value::from);
        self.to.iter().map(|&(key, to)| (key, value(to))).collect()
    }
}

impl Row {
    /// An object as a row; of anything else an empty one.
    pub fn of(json: Value) -> Self {
        match json {
            Value::Object(figures) => Self(figures),
            _ => Self::default(),
        }
    }

    /// All that a console shows.
    ///
    /// # Errors
    /// One is garbled.
    pub fn all_of(console: &str) -> Outcome<Vec<Self>> {
        let row = |message| match message {
            Ok(Message::Row(row)) => Some(Ok(Self(row))),
            Ok(_) => None,
            Err(garbled) => Some(Err(Failure::work(garbled))),
        };
        let messages = console.lines().filter_map(protocol::parse);
        messages.filter_map(row).collect()
    }

    /// A figure; `None` if it is not there, or no number.
    pub fn number(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    /// A figure in nanoseconds, in microseconds; 0 if it is not there.
    pub fn us(&self, key: &str) -> f64 {
        self.number(key).unwrap_or(0.0) / 1000.0
    }

    /// A whole number; 0 if it is not there.
    pub fn count(&self, key: &str) -> u64 {
        self.0.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A word; empty if it is not there.
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// A counter of the engine; rows leave out those that did not move.
    pub fn counter(&self, name: &str) -> f64 {
        let counters = self.0.get("counters");
        let counter = counters.and_then(|counters| counters.get(name));
        counter.and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// The figures of a list, none if it is not there.
    pub fn numbers(&self, key: &str) -> impl Iterator<Item = f64> {
        let list = self.0.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_f64)
    }

    /// Writes a figure where its key is, or behind all others.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Leaves its ratios to Linux out.
    pub fn withhold_linux(&mut self) {
        let keys = self.0.iter_mut();
        let ratios = keys.filter(|(key, _)| key.ends_with("_to_linux"));
        ratios.for_each(|(_, ratio)| *ratio = Value::Null);
    }

    /// Whether more virtual CPUs were busy than the host has cores.
    pub fn is_crowded(&self) -> bool {
        self.0.get("crowded") == Some(&true.into())
    }

    /// Whether a machine measured it.
    pub fn is_of(&self, kind: MachineKind) -> bool {
        self.text("machine") == kind.name()
    }

    /// Whether these keys are the same in another row.
    pub fn agrees(&self, other: &Self, keys: &[&str]) -> bool {
        keys.iter().all(|key| self.0.get(*key) == other.0.get(*key))
    }

    /// The row with the same axes but for `changes`, if it was measured.
    pub fn sibling<'a>(&self, rows: &'a [Self], changes: &[(&str, Value)]) -> Option<&'a Self> {
        let is_wanted = |row: &&Self| {
            AXES.iter().all(|axis| {
                let change = changes.iter().find(|(key, _)| key == axis);
                row.0.get(*axis) == change.map_or(self.0.get(*axis), |(_, value)| Some(value))
            })
        };
        rows.iter().find(is_wanted)
    }

    /// A figure to that of the row with other axes, if both were measured under the same load.
    fn ratio(&self, rows: &[Self], ratio: &Ratio) -> Option<f64> {
        let other = self.sibling(rows, &ratio.changes())?;
        if self.0.get(LOAD) != other.0.get(LOAD) {
            return None;
        }
        let reference = other.number(ratio.of).filter(|&figure| figure > 0.0)?;
        Some(self.number(ratio.of)? / reference)
    }

    /// By how much the row exceeds the one without pages, a page.
    fn page_ns(&self, rows: &[Self], of: &str) -> Option<f64> {
        let pages = self.number("pages").filter(|&pages| pages > 0.0)?;
        let bare = self.sibling(rows, &[("pages", 0.into())])?;
        Some((self.number(of)? - bare.number(of)?) / pages)
    }
}

/// Writes each ratio into the rows that have its figure.
pub fn fill_ratios(rows: &mut [Row], ratios: &[Ratio]) {
    for ratio in ratios {
        fill(rows, ratio.key, |row, rows| {
            row.number(ratio.of).map(|_| row.ratio(rows, ratio))
        });
    }
}

/// Writes what a page adds to the figure of a row without any.
pub fn fill_page_ns(rows: &mut [Row], of: &str) {
    fill(rows, "page_ns", |row, rows| Some(row.page_ns(rows, of)));
}

/// Writes a figure that follows from all rows into those that have it.
pub fn fill(rows: &mut [Row], key: &str, figure: impl Fn(&Row, &[Row]) -> Option<Option<f64>>) {
    let figures: Vec<_> = rows.iter().map(|row| figure(row, rows)).collect();
    for (row, figure) in rows.iter_mut().zip(figures) {
        if let Some(figure) = figure {
            row.set(key, figure);
        }
    }
}

/// Accesses that used a translation after it had to be gone.
pub fn stale(rows: &[Row]) -> u64 {
    rows.iter().map(|row| row.count("stale")).sum()
}

/// Keeps every n-th of the samples, so that at most `kept` are left.
pub fn thin<T>(samples: Vec<T>, kept: usize) -> Vec<T> {
    let stride = samples.len().div_ceil(kept).max(1);
    samples.into_iter().step_by(stride).collect()
}

/// The median; the mean of the middle two if there is no middle one.
pub fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ratios_are_to_the_row_with_the_same_axes_and_the_same_load() {
        let of = |policy: &str, threads: u32, ns: u32, keepers: u32| {
            Row::of(json!({"policy": policy, "threads": threads, "ns": ns, "keepers": keepers}))
        };
        let mut rows = [
            of("before", 1, 10, 1),
            of("best", 1, 5, 1),
            of("best", 1, 5, 0),
            of("best", 2, 5, 1),
        ];
        let ratios = [("ratio", "ns"), ("other", "none")];
        fill_ratios(
            &mut rows,
            &ratios.map(|(key, of)| Ratio::to_before(key, of)),
        );
        let ratios = rows.each_ref().map(|row| row.number("ratio"));
        assert_eq!(ratios, [Some(1.0), Some(0.5), None, None]);
        assert!(rows[3].0.contains_key("ratio") && !rows[3].0.contains_key("other"));
    }

    #[test]
    fn only_ratios_to_linux_are_withheld() {
        let mut row = Row::of(json!({"ratio": 1, "ratio_to_linux": 40, "per_s_ratio_to_linux": 2}));
        row.withhold_linux();
        let keys = ["ratio", "ratio_to_linux", "per_s_ratio_to_linux"];
        let ratios = keys.map(|key| row.number(key));
        assert_eq!(ratios, [Some(1.0), None, None]);
    }

    #[test]
    fn thinning_keeps_the_spread() {
        let kept = thin((0..10_000).collect(), 2000);
        assert_eq!((kept.len(), kept[0], kept[1]), (2000, 0, 5));
        assert_eq!(thin(vec![1.0], 2000), [1.0]);
    }

    #[test]
    fn median_of_even_counts_is_the_middle() {
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median([].into_iter()), None);
    }
}
