//! Tables that sort: a cell has what people read, and beside it what is sorted by.

use std::collections::BTreeSet;

use maud::{Markup, html};
use serde_json::Value;

use super::axes::{Layout, varying, written};
use super::figure::{self, spread, title, value};
use super::principal::principal;
use crate::bench::Row;
use crate::chart::{Unit, heading};

/// Keys that are shown elsewhere, or are no figures.
const HIDDEN: [&str; 6] = ["workload", "machine", "policy", "peer", "accel", "crowded"];

/// What a cell has.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Words(String),
    /// A figure: what it is, and how it is written.
    Figure(f64, String),
    /// Nothing.
    Missing,
}

impl Cell {
    /// A figure with its unit, if there is one.
    pub fn figure(value: Option<f64>, unit: Unit) -> Self {
        value.map_or(Self::Missing, |value| {
            Self::Figure(value, unit.write(value))
        })
    }

    /// Where there is no page.
    pub fn text(self) -> String {
        match self {
            Self::Words(text) | Self::Figure(_, text) => text,
            Self::Missing => "-".into(),
        }
    }

    fn markup(&self) -> Markup {
        match self {
            Self::Words(words) => html! { td.words { (words) } },
            Self::Figure(value, text) => html! { td data-value=(value) { (text) } },
            Self::Missing => html! { td data-value="" { "-" } },
        }
    }
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// In the page, for `#sort=`.
    pub id: String,
    /// Above it.
    pub caption: String,
    /// Above columns.
    pub heads: Vec<String>,
    /// Below heads.
    pub lines: Vec<Vec<Cell>>,
}

impl Table {
    /// Whether a column has words, which stand on the left.
    fn has_words(&self, column: usize) -> bool {
        let cell = self.lines.first().and_then(|line| line.get(column));
        matches!(cell, Some(Cell::Words(_)))
    }

    /// The table in a box that it scrolls in.
    pub fn markup(&self) -> Markup {
        html! {
            div.scroll tabindex="0" {
                table.sortable id=(self.id) {
                    caption { (self.caption) }
                    thead { tr { @for (column, head) in self.heads.iter().enumerate() {
                        th.words[self.has_words(column)] scope="col" { button type="button" { (head) } }
                    } } }
                    tbody { @for line in &self.lines {
                        tr { @for cell in line { (cell.markup()) } }
                    } }
                }
            }
        }
    }
}

/// What axes say of a row, with a mark if the host was too small for it.
pub fn axis_cells(row: &Row, axes: &[&str]) -> Vec<Cell> {
    let cell = |(number, axis): (usize, &&str)| {
        let text = written(row, axis);
        match row.number(axis) {
            Some(value) if !text.is_empty() && row.is_crowded() && number == 0 => {
                Cell::Figure(value, format!("{text} *"))
            }
            Some(value) if !text.is_empty() => Cell::Figure(value, text),
            _ if !text.is_empty() && row.is_crowded() && number == 0 => {
                Cell::Words(format!("{text} *"))
            }
            _ => Cell::Words(text),
        }
    };
    axes.iter().enumerate().map(cell).collect()
}

/// Axes for heads; rows that differ in none are told by nothing.
pub fn axis_heads(axes: &[&str]) -> Vec<String> {
    axes.iter().map(|axis| heading(axis)).collect()
}

/// A line for each shape, a column for each series: the reference's figure, then ratios to it with the spread over boots.
pub fn overview(layout: &Layout<'_>, prefix: &str) -> Vec<Table> {
    let tables = principal(&layout.rows).into_iter();
    let table = |key: &'static str| of_figure(layout, key, format!("{prefix}{key}"));
    tables.map(table).collect()
}

fn of_figure(layout: &Layout<'_>, key: &str, id: String) -> Table {
    let axes = varying(&layout.rows);
    let unit = Unit::of(key);
    let others = || (0..layout.series.len()).filter(|index| *index != layout.reference);
    let mut heads = axis_heads(&axes);
    heads.push(layout.series[layout.reference].clone());
    heads.extend(others().map(|index| layout.series[index].clone()));
    heads.extend(others().map(|index| format!("{} ratio", layout.series[index])));
    let line = |shape: &Row| {
        let at = |index| layout.beside(shape, index);
        let figure = |index| Cell::figure(at(index).and_then(|row| value(row, key)), unit);
        let ratio = |index| ratio(at(index), at(layout.reference), key);
        let mut cells = axis_cells(shape, &axes);
        cells.push(figure(layout.reference));
        cells.extend(others().map(figure));
        cells.extend(others().map(ratio));
        cells
    };
    Table {
        id,
        caption: caption(layout, key),
        heads,
        lines: layout.shapes().into_iter().map(line).collect(),
    }
}

