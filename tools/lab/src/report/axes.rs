//! What tells rows apart ([`CONDITIONS`], [`SIZES`]), and what becomes of rows: series of points ([`Layout`]) in panels ([`Panel`]).

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::Value;

use crate::bench::{REFERENCE, Row, counted};
use crate::chart::Unit;

/// What has a series of points each: of rows, one or the other.
const CONTENDERS: [&str; 2] = ["policy", "peer"];
/// Conditions under which rows were measured.
const CONDITIONS: [&str; 9] = [
    "preset",
    "placement",
    "interrupt_cycles",
    "operation",
    "callers",
    "masks",
    "rest",
    "charges_shared",
    "function_ns",
];
/// Sizes, those first that are rather drawn from left to right.
const SIZES: [&str; 6] = [
    "targets",
    "threads",
    "spaces",
    "initiators",
    "cpus",
    "pages",
];
/// Sizes that follow from what the machine needs for these.
const ACTORS: [&str; 2] = ["threads", "spaces"];
/// To whom others are compared where no row says it.
const REFERENCES: [&str; 2] = [REFERENCE, "linux"];
/// Whose line is drawn in the colour of the text.
const OURS: &str = "best";

/// The value of an axis; none where the row has no such thing.
fn at<'a>(row: &'a Row, axis: &str) -> Option<&'a Value> {
    let follows = axis == "cpus" && ACTORS.iter().any(|axis| row.0.contains_key(*axis));
    let value = row.0.get(axis).filter(|value| !value.is_null());
    value.filter(|_| !follows)
}

/// Whether two rows were measured under the same conditions and with the same sizes, whatever their series.
pub fn same_shape(one: &Row, other: &Row) -> bool {
    let mut axes = CONDITIONS.iter().chain(&SIZES);
    axes.all(|axis| at(one, axis) == at(other, axis))
}

/// The same text for rows of the [same shape](same_shape), and for no others.
fn shape_of(row: &Row) -> String {
    let axes = CONDITIONS.iter().chain(&SIZES);
    let words = axes.map(|axis| at(row, axis).map(Value::to_string).unwrap_or_default());
    words.collect::<Vec<_>>().join("\n")
}

/// Whether two rows say the same of the same.
pub fn same(one: &Row, other: &Row) -> bool {
    let mut axes = CONTENDERS.iter().chain(&["machine"]);
    same_shape(one, other) && axes.all(|axis| at(one, axis) == at(other, axis))
}

/// The axes of shapes along which rows differ.
pub fn varying(rows: &[&Row]) -> Vec<&'static str> {
    let axes = CONDITIONS.iter().chain(&SIZES).copied();
    axes.filter(|axis| distinct(rows, axis).len() > 1).collect()
}

/// Those of them that are conditions.
pub fn conditions(rows: &[&Row]) -> Vec<&'static str> {
    let mut axes = varying(rows);
    axes.retain(|axis| CONDITIONS.contains(axis));
    axes
}

/// Rows under the same conditions together.
pub fn by_condition<'a>(rows: &[&'a Row]) -> Vec<Vec<&'a Row>> {
    split(rows, &CONDITIONS)
}

fn distinct(rows: &[&Row], axis: &str) -> BTreeSet<String> {
    let value = |row: &&Row| at(row, axis).map(Value::to_string).unwrap_or_default();
    rows.iter().map(value).collect()
}

/// A value of an axis, for a cell.
pub fn written(row: &Row, axis: &str) -> String {
    match at(row, axis) {
        None => String::new(),
        Some(Value::String(word)) => word.clone(),
        Some(Value::Number(number)) if Unit::of(axis) == Unit::Time => {
            Unit::Time.write(number.as_f64().unwrap_or(0.0))
        }
        Some(other) => other.to_string(),
    }
}

/// A value of an axis in words: `2 threads`.
fn worded(row: &Row, axis: &str) -> Option<String> {
    let value = at(row, axis)?;
    Some(match (value, axis) {
        (Value::Number(number), "cpus") => format!("{number} CPUs"),
        (Value::Number(number), _) if SIZES.contains(&axis) => {
            counted(number.as_u64()? as usize, axis)
        }
        (_, "function_ns") => format!("functions of {}", written(row, axis)),
        (Value::Bool(true), _) => axis.replace('_', " "),
        (Value::Bool(false), _) => return None,
        (_, "preset" | "rest") => written(row, axis),
        _ => format!("{}: {}", axis, written(row, axis)),
    })
}

/// What a row is of, along these axes; `all` where there are none.
pub fn title(row: &Row, axes: &[&str]) -> String {
    let words: Vec<String> = axes.iter().filter_map(|axis| worded(row, axis)).collect();
    match words.is_empty() {
        true => "all rows".into(),
        false => words.join(", "),
    }
}

/// Rows as series of points.
#[derive(Debug)]
pub struct Layout<'a> {
    /// All rows.
    pub rows: Vec<&'a Row>,
    /// The names of series, as they appear.
    pub series: Vec<String>,
    /// The series to which others are compared.
    pub reference: usize,
    /// The series of most interest.
    pub subject: usize,
    /// What is drawn beside each other.
    pub panels: Vec<Panel<'a>>,
    has_machines: bool,
    /// The first row of each shape and series: results have rows by the thousand.
    placed: HashMap<(String, usize), &'a Row>,
}

