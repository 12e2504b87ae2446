//! [`Comparison`]: the rows that two results of one workload both have, and for each whether the second one is faster.

use serde_json::Value;

use super::axes::{Layout, same};
use super::document::{Document, is_simulated};
use super::figure::{boot_ratios, is_better_high, ratio, title, units, value};
use super::interval::{self, Interval};
use super::principal::principal;
use crate::bench::Row;
use crate::failure::{Failure, Outcome};

/// What never tells two runs of one simulation apart.
const IGNORED: [&str; 1] = ["samples"];

/// Two results, the second beside the first.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// What is compared with.
    pub first: &'a Document,
    /// What is compared.
    pub second: &'a Document,
    /// One for each figure that stands for rows.
    pub parts: Vec<Part<'a>>,
}

/// The rows of both, by one figure.
#[derive(Debug)]
pub struct Part<'a> {
    /// The figure.
    pub key: &'static str,
    /// Whose figure of the same boot it is divided by, if any: a host that became slower does not show.
    pub relative_to: Option<String>,
    /// The rows.
    pub pairs: Vec<Pair<'a>>,
}

/// One row of both.
#[derive(Debug)]
pub struct Pair<'a> {
    /// In the first.
    pub row: &'a Row,
    /// The first one's figure.
    pub first: f64,
    /// The second one's.
    pub second: f64,
    /// The second one's by the first one's, where boots or rounds tell.
    pub interval: Option<Interval>,
    /// What follows.
    pub verdict: Verdict,
}

/// What two rows show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The second is.
    Faster,
    /// The second is.
    Slower,
    /// The interval has 1 in it.
    NotShown,
    /// There is no interval: too few boots or rounds, or the row does not tell them apart.
    TooFew(usize, usize),
    /// Simulated, with the same figures.
    Equal,
    /// Simulated, with other figures: these.
    Differs(Vec<String>),
}

impl Part<'_> {
    /// Whether any of its rows tells boots or rounds apart, or needs none.
    pub fn is_judged(&self) -> bool {
        let is_open =
            |pair: &Pair<'_>| matches!(pair.verdict, Verdict::TooFew(0, _) | Verdict::TooFew(_, 0));
        !self.pairs.iter().all(is_open)
    }

    /// What stands above it.
    pub fn title(&self) -> String {
        match &self.relative_to {
            None => title(self.key),
            Some(reference) => {
                format!("{}, ratio to {reference} of the same boot", title(self.key))
            }
        }
    }
}

impl Pair<'_> {
    /// The second one's figure by the first one's: the interval's estimate if there is one.
    pub fn ratio(&self) -> Option<f64> {
        let estimate = self.interval.map(|interval| interval.middle);
        estimate.or((self.first > 0.0).then(|| self.second / self.first))
    }
}

impl Verdict {
    /// As the page says it.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::NotShown | Self::TooFew(..) => "no difference shown",
            Self::Equal => "equal",
            Self::Differs(_) => "differs",
        }
    }

    /// What explains it.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::TooFew(0, _) | Self::TooFew(_, 0) => Some("no boots or rounds in the row".into()),
            Self::TooFew(first, second) => Some(format!(
                "{first} against {second} boots or rounds are too few to show any"
            )),
            Self::Differs(keys) => Some(keys.join(", ")),
            _ => None,
        }
    }
}

impl<'a> Comparison<'a> {
    /// Finds the rows that both have.
    ///
    /// # Errors
    /// They are of different workloads, or have no row in common.
    pub fn new(first: &'a Document, second: &'a Document) -> Outcome<Self> {
        if first.workload != second.workload {
            return Err(Failure::input(
                format!(
                    "{} is of {:?} and {} of {:?}",
                    first.name, first.workload, second.name, second.workload
                ),
                "give two results of the same workload",
            ));
        }
        let layouts = [Layout::new(&first.rows), Layout::new(&second.rows)];
        let parts = principal(&layouts[0].rows).into_iter();
        let parts = parts.flat_map(|key| [absolute(&layouts, key), relative(&layouts, key)]);
        // Ratios of which no boot is known say nothing that the figures do not.
        let is_wanted = |part: &Part<'_>| {
            !part.pairs.is_empty() && (part.relative_to.is_none() || part.is_judged())
        };
        let parts: Vec<Part<'_>> = parts.filter(is_wanted).collect();
        if parts.is_empty() {
            return Err(Failure::input(
                format!("{} and {} have no row in common", first.name, second.name),
                "give two results of the same machine, policies and sizes",
            ));
        }
        Ok(Self {
            first,
            second,
            parts,
        })
    }

    /// The rows of both as the first has them.
    pub fn layout(&self) -> Layout<'a> {
        Layout::new(&self.first.rows)
    }

    /// The parameters that are not the same: their path, and both values.
    pub fn changes(&self) -> Vec<(String, String, String)> {
        let mut changes = Vec::new();
        let (first, second) = (self.first.settings(), self.second.settings());
        differences("", Some(&first), Some(&second), &mut changes);
        changes
    }
}