fn caption(layout: &Layout<'_>, key: &str) -> String {
    let reference = &layout.series[layout.reference];
    let has_spread = |row: &&Row| {
        let other = layout.beside(row, layout.reference);
        other.is_some_and(|other| spread(row, other, key).is_some())
    };
    let title = title(key);
    match layout.series.len() {
        1 => title,
        _ if layout.rows.iter().any(has_spread) => {
            format!(
                "{title}, and its ratio to {reference} (in brackets: least and most of the boots or rounds)"
            )
        }
        _ => format!("{title}, and its ratio to {reference}"),
    }
}

fn ratio(row: Option<&Row>, reference: Option<&Row>, key: &str) -> Cell {
    let (Some(row), Some(reference)) = (row, reference) else {
        return Cell::Missing;
    };
    let Some(ratio) = figure::ratio(row, reference, key) else {
        return Cell::Missing;
    };
    let written = |value| Unit::Ratio.write(value);
    let text = match spread(row, reference, key) {
        None => written(ratio),
        Some((low, high)) => {
            format!("{} [{}, {}]", written(ratio), written(low), written(high))
        }
    };
    Cell::Figure(ratio, text)
}

/// A line for each row, a column for each figure.
pub fn all_figures(layout: &Layout<'_>, prefix: &str) -> Table {
    let axes = varying(&layout.rows);
    let mut keys: Vec<&str> = Vec::new();
    for key in layout.rows.iter().flat_map(|row| row.0.keys()) {
        if !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    let has_figures = |key: &str| {
        let mut rows = layout.rows.iter();
        rows.any(|row| cell(row, key) != Cell::Missing)
    };
    keys.retain(|key| !HIDDEN.contains(key) && !axes.contains(key) && has_figures(key));
    let mut heads = vec!["series".to_owned()];
    heads.extend(axis_heads(&axes));
    heads.extend(keys.iter().map(|key| heading(key)));
    let line = |row: &&Row| {
        let mut cells = vec![Cell::Words(layout.name(row))];
        cells.extend(axis_cells(row, &axes));
        cells.extend(keys.iter().map(|key| cell(row, key)));
        cells
    };
    Table {
        id: format!("{prefix}rows"),
        caption: "all figures of all rows; of lists the median".into(),
        heads,
        lines: layout.rows.iter().map(line).collect(),
    }
}

fn cell(row: &Row, key: &str) -> Cell {
    match row.0.get(key) {
        Some(Value::String(words)) => Cell::Words(words.clone()),
        Some(Value::Bool(is)) => Cell::Words(if *is { "yes".into() } else { "no".into() }),
        Some(Value::Object(_)) | None => Cell::Missing,
        Some(_) => Cell::figure(value(row, key), Unit::of(key)),
    }
}

/// A line for each row, a column for each counter that moved.
pub fn counters(layout: &Layout<'_>, prefix: &str) -> Option<Table> {
    let all = layout.rows.iter();
    let names: BTreeSet<&String> = all
        .filter_map(|row| row.0.get("counters")?.as_object())
        .flat_map(|counters| counters.keys())
        .collect();
    if names.is_empty() {
        return None;
    }
    let axes = varying(&layout.rows);
    let mut heads = vec!["series".to_owned()];
    heads.extend(axis_heads(&axes));
    heads.extend(names.iter().map(|name| name.replace('_', " ")));
    let line = |row: &&Row| {
        let mut cells = vec![Cell::Words(layout.name(row))];
        cells.extend(axis_cells(row, &axes));
        let count = |name: &&String| Cell::figure(Some(row.counter(name)), Unit::Number);
        cells.extend(names.iter().map(count));
        cells
    };
    Some(Table {
        id: format!("{prefix}counters"),
        caption: "counters of the engine, an operation".into(),
        heads,
        lines: layout.rows.iter().map(line).collect(),
    })
}
