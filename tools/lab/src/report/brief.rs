//! What a bench prints below its main result: a line for each shape, or where there are many, for each condition.

use super::axes::{Layout, by_condition, conditions, varying};
use super::figure::{ratio, value};
use super::principal::principal;
use super::tables::{Cell, axis_cells, axis_heads};
use crate::bench::{Row, grid, median, micros, or_dash, short};
use crate::chart::{Unit, heading};

/// More lines are merged.
const MOST_LINES: usize = 10;

/// The table, with a line above it; none where no figure stands for rows.
pub fn brief(layout: &Layout<'_>) -> Option<String> {
    let &key = principal(&layout.rows).first()?;
    let shapes = layout.shapes();
    let is_alone = layout.series.len() == 1;
    Some(match shapes.len() > MOST_LINES && !is_alone {
        true => of_conditions(layout, key, &shapes),
        false => of_shapes(layout, key, &shapes),
    })
}

/// The reference's figure, and the ratios of the others to it.
fn of_shapes(layout: &Layout<'_>, key: &str, shapes: &[&Row]) -> String {
    let axes = varying(&layout.rows);
    let reference = &layout.series[layout.reference];
    let (unit, write) = written(key);
    let line = |shape: &Row| {
        let beside = layout.beside(shape, layout.reference);
        let ratio = |index| Some(ratio(layout.beside(shape, index)?, beside?, key)?);
        let mut cells = axes_of(shape, &axes);
        cells.push(or_dash(beside.and_then(|row| value(row, key)).map(write)));
        let ratios =
            others(layout).map(|index| or_dash(ratio(index).map(|it| Unit::Ratio.write(it))));
        cells.extend(ratios);
        cells
    };
    let mut heads = axis_heads(&axes);
    heads.push(format!("{reference}{unit}"));
    heads.extend(names(layout));
    let above = match layout.series.len() {
        1 => heading(key),
        _ => format!(
            "{} of {reference}, and ratios of the others to it",
            heading(key)
        ),
    };
    let lines = shapes.iter().map(|shape| line(shape)).collect();
    let table = grid(heads, lines, |column| has_words(shapes[0], &axes, column));
    format!("{above}\n{table}\n")
}

/// Medians of ratios, over all shapes under the same conditions.
fn of_conditions(layout: &Layout<'_>, key: &str, shapes: &[&Row]) -> String {
    let axes = conditions(&layout.rows);
    let line = |shapes: Vec<&Row>| {
        let ratios = |index| {
            let ratio = |shape: &&Row| {
                let beside = layout.beside(shape, layout.reference)?;
                ratio(layout.beside(shape, index)?, beside, key)
            };
            median(shapes.iter().filter_map(ratio))
        };
        let mut cells = axes_of(shapes[0], &axes);
        cells.push(shapes.len().to_string());
        cells.extend(
            others(layout).map(|index| or_dash(ratios(index).map(|it| Unit::Ratio.write(it)))),
        );
        cells
    };
    let mut heads = axis_heads(&axes);
    heads.push("sizes".into());
    heads.extend(names(layout));
    let reference = &layout.series[layout.reference];
    let lines = by_condition(shapes).into_iter().map(line).collect();
    let table = grid(heads, lines, |column| has_words(shapes[0], &axes, column));
    format!(
        "{}, ratios to {reference}: medians over sizes\n{table}\n",
        heading(key)
    )
}

fn axes_of(row: &Row, axes: &[&str]) -> Vec<String> {
    let cells = axis_cells(row, axes);
    cells.into_iter().map(Cell::text).collect()
}

fn others(layout: &Layout<'_>) -> impl Iterator<Item = usize> {
    let reference = layout.reference;
    (0..layout.series.len()).filter(move |index| *index != reference)
}

fn names(layout: &Layout<'_>) -> impl Iterator<Item = String> {
    others(layout).map(|index| layout.series[index].clone())
}

fn has_words(row: &Row, axes: &[&str], column: usize) -> bool {
    axes.get(column)
        .is_some_and(|axis| row.number(axis).is_none())
}

/// The unit of a figure in a head, and how the figure is written below it.
fn written(key: &str) -> (&'static str, fn(f64) -> String) {
    match Unit::of(key) {
        Unit::Time => (", us", micros),
        Unit::Rate => (", k/s", |value| short(value / 1e3)),
        Unit::Percent => (", %", short),
        Unit::Ratio | Unit::Number => ("", short),
    }
}