/// A figure of a row: its value, and what is independent of each other in it.
type Measured = (f64, Vec<f64>);

/// The rows of both by a figure.
fn absolute<'a>(layouts: &[Layout<'a>; 2], key: &'static str) -> Part<'a> {
    let measured = |_: &Layout<'a>, row: &Row| Some((value(row, key)?, units(row, key)));
    Part {
        key,
        relative_to: None,
        pairs: pairs(layouts, key, measured),
    }
}

/// The measured rows of both by a figure's ratio to the reference of the same boot.
fn relative<'a>(layouts: &[Layout<'a>; 2], key: &'static str) -> Part<'a> {
    let reference = &layouts[0].series[layouts[0].reference];
    let measured = |layout: &Layout<'a>, row: &Row| {
        let series = layout.series.iter().position(|name| name == reference)?;
        let other = layout.beside(row, series)?;
        let is_relative = !is_simulated(row) && layout.index(row) != series;
        is_relative.then_some((ratio(row, other, key)?, boot_ratios(row, other, key)))
    };
    Part {
        key,
        relative_to: Some(reference.clone()),
        pairs: pairs(layouts, key, measured),
    }
}

fn pairs<'a>(
    layouts: &[Layout<'a>; 2],
    key: &str,
    measured: impl Fn(&Layout<'a>, &Row) -> Option<Measured>,
) -> Vec<Pair<'a>> {
    let [first, second] = layouts;
    let pair = |row: &&'a Row| {
        let other = second.rows.iter().find(|other| same(row, other))?;
        Some(pair(
            (row, measured(first, row)?),
            (other, measured(second, other)?),
            key,
        ))
    };
    first.rows.iter().filter_map(pair).collect()
}

fn pair<'a>(
    (row, (first, of_first)): (&'a Row, Measured),
    (other, (second, of_second)): (&Row, Measured),
    key: &str,
) -> Pair<'a> {
    let is_exact = is_simulated(row) && is_simulated(other);
    let interval = interval::ratio(&of_first, &of_second).filter(|_| !is_exact);
    let verdict = match interval {
        _ if is_exact => exact(row, other),
        None => Verdict::TooFew(of_first.len(), of_second.len()),
        Some(interval) if interval.has_one() => Verdict::NotShown,
        Some(interval) if (interval.middle > 1.0) == is_better_high(key) => Verdict::Faster,
        Some(_) => Verdict::Slower,
    };
    Pair {
        row,
        first,
        second,
        interval,
        verdict,
    }
}

/// Of rows without noise.
fn exact(row: &Row, other: &Row) -> Verdict {
    let keys = row.0.keys().chain(other.0.keys());
    let mut keys: Vec<String> = keys
        .filter(|key| !IGNORED.contains(&key.as_str()) && row.0.get(*key) != other.0.get(*key))
        .cloned()
        .collect();
    keys.sort();
    keys.dedup();
    match keys.is_empty() {
        true => Verdict::Equal,
        false => Verdict::Differs(keys),
    }
}

/// Walks through two values at once.
fn differences(
    path: &str,
    first: Option<&Value>,
    second: Option<&Value>,
    into: &mut Vec<(String, String, String)>,
) {
    match (first, second) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let keys = one
                .keys()
                .chain(other.keys().filter(|key| !one.contains_key(*key)));
            for key in keys {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                differences(&path, one.get(key), other.get(key), into);
            }
        }
        (first, second) if first == second => {}
        (first, second) => {
            let text = |value: Option<&Value>| value.map(Value::to_string).unwrap_or_default();
            into.push((path.to_owned(), text(first), text(second)));
        }
    }
}
