//! The tables of a comparison.

use super::axes::{Layout, varying};
use super::compare::{Comparison, Pair, Part};
use super::tables::{Cell, Table, axis_cells, axis_heads};
use crate::chart::Unit;

/// What stands above the columns behind those of axes.
const HEADS: [&str; 5] = ["A", "B", "B / A", "95 % interval", "verdict"];

/// The rows that two files have, a table for each part: those that were judged, or the others.
pub fn tables(comparison: &Comparison<'_>, judged: bool) -> Vec<Table> {
    let layout = comparison.layout();
    let axes = varying(&layout.rows);
    let table = |part: &Part<'_>| {
        let mut heads = vec!["series".to_owned()];
        heads.extend(axis_heads(&axes));
        heads.extend(HEADS.map(str::to_owned));
        let (unit, suffix) = match part.relative_to {
            None => (Unit::of(part.key), ""),
            Some(_) => (Unit::Ratio, "-ratio"),
        };
        Table {
            id: format!("compared-{}{suffix}", part.key),
            caption: format!("{}: A, and B beside it", part.title()),
            heads,
            lines: part
                .pairs
                .iter()
                .map(|pair| line(&layout, &axes, pair, unit))
                .collect(),
        }
    };
    let parts = comparison.parts.iter();
    let wanted = parts.filter(|part| part.is_judged() == judged);
    wanted.map(table).collect()
}

fn line(layout: &Layout<'_>, axes: &[&str], pair: &Pair<'_>, unit: Unit) -> Vec<Cell> {
    let mut cells = vec![Cell::Words(layout.name(pair.row))];
    cells.extend(axis_cells(pair.row, axes));
    cells.push(Cell::figure(Some(pair.first), unit));
    cells.push(Cell::figure(Some(pair.second), unit));
    cells.push(Cell::figure(pair.ratio(), Unit::Ratio));
    cells.push(pair.interval.map_or(Cell::Missing, |interval| {
        let ends = [interval.low, interval.high].map(|end| Unit::Ratio.write(end));
        Cell::Figure(interval.low, ends.join(" to "))
    }));
    let words = pair.verdict.words();
    let reason = pair.verdict.reason();
    cells.push(Cell::Words(match reason {
        None => words.into(),
        Some(reason) => format!("{words}: {reason}"),
    }));
    cells
}
