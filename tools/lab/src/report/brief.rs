//! What a bench prints below its main result: a line for each shape, or where there are many, for each condition.

use super::axes::{Layout, by_condition, conditions, varying};
use super::figure::{is_better_high, ratio, value};
use super::principal::principal;
use super::tables::{Cell, axis_cells, axis_heads};
use crate::bench::{Row, counted, grid, median, micros, or_dash, short};
use crate::chart::{Unit, heading};

/// More shapes are merged, each condition into a line.
const MOST_LINES: usize = 10;

/// Who needs so many times less is ahead.
const AHEAD: f64 = 1.01;

/// The table, with a line above it; none where no figure stands for rows.
pub fn brief(layout: &Layout<'_>) -> Option<String> {
    let &key = principal(&layout.rows).first()?;
    let shapes = layout.shapes();
    let is_alone = layout.series.len() == 1;
    let table = match shapes.len() > MOST_LINES && !is_alone {
        true => of_conditions(layout, key, &shapes),
        false => of_shapes(layout, key, &shapes),
    };
    Some(table + &behind(layout, key, &shapes))
}

/// The reference's figure, and the ratios of the others to it.
fn of_shapes(layout: &Layout<'_>, key: &str, shapes: &[&Row]) -> String {
    let axes = varying(&layout.rows);
    let reference = &layout.series[layout.reference];
    let (unit, write) = written(key);
    let line = |shape: &Row| {
        let own = layout.beside(shape, layout.reference);
        let mut cells = axes_of(shape, &axes);
        cells.push(or_dash(own.and_then(|row| value(row, key)).map(write)));
        cells.extend(others(layout).map(|index| ratio_cell(of(layout, key, shape, index))));
        cells
    };
    let above = match layout.series.len() {
        1 => heading(key),
        _ => format!(
            "{} of {reference}, and ratios of the others to it",
            heading(key)
        ),
    };
    let lines = shapes.iter().map(|shape| line(shape)).collect();
    let table = table(
        layout,
        (shapes[0], &axes),
        format!("{reference}{unit}"),
        lines,
    );
    format!("{above}\n{table}\n")
}

/// Medians of ratios, over all shapes under the same conditions; without those that the host was too small for, if there are others.
fn of_conditions(layout: &Layout<'_>, key: &str, shapes: &[&Row]) -> String {
    let is_quiet = |shape: &&&Row| !shape.is_crowded();
    let quiet: Vec<&Row> = shapes.iter().filter(is_quiet).copied().collect();
    let shapes = if quiet.is_empty() { shapes } else { &quiet };
    let axes = conditions(&layout.rows);
    let line = |shapes: Vec<&Row>| {
        let ratios = |index| {
            shapes
                .iter()
                .filter_map(move |shape| of(layout, key, shape, index))
        };
        let mut cells = axes_of(shapes[0], &axes);
        cells.push(shapes.len().to_string());
        cells.extend(others(layout).map(|index| ratio_cell(median(ratios(index)))));
        cells
    };
    let reference = &layout.series[layout.reference];
    let lines = by_condition(shapes).into_iter().map(line).collect();
    let table = table(layout, (shapes[0], &axes), "sizes".into(), lines);
    format!(
        "{}, ratios to {reference}: medians over sizes\n{table}\n",
        heading(key)
    )
}

/// In how many shapes another contender is ahead.
fn behind(layout: &Layout<'_>, key: &str, shapes: &[&Row]) -> String {
    if shapes.iter().all(|shape| shape.text("peer").is_empty()) || layout.series.len() == 1 {
        return String::new();
    }
    let figure = |shape: &Row, index| value(layout.beside(shape, index)?, key);
    let is_behind = |shape: &&&Row| {
        let own = figure(shape, layout.subject);
        let mut all = (0..layout.series.len()).filter_map(|index| figure(shape, index));
        let is_ahead = |other: f64| match is_better_high(key) {
            true => own < Some(other / AHEAD),
            false => own > Some(other * AHEAD),
        };
        own.is_some() && all.any(is_ahead)
    };
    let count = shapes.iter().filter(is_behind).count();
    let subject = &layout.series[layout.subject];
    let all = counted(shapes.len(), "cases");
    let percent = (AHEAD - 1.0) * 100.0;
    format!("another is ahead of {subject} by more than {percent:.0} % in {count} of {all}\n")
}

