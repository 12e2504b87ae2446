//! Which plots a page has: figures, ratios, counts and samples by the axis of each panel.

use super::axes::{Layout, Panel};
use super::compare::{Comparison, Part};
use super::figure::{ratio, spread, title, value};
use super::principal::{counts, principal, sampled};
use super::{curves, samples};
use crate::bench::Row;
use crate::chart::{Look, Unit, heading};
use crate::failure::Outcome;

/// The most panels of one figure.
const MOST_PANELS: usize = 24;

/// Plots of one figure.
#[derive(Debug)]
pub struct Group {
    /// Above them.
    pub title: String,
    /// Below that.
    pub note: String,
    /// The plots.
    pub plots: Vec<Plot>,
    /// How many more there would be.
    pub left_out: usize,
}

/// One plot.
#[derive(Debug)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// The series in it.
    pub legend: Vec<(Look, String)>,
    /// The picture.
    pub svg: String,
}

/// What is drawn of a row: its height, and how far it spreads.
pub type Drawn<'a> = &'a dyn Fn(&Row) -> Option<(f64, Option<(f64, f64)>)>;

/// All plots of one result.
///
/// # Errors
/// The library cannot draw one.
pub fn of_one(layout: &Layout<'_>) -> Outcome<Vec<Group>> {
    let mut groups = Vec::new();
    for key in principal(&layout.rows) {
        let drawn = |row: &Row| Some((value(row, key)?, None));
        groups.push(lines(
            layout,
            title(key),
            (&heading(key), Unit::of(key)),
            &drawn,
        )?);
        groups.push(ratios(layout, key)?);
    }
    for key in counts(&layout.rows) {
        let has_any = layout.rows.iter().any(|row| value(row, key) > Some(0.0));
        if has_any {
            let drawn = |row: &Row| Some((value(row, key)?, None));
            groups.push(lines(
                layout,
                title(key),
                (&heading(key), Unit::Number),
                &drawn,
            )?);
        }
    }
    for key in sampled(&layout.rows) {
        groups.push(samples::group(layout, key)?);
    }
    groups.retain(|group| !group.plots.is_empty());
    Ok(groups)
}

/// The ratios of the rows that two results have.
///
/// # Errors
/// The library cannot draw one.
pub fn of_two(comparison: &Comparison<'_>) -> Outcome<Vec<Group>> {
    let layout = comparison.layout();
    let of = |part: &Part<'_>| {
        let drawn = |row: &Row| {
            let pair = part.pairs.iter().find(|pair| std::ptr::eq(pair.row, row))?;
            let spread = pair.interval.map(|interval| (interval.low, interval.high));
            Some((pair.ratio()?, spread))
        };
        let title = format!("{}: B / A", part.title());
        let mut group = lines(&layout, title, ("B / A", Unit::Ratio), &drawn)?;
        if part.pairs.iter().any(|pair| pair.interval.is_some()) {
            group.note = "Bars are 95 % intervals, where there are enough boots or rounds.".into();
        }
        Ok(group)
    };
    let judged = comparison.parts.iter().filter(|part| part.is_judged());
    judged.map(of).collect()
}

fn ratios(layout: &Layout<'_>, key: &str) -> Outcome<Group> {
    let reference = &layout.series[layout.reference];
    let drawn = |row: &Row| {
        if layout.index(row) == layout.reference {
            return None;
        }
        let other = layout.beside(row, layout.reference)?;
        Some((ratio(row, other, key)?, spread(row, other, key)))
    };
    let title = format!("{}: ratio to {reference}", title(key));
    let mut group = lines(
        layout,
        title,
        (&format!("to {reference}"), Unit::Ratio),
        &drawn,
    )?;
    let has_bars = |row: &&Row| {
        let other = layout.beside(row, layout.reference);
        other.is_some_and(|other| spread(row, other, key).is_some())
    };
    if layout.rows.iter().any(has_bars) {
        group.note = "Bars go from the least to the most of the boots or rounds.".into();
    }
    Ok(group)
}

/// Curves of one figure.
fn lines(
    layout: &Layout<'_>,
    title: String,
    (name, unit): (&str, Unit),
    drawn: Drawn<'_>,
) -> Outcome<Group> {
    let level = (unit == Unit::Ratio).then_some(1.0);
    let plot = |panel: &Panel<'_>| curves::plot(layout, panel, (name, unit, level), drawn);
    group(layout, title, plot)
}

/// A plot for each panel that has something to draw.
///
/// # Errors
/// The library cannot draw one.
pub fn group(
    layout: &Layout<'_>,
    title: String,
    plot: impl Fn(&Panel<'_>) -> Outcome<Option<Plot>>,
) -> Outcome<Group> {
    let mut plots = Vec::new();
    for panel in &layout.panels {
        plots.extend(plot(panel)?);
    }
    let left_out = plots.len().saturating_sub(MOST_PANELS);
    plots.truncate(MOST_PANELS);
    Ok(Group {
        title,
        note: String::new(),
        plots,
        left_out,
    })
}

/// How a series of a layout looks, and its name.
pub fn look(layout: &Layout<'_>, index: usize) -> (Look, String) {
    let look = Look::of(index, layout.is_ours(index));
    (look, layout.series[index].clone())
}
