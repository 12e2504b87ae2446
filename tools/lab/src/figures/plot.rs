//! [`Plot`]: a drawing of a figure's rows, `docs/plots/NAME.svg`.

use serde::Deserialize;
use serde_json::Value;

use super::figure::{Axes, has};
use crate::chart::{Chart, Frame, Look, Point, Scale, Sheet, Unit, heading};
use crate::failure::{Failure, Outcome};

/// Charts with the same series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The key of what goes up.
    up: String,
    /// What it is called, where the key does not say so.
    name: Option<String>,
    panels: Vec<Panel>,
    series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Panel {
    title: String,
    /// The key of what goes from left to right.
    across: String,
    /// Only rows with these values.
    #[serde(default)]
    of: Axes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    name: String,
    /// The key of its figure, where it is another one.
    key: Option<String>,
    /// Only rows with these values.
    #[serde(default)]
    of: Axes,
}

impl Plot {
    /// All keys of rows that it needs.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        let panels = self.panels.iter();
        let panels = panels.flat_map(|panel| panel.of.keys().chain([&panel.across]));
        let series = self.series.iter();
        let series = series.flat_map(|series| series.of.keys().chain(&series.key));
        panels.chain(series).chain([&self.up])
    }

    /// Whether it shows a row.
    pub fn shows(&self, row: &Value) -> bool {
        let mut panels = self.panels.iter();
        let mut series = self.series.iter();
        panels.any(|panel| has(row, &panel.of)) && series.any(|series| has(row, &series.of))
    }

    /// The picture.
    ///
    /// # Errors
    /// A panel has nothing to draw.
    pub fn svg(&self, rows: &[&Value]) -> Outcome<String> {
        let charts = self.panels.iter();
        let chart = |panel: &Panel| Ok((panel.title.clone(), self.chart(panel, rows)?));
        Sheet {
            legend: self
                .looks()
                .zip(self.series.iter().map(|it| it.name.clone()))
                .collect(),
            charts: charts.map(chart).collect::<Outcome<_>>()?,
        }
        .svg()
    }

    /// The last series is ours.
    fn looks(&self) -> impl Iterator<Item = Look> {
        let count = self.series.len();
        (0..count).map(move |index| Look::of(index, index + 1 == count))
    }

    fn chart(&self, panel: &Panel, rows: &[&Value]) -> Outcome<Chart> {
        let of = |series: &Series| -> Vec<Point> {
            let key = series.key.as_ref().unwrap_or(&self.up);
            let own = rows
                .iter()
                .filter(|row| has(row, &panel.of) && has(row, &series.of));
            let point = |row: &&Value| {
                let (across, up) = (row[&panel.across].as_f64()?, row[key].as_f64()?);
                Some(Point {
                    across,
                    up,
                    spread: None,
                })
            };
            let mut points: Vec<Point> = own.filter_map(point).collect();
            points.sort_by(|one, other| one.across.total_cmp(&other.across));
            points
        };
        let lines: Vec<Vec<Point>> = self.series.iter().map(of).collect();
        let points = || lines.iter().flatten();
        let values: Vec<f64> = points().map(|point| point.across).collect();
        let across = Scale::across(&values, |value| format!("{value:.0}"));
        let name = self.name.clone().unwrap_or_else(|| heading(&self.up));
        let frame = across.filter(|_| !lines.iter().any(Vec::is_empty));
        let frame = frame.and_then(|across| {
            let across = (heading(&panel.across), across);
            Frame::around(points(), across, (&name, Unit::of(&self.up), None))
        });
        let Some(frame) = frame else {
            let cause = format!("the plot lacks points: {}", panel.title);
            return Err(Failure::work(cause));
        };
        Ok(Chart {
            frame,
            lines: self.looks().zip(lines).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLOT: &str = r#"
        up = "median_ns"
        panels = [{ title = "one calls", across = "targets", of = { callers = "one" } }]
        series = [
            { name = "linux", of = { peer = "linux" } },
            { name = "best", key = "own_ns", of = { peer = "best" } },
        ]"#;

    fn rows() -> Vec<Value> {
        let row = |peer, targets, ns| json!({ "callers": "one", "peer": peer, "targets": targets, "median_ns": ns, "own_ns": 2 });
        vec![
            row("linux", 1, 800),
            row("linux", 8, 900),
            row("best", 1, 400),
        ]
    }

    #[test]
    fn a_plot_has_its_series_titles_and_axes() {
        let plot: Plot = toml::from_str(PLOT).unwrap();
        let rows = rows();
        let svg = plot.svg(&rows.iter().collect::<Vec<_>>()).unwrap();
        for words in ["linux", "best", "one calls", "targets", "median (ns)"] {
            assert!(svg.contains(words), "no {words} in {svg}");
        }
        assert!(plot.shows(&rows[0]) && !plot.shows(&json!({ "callers": "all", "peer": "best" })));
        let keys: Vec<&String> = plot.keys().collect();
        assert!(keys.contains(&&"own_ns".to_owned()) && keys.contains(&&"peer".to_owned()));
    }

    #[test]
    fn a_series_without_points_is_an_error() {
        let plot: Plot = toml::from_str(PLOT).unwrap();
        let rows = rows();
        let rows: Vec<&Value> = rows.iter().take(2).collect();
        let error = plot.svg(&rows).unwrap_err().to_string();
        assert!(error.contains("lacks points: one calls"), "{error}");
    }
}
