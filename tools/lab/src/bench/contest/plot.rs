//! [`Picture`]: tables as line charts, in SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use shootdown_sim::workload::Peer;

use crate::bench::columns::time;
use crate::bench::row::Row;
use crate::failure::{Failure, Outcome};

/// One panel's width and height.
const PANEL: (u32, u32) = (360, 300);
/// Panels beside each other.
const COLUMNS: usize = 3;

/// One file.
#[derive(Debug)]
pub struct Picture {
    /// Of the file.
    pub name: String,
    /// Its charts.
    pub panels: Vec<Panel>,
}

/// One chart: a line for each peer, over a logarithmic axis of numbers of CPUs.
#[derive(Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// Below it.
    pub across: &'static str,
    /// What goes up.
    pub up: Up,
    /// By peer.
    pub lines: Vec<(Peer, Vec<(f64, f64)>)>,
}

/// What goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    /// From -100 to a little above nothing.
    Percent,
    /// Nanoseconds, logarithmic.
    Time,
}

impl Panel {
    /// The lines of these peers: from which key to which.
    pub fn new(
        (title, peers): (String, &[Peer]),
        rows: &[&Row],
        (across, key): (&'static str, &str),
        (up, figure): (Up, &str),
    ) -> Self {
        let point = |row: &Row| Some((row.number(key)?, row.number(figure)?));
        let line = |peer: &Peer| {
            let own = rows.iter().filter(|row| row.text("peer") == peer.name());
            (*peer, own.filter_map(|row| point(row)).collect())
        };
        Self {
            title,
            across,
            up,
            lines: peers.iter().map(line).collect(),
        }
    }
}

impl Picture {
    /// The file's text.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn svg(&self) -> Outcome<String> {
        let mut text = String::new();
        self.draw(&mut text)
            .map_err(|error| Failure::work(format!("cannot draw {}: {error}", self.name)))?;
        Ok(text)
    }

    fn draw(&self, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(COLUMNS).max(1);
        let size = (PANEL.0 * columns as u32, PANEL.1 * rows as u32);
        let root = SVGBackend::with_string(text, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (panel, area) in self.panels.iter().zip(root.split_evenly((rows, columns))) {
            panel.draw(&area, std::ptr::eq(panel, &self.panels[0]))?;
        }
        root.present()?;
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Panel {
    fn draw(&self, area: &Area<'_>, has_legend: bool) -> Result<(), Box<dyn std::error::Error>> {
        let across = span(self.points().map(|(across, _)| across));
        let up = span(self.points().map(|(_, up)| up));
        let across = (across.0..across.1 * 1.01).log_scale().base(2.0);
        match self.up {
            Up::Percent => self.draw_on((area, has_legend), across, up.0.min(-80.0)..up.1.max(5.0)),
            Up::Time => {
                let up = (up.0 / 1.5..up.1 * 1.5).log_scale();
                self.draw_on((area, has_legend), across, up)
            }
        }
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let lines = self.lines.iter();
        lines.flat_map(|(_, points)| points.iter().copied())
    }

    fn draw_on<X, Y>(
        &self,
        (area, has_legend): (&Area<'_>, bool),
        across: X,
        up: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 15))
            .margin(8)
            .x_label_area_size(34)
            .y_label_area_size(54)
            .build_cartesian_2d(across, up)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_labels(14)
            .y_labels(8)
            .x_desc(self.across)
            .x_label_formatter(&|across| format!("{across:.0}"))
            .y_label_formatter(&|up| match self.up {
                Up::Percent => format!("{up:+.0} %"),
                Up::Time => time(*up),
            })
            .draw()?;
        for (peer, points) in &self.lines {
            let style = colour(*peer).stroke_width(if *peer == Peer::Shootdown { 3 } else { 1 });
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(peer.name())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
            let dot = |point: &(f64, f64)| Circle::new(*point, 2, colour(*peer).filled());
            chart.draw_series(points.iter().map(dot))?;
        }
        if !has_legend {
            return Ok(());
        }
        let corner = match self.up {
            Up::Percent => SeriesLabelPosition::LowerRight,
            Up::Time => SeriesLabelPosition::UpperLeft,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .label_font(("sans-serif", 10))
            .background_style(WHITE.mix(0.7))
            .draw()?;
        Ok(())
    }
}

fn colour(peer: Peer) -> RGBColor {
    match peer {
        Peer::Mailbox => RGBColor(150, 150, 150),
        Peer::OneLock => RGBColor(200, 120, 30),
        Peer::TaskSet => RGBColor(30, 150, 70),
        Peer::CallQueues => RGBColor(40, 90, 200),
        Peer::Scoreboard => RGBColor(200, 40, 60),
        Peer::Shootdown => BLACK,
    }
}

/// The least and the greatest; never the same.
fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let ends = (f64::INFINITY, f64::NEG_INFINITY);
    let wider = |ends: (f64, f64), value| (ends.0.min(value), ends.1.max(value));
    let (least, most) = values.fold(ends, wider);
    match least < most {
        true => (least, most),
        false => (least, least + least.abs().max(1.0)),
    }
}
