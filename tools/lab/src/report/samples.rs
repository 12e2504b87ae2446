//! All samples of rows, by the median of the reference's.

use super::axes::{Layout, Panel, written};
use super::figure::{samples, title, value};
use super::plots::{self, Group, Plot, look};
use super::strip::{Strip, Strips};
use crate::bench::Row;
use crate::chart::{Frame, Scale, Unit, heading, labelled};
use crate::failure::Outcome;

/// The plots of a figure.
///
/// # Errors
/// The library cannot draw one.
pub fn group(layout: &Layout<'_>, key: &str) -> Outcome<Group> {
    let reference = &layout.series[layout.reference];
    let title = format!("{}: all samples, by the median of {reference}", title(key));
    let mut group = plots::group(layout, title, |panel| plot(layout, panel, key))?;
    group.note = "Each sample is in the line at its height; the more there are, the wider it is. Markers are medians.".into();
    Ok(group)
}

/// The plot of a panel; none if its rows have no samples.
fn plot(layout: &Layout<'_>, panel: &Panel<'_>, key: &str) -> Outcome<Option<Plot>> {
    let (names, strips) = strips(layout, panel, key);
    let samples = strips.iter().flat_map(|strip| &strip.samples).copied();
    let up = Scale::upwards(samples.chain([1.0]), Unit::Ratio);
    let Some(up) = up.filter(|_| !strips.is_empty()) else {
        return Ok(None);
    };
    let is_drawn = |index: &usize| strips.iter().any(|strip| strip.number == *index);
    let drawn = (0..layout.series.len()).filter(is_drawn);
    let legend = drawn.map(|index| look(layout, index)).collect();
    let across = panel
        .across
        .map(|axis| format!("{} (number)", heading(axis)));
    let across = across.unwrap_or_else(|| "series".into());
    let strips = Strips {
        frame: Frame {
            across: (across, Scale::of_names(&names)),
            up: (labelled("sample / median", &up), up),
            level: Some(1.0),
        },
        beside: layout.series.len(),
        strips,
    };
    Ok(Some(Plot {
        title: panel.title.clone(),
        legend,
        svg: strips.svg()?,
    }))
}

/// A strip for each row with samples, and the names of their places.
fn strips(layout: &Layout<'_>, panel: &Panel<'_>, key: &str) -> (Vec<String>, Vec<Strip>) {
    let mut names: Vec<String> = Vec::new();
    let mut strips = Vec::new();
    for row in &panel.rows {
        let samples = relative(layout, row, key);
        if samples.len() < 2 {
            continue;
        }
        let name = panel.across.map(|axis| written(row, axis));
        let name = name.unwrap_or_default();
        let place = names.iter().position(|other| *other == name);
        if place.is_none() {
            names.push(name);
        }
        let number = layout.index(row);
        strips.push(Strip {
            place: place.unwrap_or(names.len() - 1),
            number,
            look: look(layout, number).0,
            samples,
        });
    }
    (names, strips)
}

/// The samples of a row by the figure of the reference's row.
fn relative(layout: &Layout<'_>, row: &Row, key: &str) -> Vec<f64> {
    let other = layout.beside(row, layout.reference);
    let base = other.and_then(|other| value(other, key));
    match base.filter(|base| *base > 0.0) {
        None => Vec::new(),
        Some(base) => samples(row, key)
            .iter()
            .map(|sample| sample / base)
            .collect(),
    }
}