/// The ratio of a series to the reference.
fn of(layout: &Layout<'_>, key: &str, shape: &Row, index: usize) -> Option<f64> {
    let reference = layout.beside(shape, layout.reference)?;
    ratio(layout.beside(shape, index)?, reference, key)
}

fn ratio_cell(ratio: Option<f64>) -> String {
    or_dash(ratio.map(|ratio| Unit::Ratio.write(ratio)))
}

fn axes_of(row: &Row, axes: &[&str]) -> Vec<String> {
    let cells = axis_cells(row, axes);
    cells.into_iter().map(Cell::text).collect()
}

fn others(layout: &Layout<'_>) -> impl Iterator<Item = usize> {
    let reference = layout.reference;
    (0..layout.series.len()).filter(move |index| *index != reference)
}

/// Lines below the axes, one more head, and the other series.
fn table(
    layout: &Layout<'_>,
    (row, axes): (&Row, &[&str]),
    head: String,
    lines: Vec<Vec<String>>,
) -> String {
    let mut heads = axis_heads(axes);
    heads.push(head);
    heads.extend(others(layout).map(|index| layout.series[index].clone()));
    let has_words = |axis: &&str| row.number(axis).is_none();
    grid(heads, lines, |column| {
        axes.get(column).is_some_and(has_words)
    })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(rows: impl IntoIterator<Item = serde_json::Value>) -> String {
        let rows: Vec<Row> = rows.into_iter().map(Row::of).collect();
        brief(&Layout::new(&rows)).unwrap_or_default()
    }

    fn peer(name: &str, targets: u32, median_ns: u32) -> serde_json::Value {
        json!({"machine": "sim", "peer": name, "operation": "call", "targets": targets, "median_ns": median_ns})
    }

    /// The cells of the last line of the table.
    fn last(text: &str) -> Vec<String> {
        let line = text.lines().rfind(|line| line.starts_with('│'));
        let cells = line.unwrap_or_default().split(['│', '┆']);
        let cells = cells.map(|cell| cell.trim().to_owned());
        cells.filter(|cell| !cell.is_empty()).collect()
    }

    #[test]
    fn ten_shapes_have_a_line_each_and_eleven_one_for_their_condition() {
        let rows =
            |most: u32| (1..=most).flat_map(|n| [peer("linux", n, 200), peer("best", n, 100 + n)]);
        let ten = said(rows(10));
        assert!(
            ten.starts_with("median of linux, and ratios of the others to it\n"),
            "{ten}"
        );
        assert_eq!(last(&ten), ["10", "0.200", "0.550"]);
        let eleven = said(rows(11));
        assert!(
            eleven.starts_with("median, ratios to linux: medians over sizes\n"),
            "{eleven}"
        );
        assert_eq!(last(&eleven), ["11", "0.530"]);
    }

    #[test]
    fn who_is_ahead_is_counted() {
        let rows = [
            ("linux", 1, 90),
            ("best", 1, 100),
            ("linux", 2, 200),
            ("best", 2, 100),
        ];
        let text = said(rows.map(|(name, targets, ns)| peer(name, targets, ns)));
        assert!(
            text.ends_with("another is ahead of best by more than 1 % in 1 of 2 cases\n"),
            "{text}"
        );
    }

    #[test]
    fn one_series_has_its_figure_and_a_missing_row_a_dash() {
        let alone = said([peer("best", 1, 1500), peer("best", 2, 2500)]);
        assert!(alone.starts_with("median\n"), "{alone}");
        assert_eq!(last(&alone), ["2", "2.50"]);
        let missing = said([
            peer("linux", 1, 200),
            peer("best", 1, 100),
            peer("best", 2, 100),
        ]);
        assert_eq!(last(&missing), ["2", "-", "-"]);
    }

    #[test]
    fn crowded_rows_are_marked_or_left_out_of_medians() {
        let row = |policy, threads: u32, ns: u32| {
            json!({"machine": "qemu", "policy": policy, "threads": threads, "median_ns": ns,
                "ratio": f64::from(ns) / 200.0, "crowded": threads > 1})
        };
        let of = |most: u32| {
            (1..=most).flat_map(move |n| [row("before", n, 200), row("best", n, 100 * n)])
        };
        assert_eq!(last(&said(of(2)))[0], "2 *");
        assert_eq!(last(&said(of(11))), ["1", "0.500"]);
    }
}