/// Rows that differ along one axis, and by series.
#[derive(Debug)]
pub struct Panel<'a> {
    /// What they have in common.
    pub title: String,
    /// The axis; none if they do not differ.
    pub across: Option<&'static str>,
    /// The rows.
    pub rows: Vec<&'a Row>,
}

impl<'a> Layout<'a> {
    /// Of the rows of one result.
    pub fn new(rows: &'a [Row]) -> Self {
        let rows: Vec<&Row> = rows.iter().collect();
        let mut layout = Self {
            has_machines: distinct(&rows, "machine").len() > 1,
            panels: panels(&rows),
            series: Vec::new(),
            reference: 0,
            subject: 0,
            placed: HashMap::new(),
            rows,
        };
        for row in &layout.rows {
            let name = layout.name(row);
            if !layout.series.contains(&name) {
                layout.series.push(name);
            }
        }
        for row in &layout.rows {
            let place = (shape_of(row), layout.index(row));
            layout.placed.entry(place).or_insert(row);
        }
        layout.reference = layout.find_reference();
        let mut others = (0..layout.series.len()).filter(|index| *index != layout.reference);
        let ours = others.clone().find(|index| layout.is_ours(*index));
        layout.subject = ours.or(others.next_back()).unwrap_or(layout.reference);
        layout
    }

    /// The name of a row's series.
    pub fn name(&self, row: &Row) -> String {
        let contender = CONTENDERS.iter().find_map(|axis| at(row, axis));
        let name = contender.and_then(Value::as_str).unwrap_or_default();
        let machine = row.text("machine");
        match self.has_machines && name != machine {
            true => format!("{name} ({machine})"),
            false => name.to_owned(),
        }
    }

    /// The index of a row's series.
    pub fn index(&self, row: &Row) -> usize {
        let name = self.name(row);
        let index = self.series.iter().position(|other| *other == name);
        index.unwrap_or(0)
    }

    /// Whether a series is that of this project.
    pub fn is_ours(&self, index: usize) -> bool {
        let name = &self.series[index];
        name.split(' ').next() == Some(OURS)
    }

    /// The row of another series with the same shape.
    pub fn beside(&self, row: &Row, series: usize) -> Option<&'a Row> {
        self.placed.get(&(shape_of(row), series)).copied()
    }

    /// One row for each shape.
    pub fn shapes(&self) -> Vec<&'a Row> {
        let mut found = HashSet::new();
        let is_new = |row: &&&Row| found.insert(shape_of(row));
        self.rows.iter().filter(is_new).copied().collect()
    }

    /// The series whose own ratio is 1 in each row, or whose change is nothing; otherwise the first of [`REFERENCES`] that is there.
    fn find_reference(&self) -> usize {
        let is_one = |row: &Row| {
            let ratio = ["ratio", "off_ratio", "per_s_ratio"].map(|key| row.number(key));
            let ratio = ratio.into_iter().flatten().next();
            let change = row.number("change_percent").map(|percent| 1.0 + percent);
            ratio.or(change) == Some(1.0)
        };
        let is_reference = |index: &usize| {
            let mut own = self.rows.iter().filter(|row| self.index(row) == *index);
            own.all(|row| is_one(row))
        };
        let named = |wanted: &str| {
            let is_it = |name: &String| name.split(' ').next() == Some(wanted);
            self.series.iter().position(is_it)
        };
        let found = (0..self.series.len()).find(is_reference);
        let found = found.or_else(|| REFERENCES.into_iter().find_map(named));
        found.unwrap_or(0)
    }
}

/// Rows under the same conditions, with the axis from left to right that needs the fewest panels.
fn panels<'a>(rows: &[&'a Row]) -> Vec<Panel<'a>> {
    let differing = varying(rows);
    let (sizes, conditions): (Vec<&str>, Vec<&str>) =
        differing.iter().partition(|axis| SIZES.contains(axis));
    let mut panels = Vec::new();
    for rows in split(rows, &conditions) {
        let sizes: Vec<&'static str> = sizes
            .iter()
            .filter(|axis| distinct(&rows, axis).len() > 1)
            .filter_map(|axis| SIZES.iter().find(|size| *size == axis).copied())
            .collect();
        let others = |across: &&'static str| -> Vec<&str> {
            let is_free = |axis: &&&'static str| **axis != *across && !follows(&rows, across, axis);
            sizes.iter().filter(is_free).copied().collect()
        };
        let across = sizes
            .iter()
            .copied()
            .min_by_key(|axis| split(&rows, &others(axis)).len());
        let others = across.as_ref().map(others).unwrap_or_default();
        for rows in split(&rows, &others) {
            panels.push(Panel {
                title: title(rows[0], &[&conditions[..], &others].concat()),
                across,
                rows,
            });
        }
    }
    panels
}

/// Rows that have the same on these axes together, in the order of their first ones.
fn split<'a>(rows: &[&'a Row], axes: &[&str]) -> Vec<Vec<&'a Row>> {
    let mut parts: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let is_own = |part: &&mut Vec<&Row>| {
            let mut axes = axes.iter();
            axes.all(|axis| at(part[0], axis) == at(row, axis))
        };
        match parts.iter_mut().find(is_own) {
            Some(part) => part.push(row),
            None => parts.push(vec![row]),
        }
    }
    parts
}

/// Whether rows with the same on one axis have the same on the other.
fn follows(rows: &[&Row], from: &str, to: &str) -> bool {
    let parts = split(rows, &[from]);
    parts.iter().all(|part| distinct(part, to).len() == 1)
}
