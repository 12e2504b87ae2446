//! Curves: a line of points for each series of a panel.

use super::axes::{Layout, Panel};
use super::plots::{Drawn, Plot, look};
use crate::bench::Row;
use crate::chart::{Chart, Frame, Point, Scale, Unit, can_be_drawn, heading, labelled};
use crate::failure::Outcome;

/// The plot of a panel; none if it has nothing to draw.
///
/// # Errors
/// The library cannot draw it.
pub fn plot(
    layout: &Layout<'_>,
    panel: &Panel<'_>,
    (name, unit, level): (&str, Unit, Option<f64>),
    drawn: Drawn<'_>,
) -> Outcome<Option<Plot>> {
    let series = series(layout, panel, drawn);
    let points = || series.iter().flat_map(|(_, points)| points);
    let values: Vec<f64> = points().map(|point| point.across).collect();
    let across = across(layout, panel, &values).filter(|_| !values.is_empty());
    let frame = across.and_then(|across| Frame::around(points(), across, (name, unit, level)));
    let Some(frame) = frame else {
        return Ok(None);
    };
    let line = |(index, points): &(usize, Vec<Point>)| (look(layout, *index).0, points.clone());
    let chart = Chart {
        frame,
        lines: series.iter().map(line).collect(),
    };
    Ok(Some(Plot {
        title: panel.title.clone(),
        legend: series
            .iter()
            .map(|(index, _)| look(layout, *index))
            .collect(),
        svg: chart.svg()?,
    }))
}

/// The points of each series that has any, from left to right.
fn series(layout: &Layout<'_>, panel: &Panel<'_>, drawn: Drawn<'_>) -> Vec<(usize, Vec<Point>)> {
    let point = |row: &Row| {
        let (up, spread) = drawn(row).filter(|(up, _)| can_be_drawn(*up))?;
        let across = match panel.across {
            Some(axis) => row.number(axis)?,
            None => layout.index(row) as f64,
        };
        Some(Point { across, up, spread })
    };
    let of = |index: usize| {
        let own = panel.rows.iter().filter(|row| layout.index(row) == index);
        let mut points: Vec<Point> = own.filter_map(|row| point(row)).collect();
        points.sort_by(|one, other| one.across.total_cmp(&other.across));
        (index, points)
    };
    let all = (0..layout.series.len()).map(of);
    all.filter(|(_, points)| !points.is_empty()).collect()
}

/// The axis of a panel; series, where its rows differ in nothing else.
fn across(layout: &Layout<'_>, panel: &Panel<'_>, values: &[f64]) -> Option<(String, Scale)> {
    match panel.across {
        None => Some(("series".into(), Scale::of_names(&layout.series))),
        Some(axis) => {
            let scale = Scale::across(values, |value| format!("{value:.0}"))?;
            Some((labelled(&heading(axis), &scale), scale))
        }
    }
}
